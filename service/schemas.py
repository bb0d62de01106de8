"""What requests and answers have in common."""

from __future__ import annotations

import re
from typing import Annotated, Any, Generic, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    model_validator,
)

from preprocessing.strict_numbers import StrictNumbers

__all__ = ["AliasName", "Answer", "Items", "Labels", "Many", "Name", "Request", "RequestPart"]

Item = TypeVar("Item")
# A list that may be long: one wrong item is told, where a million would take a second each to be counted.
Many = Annotated[list[Item], Field(fail_fast=True)]
# Far more than any object has here.
MOST_FIELDS = 1000
# Of a document in which no text can be other than such as can be stored and sent.
_UNESCAPED = object()
_NO_TEXT = re.compile("[\x00\ud800-\udfff]")


class RequestPart(StrictNumbers):
    """Base of what stands inside a ``Request``: an unknown field is an error, and so is a number that is not finite, or
    that is text.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Request(RequestPart):
    """Base of request bodies. Their texts are looked at once, here, with those of every part."""

    @classmethod
    def of_json(cls, document: bytes) -> Self:
        """``model_validate_json``; where nothing is escaped, as mostly, no text is looked at."""
        return cls.model_validate_json(document, context=None if b"\\u" in document else _UNESCAPED)

    @model_validator(mode="before")
    @classmethod
    def _holds_text(cls, document: Any, info: ValidationInfo) -> Any:
        """JSON can spell half a surrogate pair, which no answer can hold, and a null, which PostgreSQL cannot. What is
        wider or deeper than anything that there is would take long to be told field by field.
        """
        if info.context is _UNESCAPED:
            return document
        try:
            sound = _is_text(document)
        except RecursionError:
            raise ValueError("it nests deeper than anything here") from None
        if not sound:
            raise ValueError("a text holds a null character or half of a surrogate pair")
        return document


class Answer(BaseModel):
    """Base of answers; may be read off a row."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


class Items(Answer, Generic[Item]):
    """A page of a list; ``next_cursor`` is null on the last."""

    items: list[Item]
    next_cursor: str | None


def _is_text(document: Any) -> bool:
    """Whether every text of it, keys too, is one that can be stored and sent; ``ValueError`` for too wide an object."""
    if isinstance(document, str):
        return _NO_TEXT.search(document) is None
    if isinstance(document, dict):
        if len(document) > MOST_FIELDS:
            raise ValueError(f"an object has {len(document)} fields; none here has more than {MOST_FIELDS}")
        return all(map(_is_text, document)) and all(map(_is_text, document.values()))
    if isinstance(document, list):
        # Long lists are of one kind: numbers are passed over, and texts are looked at as one.
        kinds = set(map(type, document))
        if kinds == {str}:
            return _NO_TEXT.search("".join(document)) is None
        return kinds <= {int, float, bool} or all(map(_is_text, document))
    return True


def _not_an_id(name: str) -> str:
    if name.startswith("emb_"):
        raise ValueError("a name that starts with emb_ would read as an id")
    return name


Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
AliasName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=128), AfterValidator(_not_an_id)
]
_LabelKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=63)]
Labels = dict[_LabelKey, Annotated[str, StringConstraints(max_length=255)]]
