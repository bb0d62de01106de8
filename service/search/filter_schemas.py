"""The filter language on the wire: conditions on node attributes, put together as in Qdrant.

``degree`` (edges to other nodes) and ``label`` are attributes of every graph that has them; the others are those that
the graph was ingested with.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, StrictBool, StrictFloat, StrictInt, StrictStr, Tag, model_validator

from service.schemas import Many, RequestPart

__all__ = ["MAX_CONDITIONS", "MAX_DEPTH", "MAX_VALUES", "Condition", "Filter", "Match", "Range"]

MAX_DEPTH = 4
MAX_CONDITIONS = 64
MAX_VALUES = 1000

Value = StrictBool | StrictInt | StrictFloat | StrictStr
Bound = StrictInt | StrictFloat | None


class Match(RequestPart):
    """Equal to ``value``, or to one of ``any``."""

    value: Value | None = None
    any: Many[Value] | None = Field(None, min_length=1, max_length=MAX_VALUES)

    @model_validator(mode="after")
    def _one_kind(self) -> Match:
        if (self.value is None) == (self.any is None):
            raise ValueError("a match has exactly one of: value, any")
        return self


class Range(RequestPart):
    """Within all of the bounds given; for integers and numbers."""

    gt: Bound = None
    gte: Bound = None
    lt: Bound = None
    lte: Bound = None

    @model_validator(mode="after")
    def _bounded(self) -> Range:
        if (self.gt, self.gte, self.lt, self.lte) == (None,) * 4:
            raise ValueError("a range has at least one of: gt, gte, lt, lte")
        return self


class Condition(RequestPart):
    """What the attribute ``key`` of a node has to be. A node without a value fulfils ``is_null: true`` alone."""

    key: StrictStr = Field(min_length=1, max_length=200)
    match: Match | None = None
    range: Range | None = None
    is_null: bool | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Condition:
        if (self.match is None) + (self.range is None) + (self.is_null is None) != 2:
            raise ValueError("a condition has exactly one of: match, range, is_null")
        return self


def _kind(part: Any) -> str:
    """A filter by its clauses; whatever else it is gets a condition's errors."""
    if isinstance(part, dict):
        return "filter" if part.keys() & {"must", "should", "must_not"} else "condition"
    return "filter" if isinstance(part, Filter) else "condition"


Clause = Annotated[
    Annotated[Condition, Tag("condition")] | Annotated["Filter", Tag("filter")],
    Discriminator(_kind),
]


class Filter(RequestPart):
    """Nodes that fulfil all of ``must``, one or more of ``should`` (if there are any), and none of ``must_not``.

    A filter may stand where a condition may, four deep; 64 conditions in all.
    """

    must: Many[Clause] = Field([], max_length=MAX_CONDITIONS)
    should: Many[Clause] = Field([], max_length=MAX_CONDITIONS)
    must_not: list[Clause] = Field([], max_length=MAX_CONDITIONS)

    @property
    def clauses(self) -> dict[str, list[Condition | Filter]]:
        """By name."""
        return {"must": self.must, "should": self.should, "must_not": self.must_not}

    @model_validator(mode="after")
    def _bounded(self) -> Filter:
        depth, conditions = _size(self)
        if depth > MAX_DEPTH:
            raise ValueError(f"filters nest more than {MAX_DEPTH} deep")
        if conditions > MAX_CONDITIONS:
            raise ValueError(f"a filter has more than {MAX_CONDITIONS} conditions")
        return self


def _size(part: Condition | Filter) -> tuple[int, int]:
    """Depth in filters, and conditions."""
    if isinstance(part, Condition):
        return 0, 1
    sizes = [_size(clause) for clauses in part.clauses.values() for clause in clauses]
    return 1 + max((depth for depth, _ in sizes), default=0), sum(count for _, count in sizes)
