"""A fault that pydantic has found in a value, in plain words: what the value must be, and which one may be meant."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preprocessing.unknown_fields import likely

__all__ = ["MUST", "fault_words", "meant_value"]

MUST = "must be "
_NUMBER, _WHOLE, _TRUTH = "a number", "a whole number", "true or false"
_KINDS: Mapping[str, str] = {
    "model_type": "an object",
    "model_attributes_type": "an object",
    "dict_type": "an object",
    "list_type": "an array",
    "tuple_type": "an array",
    "string_type": "a text",
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "bool_type": _TRUTH,
    "bool_parsing": _TRUTH,
}
"""What people, and JSON, call the types that a fault is about."""
_SUBJECT = re.compile(r"(Input|Value|String|List|Tuple|Set|Dictionary) should ")


def fault_words(fault: Mapping[str, Any]) -> str:
    """What the value must be, or what else is wrong; without the value itself."""
    if fault["type"] == "union_tag_invalid":
        return f"{MUST}one of {fault['ctx']['expected_tags']}"
    if fault["type"] in _KINDS:
        return MUST + _KINDS[fault["type"]]
    return _SUBJECT.sub("must ", str(fault["msg"]).removeprefix("Value error, "), count=1)


def meant_value(fault: Mapping[str, Any]) -> str | None:
    """A question about the one of several values that may be meant by another; None where none is like it."""
    context = fault.get("ctx") or {}
    told = context.get("expected_tags") or context.get("expected") or fault["msg"]
    given = str(context.get("tag", fault.get("input")))
    near = likely(given, [name for name in re.findall(r"'([^']+)'", str(told)) if name != given])
    return None if near is None else f"did you mean '{near}'?"
