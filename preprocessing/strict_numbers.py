"""Numbers and truth values that are what they say: by itself pydantic takes ``true`` for 1 and ``"2"`` for 2.

A whole number may be spelled in any way that JSON has for it (``2``, ``2.0``, ``2e0``).
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

__all__ = ["StrictNumbers"]

_PARTS = ("schema", "items_schema", "values_schema", "fields", "choices")


def _strict(part: Any) -> Any:
    """A schema, or several in a list or by name, with the numbers in it strict, as far as the next model."""
    if isinstance(part, list):
        return [_strict(one) for one in part]
    if not isinstance(part, dict):
        return part
    kind = part.get("type")
    if not isinstance(kind, str):
        return {name: _strict(one) for name, one in part.items()}
    if kind in ("float", "bool"):
        return {**part, "strict": True}
    if kind == "int" and not part.get("strict"):
        return core_schema.no_info_before_validator_function(_number, part)
    if kind == "model":
        return part
    return {**part, **{name: _strict(part[name]) for name in _PARTS if name in part}}


def _number(value: Any) -> Any:
    if isinstance(value, bool | str | bytes):
        raise PydanticKnownError("int_type")
    return value


class StrictNumbers(BaseModel):
    """Base of models whose own fields refuse truth values and text where a number belongs, and the reverse."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The model's schema, with every number in it strict; models inside are their own classes' business."""
        schema = handler(source)
        node: Any = handler.resolve_ref_schema(schema)
        while node["type"] != "model":
            node = node["schema"]
        node["schema"] = _strict(node["schema"])
        return schema
