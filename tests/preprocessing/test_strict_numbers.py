"""Settings and requests take numbers for numbers and truth values for truth values, however deep they lie."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field, ValidationError

from preprocessing.settings import Settings


class Inner(Settings):
    share: float = 0.5


class Outer(Settings):
    count: int = Field(1, ge=0, le=10)
    most: int | None = None
    on: bool = False
    sizes: list[Annotated[int, Field(le=9)]] | None = None
    pairs: list[tuple[float, int]] = Field([])
    named: dict[str, float] = Field({})
    inner: Inner = Inner()
    name: str | int = "x"


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"count": True}, ("count",)),
        ({"count": "3"}, ("count",)),
        ({"count": 3.5}, ("count",)),
        ({"count": 11}, ("count",)),
        ({"most": False}, ("most",)),
        ({"on": 1}, ("on",)),
        ({"on": "true"}, ("on",)),
        ({"sizes": [1, True]}, ("sizes", 1)),
        ({"sizes": ["1"]}, ("sizes", 0)),
        ({"sizes": [10]}, ("sizes", 0)),
        ({"pairs": [["0.5", 1]]}, ("pairs", 0, 0)),
        ({"pairs": [[0.5, True]]}, ("pairs", 0, 1)),
        ({"named": {"a": "1"}}, ("named", "a")),
        ({"inner": {"share": True}}, ("inner", "share")),
    ],
)
def test_what_is_no_number_is_refused(given: dict[str, Any], place: tuple[str | int, ...]) -> None:
    with pytest.raises(ValidationError) as raised:
        Outer.model_validate(given)
    assert [error["loc"] for error in raised.value.errors()] == [place]


@pytest.mark.parametrize(
    "given",
    [
        {"count": 3.0, "most": 2.0, "on": True},
        {"sizes": [1, 2], "pairs": [[1, 2]], "named": {"a": 1}},
        {"inner": {"share": 1}, "name": "y"},
    ],
)
def test_every_spelling_of_a_number_is_taken(given: dict[str, Any]) -> None:
    made = Outer.model_validate(given)
    for name, value in given.items():
        told = made.model_dump(mode="json")[name]
        assert told == value
        assert isinstance(told, bool) == isinstance(value, bool)


def test_the_schema_still_says_integer_and_its_bounds() -> None:
    assert Outer.model_json_schema()["properties"]["count"] == {
        "default": 1,
        "maximum": 10,
        "minimum": 0,
        "title": "Count",
        "type": "integer",
    }
