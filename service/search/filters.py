"""Filters on node attributes, evaluated to a mask over all nodes.

Columns are read as they lie in the bundle, mapped, a block at a time. A range becomes the inclusive [low, high] that
holds the same stored values, which leaves the marks of no value out by itself: −2^63 is below every low, and NaN is in
no range.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from preprocessing.attributes import Attribute, in_order, is_none
from preprocessing.bundle import Bundle
from preprocessing.errors import InputError
from preprocessing.settings import RESERVED_ATTRIBUTES
from service.search.filter_schemas import Condition, Filter, Match, Range
from service.search.matches import Matches

__all__ = ["Filters"]

MASK_BYTES = 64 << 20
BLOCK_ROWS = 1 << 20
NAMES_TOLD = 50
_INTEGERS = np.iinfo(np.int64)
DEGREE, LABEL = RESERVED_ATTRIBUTES

Mask = npt.NDArray[np.bool_]
Test = Callable[[slice], Mask]


@dataclass(frozen=True)
class _Column:
    """What conditions are tested on. ``read`` gives a block's stored values, ``absent`` where a block has none.

    ``code`` gives what a value of a request is stored as: ``KeyError`` for one that no node has, ``TypeError`` for one
    of another type, ``expected`` in words. Of several labels a node, ``read`` gives [B, C], true where it has label c.
    """

    read: Callable[[slice], npt.NDArray[Any]]
    absent: Test
    code: Callable[[Any], Any]
    expected: str
    ordered: bool = False
    several: bool = False


class Filters:
    """The filters of one graph; many threads may ask. The latest masks are kept, ``MASK_BYTES`` of them."""

    def __init__(self, bundle: Bundle) -> None:
        """``bundle`` holds the attributes; columns are opened when first asked for."""
        self._bundle = bundle
        self._columns: dict[str, _Column] = {}
        self._kept: OrderedDict[str, Matches] = OrderedDict()
        self._lock = threading.Lock()

    def matches(self, wanted: Filter) -> Matches:
        """The nodes that ``wanted`` lets through.

        ``InputError`` with a pointer for an attribute that there is not, or a value of another type than its;
        ``ArtifactError`` for one that cannot be read.
        """
        key = wanted.model_dump_json()
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        test = self._filter(wanted, "/filter")
        mask = np.empty(self._bundle.num_nodes, dtype=np.bool_)
        for start in range(0, len(mask), BLOCK_ROWS):
            span = slice(start, min(start + BLOCK_ROWS, len(mask)))
            mask[span] = test(span)
        matches = Matches(mask)
        with self._lock:
            self._kept[key] = matches
            while sum(kept.nbytes for kept in self._kept.values()) > MASK_BYTES:
                self._kept.popitem(last=False)
        return matches

    def _filter(self, wanted: Filter, pointer: str) -> Test:
        must, should, must_not = (
            [self._clause(clause, f"{pointer}/{name}/{number}") for number, clause in enumerate(clauses)]
            for name, clauses in wanted.clauses.items()
        )

        def test(span: slice) -> Mask:
            mask = np.ones(span.stop - span.start, dtype=np.bool_)
            for one in must:
                mask &= one(span)
            if should:
                mask &= np.logical_or.reduce([one(span) for one in should])
            for one in must_not:
                mask &= ~one(span)
            return mask

        return test

    def _clause(self, clause: Condition | Filter, pointer: str) -> Test:
        if isinstance(clause, Filter):
            return self._filter(clause, pointer)
        column = self._column(clause.key, f"{pointer}/key")
        if clause.match is not None:
            return _match(column, clause.match, f"{pointer}/match")
        if clause.range is not None:
            return _range(column, clause.range, f"{pointer}/range")
        return column.absent if clause.is_null else lambda span: ~column.absent(span)

    def _column(self, name: str, pointer: str) -> _Column:
        with self._lock:
            if name not in self._columns:
                self._columns[name] = self._open(name, pointer)
            return self._columns[name]

    def _open(self, name: str, pointer: str) -> _Column:
        if name == DEGREE:
            return _degree(self._bundle.symmetric.indptr.view(np.ndarray))
        if name in self._bundle.attributes:
            return _attribute(self._bundle.attribute(name))
        # The bundle keeps what it has read; one of its own lets go of it.
        fresh = Bundle(self._bundle.path)
        if name == LABEL and fresh.labels is not None:
            names = {text: code for code, text in enumerate(fresh.labels.names)}
            return _attribute(in_order(LABEL, fresh.labels.codes.astype(np.int32), names), of_label=True)
        if name == LABEL and fresh.label_sets is not None:
            sets = fresh.label_sets
            return _label_sets(sets.members, ~sets.labelled, sets.names)
        has = [*RESERVED_ATTRIBUTES] if (self._bundle.path / "labels.parquet").exists() else [DEGREE]
        told = list(islice((*has, *self._bundle.attributes), NAMES_TOLD))
        more = len(has) + len(self._bundle.attributes) - len(told)
        raise InputError(
            "the graph has no attribute of this name",
            expected="one of " + ", ".join(told) + (f" and {more} more" if more else ""),
            remedy="ingest the graph again with the column among its attributes, and train on it",
            pointer=pointer,
        )


def _attribute(attribute: Attribute, *, of_label: bool = False) -> _Column:
    values, kind = attribute.values.view(np.ndarray), attribute.type
    code, expected = {
        "integer": (_whole, "a whole number"),
        "number": (_float, "a number"),
        "boolean": (_truth, "true or false"),
        "string": (lambda given: _place(attribute.strings, _label(given) if of_label else _text(given)), "a text"),
    }[kind]
    return _Column(
        read=lambda span: values[span],
        absent=lambda span: is_none(values[span], kind),
        code=code,
        expected=expected,
        ordered=kind in ("integer", "number"),
    )


def _degree(indptr: npt.NDArray[np.int64]) -> _Column:
    return _Column(
        read=lambda span: np.diff(indptr[span.start : span.stop + 1]),
        absent=lambda span: np.zeros(span.stop - span.start, dtype=np.bool_),
        code=_whole,
        expected="a whole number",
        ordered=True,
    )


def _label_sets(members: Mask, absent: Mask, names: Sequence[str]) -> _Column:
    number = {name: column for column, name in enumerate(names)}
    return _Column(
        read=lambda span: members[span],
        absent=lambda span: absent[span],
        code=lambda given: number[_label(given)],
        expected="a text",
        several=True,
    )


def _match(column: _Column, wanted: Match, pointer: str) -> Test:
    given = [("value", wanted.value)] if wanted.any is None else [(f"any/{n}", v) for n, v in enumerate(wanted.any)]
    codes = []
    for place, value in given:
        try:
            codes.append(column.code(value))
        except KeyError:
            continue
        except TypeError as error:
            raise InputError(
                "the value is of another type than the attribute's",
                expected=column.expected,
                pointer=f"{pointer}/{place}",
            ) from error
    if not codes:
        return lambda span: np.zeros(span.stop - span.start, dtype=np.bool_)
    if column.several:
        return lambda span: np.logical_or.reduce(column.read(span)[:, codes], axis=1)
    if len(codes) == 1:
        return lambda span: column.read(span) == codes[0]
    stored = np.array(codes)
    return lambda span: np.isin(column.read(span), stored)


def _range(column: _Column, wanted: Range, pointer: str) -> Test:
    if not column.ordered:
        raise InputError(
            "the attribute has no order to be ranged by",
            expected="a range of an integer or a number",
            remedy="use match",
            pointer=pointer,
        )
    low, high = _floats(wanted) if column.code is _float else _integers(wanted)

    def test(span: slice) -> Mask:
        values = column.read(span)
        mask: Mask = (values >= low) & (values <= high)
        return mask

    if low > high:
        return lambda span: np.zeros(span.stop - span.start, dtype=np.bool_)
    return test


def _integers(wanted: Range) -> tuple[int, int]:
    """The smallest and largest int64 within the bounds; −2^63 stands for none and is never within."""
    lows, highs = [_INTEGERS.min + 1], [_INTEGERS.max]
    if wanted.gt is not None:
        lows.append(math.floor(wanted.gt) + 1)
    if wanted.gte is not None:
        lows.append(math.ceil(wanted.gte))
    if wanted.lt is not None:
        highs.append(math.ceil(wanted.lt) - 1)
    if wanted.lte is not None:
        highs.append(math.floor(wanted.lte))
    return max(lows), min(highs)


def _floats(wanted: Range) -> tuple[float, float]:
    """The smallest and largest float64 within the bounds, which may be integers that no float64 equals."""
    lows, highs = [-math.inf], [math.inf]
    for bound, inside in ((wanted.gt, False), (wanted.gte, True)):
        if bound is not None:
            near = _nearest_float(bound)
            lows.append(near if near > bound or (inside and near == bound) else math.nextafter(near, math.inf))
    for bound, inside in ((wanted.lt, False), (wanted.lte, True)):
        if bound is not None:
            near = _nearest_float(bound)
            highs.append(near if near < bound or (inside and near == bound) else math.nextafter(near, -math.inf))
    return max(lows), min(highs)


def _nearest_float(bound: float) -> float:
    try:
        return float(bound)
    except OverflowError:
        return math.inf if bound > 0 else -math.inf


def _whole(given: Any) -> int:
    if isinstance(given, bool | str) or given != math.floor(given):
        raise TypeError
    whole = int(given)
    if not _INTEGERS.min < whole <= _INTEGERS.max:
        raise KeyError
    return whole


def _float(given: Any) -> float:
    if isinstance(given, bool | str):
        raise TypeError
    near = _nearest_float(given)
    if near != given:
        raise KeyError
    return near


def _truth(given: Any) -> int:
    if not isinstance(given, bool):
        raise TypeError
    return int(given)


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise TypeError
    return given


def _label(given: Any) -> str:
    """Labels are texts; a number stands for its digits, as in ids."""
    return str(given) if isinstance(given, int) and not isinstance(given, bool) else _text(given)


def _place(strings: Any, wanted: str) -> int:
    """The code of a string: its place among the ascending ones; text orders as its UTF-8 bytes do."""
    low, high = 0, len(strings)
    while low < high:
        middle = (low + high) // 2
        if strings[middle].as_py() < wanted:
            low = middle + 1
        else:
            high = middle
    if low == len(strings) or strings[low].as_py() != wanted:
        raise KeyError
    return low
