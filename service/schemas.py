"""What requests and answers have in common."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints

__all__ = ["AliasName", "Answer", "Items", "Labels", "Name", "Request"]

Item = TypeVar("Item")


class Request(BaseModel):
    """Base of request bodies: an unknown field is an error, and so is a number that is not finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Answer(BaseModel):
    """Base of answers; may be read off a row."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


class Items(Answer, Generic[Item]):
    """A page of a list; ``next_cursor`` is null on the last."""

    items: list[Item]
    next_cursor: str | None


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
