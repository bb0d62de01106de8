"""Rows of many string ids at once, among ids that lie sorted in a file.

A batch is searched in about its own order of bytes, each search going on from where the last one ended: neighbouring
searches touch neighbouring ids, and nothing is held beside the batch.
"""

from __future__ import annotations

from itertools import takewhile

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit, types

from preprocessing.array_file import read_only
from preprocessing.array_types import Int64Array

__all__ = ["StringLookup"]

_INT64S, _BYTES = (types.Array(number, 1, "C", readonly=True) for number in (types.int64, types.uint8))


class StringLookup:
    """Finds rows in ``ids`` [N], an ascending Arrow ``large_string`` array without nulls."""

    def __init__(self, ids: pa.Array) -> None:
        """O(1): an array that is mapped from a file stays there."""
        self._starts, self._data = _buffers(ids)
        self._common = _common(ids[0].as_py().encode(), ids[-1].as_py().encode()) if len(ids) else 0

    def rows(self, wanted: pa.Array) -> Int64Array:
        """Row of each of ``wanted`` [B], a ``large_string`` array without nulls; −1 where it is unknown."""
        starts, data = _buffers(wanted)
        keys = np.empty(len(wanted), dtype=np.uint64)
        _next_bytes(starts, data, self._common, keys)
        rows = np.empty(len(wanted), dtype=np.int64)
        _search(self._starts, self._data, starts, data, np.argsort(keys), rows)
        return rows


def _common(first: bytes, last: bytes) -> int:
    """How many bytes all ids from the first to the last begin with: these tell none from another."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))


def _buffers(strings: pa.Array) -> tuple[Int64Array, npt.NDArray[np.uint8]]:
    """Where each string begins and the last one ends, [B + 1], and all bytes."""
    _, starts, data = strings.buffers()
    first = np.frombuffer(starts, dtype=np.int64)[strings.offset : strings.offset + len(strings) + 1]
    return read_only(first), read_only(np.frombuffer(data or b"", dtype=np.uint8))


@njit(types.void(_INT64S, _BYTES, types.int64, types.uint64[::1]), nogil=True, cache=True)
def _next_bytes(starts: Int64Array, data: npt.NDArray[np.uint8], skip: int, keys: npt.NDArray[np.uint64]) -> None:
    """The eight bytes after the first ``skip`` of every string, as one number: a larger one, a later string."""
    for i in range(len(keys)):
        key = np.uint64(0)
        for place in range(starts[i] + skip, starts[i] + skip + 8):
            byte = np.uint64(data[place]) if place < starts[i + 1] else np.uint64(0)
            key = (key << np.uint64(8)) | byte
        keys[i] = key


@njit(
    types.int64(_INT64S, _BYTES, types.int64, _INT64S, _BYTES, types.int64),
    nogil=True,
    cache=True,
)
def _compare(
    starts: Int64Array,
    data: npt.NDArray[np.uint8],
    i: int,
    other_starts: Int64Array,
    other_data: npt.NDArray[np.uint8],
    j: int,
) -> int:
    """Negative, 0 or positive as string i comes before, is, or comes after the other's string j, by bytes."""
    a, b = starts[i], other_starts[j]
    length, other_length = starts[i + 1] - a, other_starts[j + 1] - b
    for place in range(min(length, other_length)):
        difference = int(data[a + place]) - int(other_data[b + place])
        if difference != 0:
            return difference
    return int(length - other_length)


@njit(
    types.void(_INT64S, _BYTES, _INT64S, _BYTES, types.int64[::1], types.int64[::1]),
    nogil=True,
    cache=True,
)
def _search(
    starts: Int64Array,
    data: npt.NDArray[np.uint8],
    wanted_starts: Int64Array,
    wanted_data: npt.NDArray[np.uint8],
    order: Int64Array,
    rows: Int64Array,
) -> None:
    """Gallop from the last row found, then bisect."""
    size = len(starts) - 1
    last = 0
    for wanted in order:
        # Ids before low are smaller; the id at high is not, or high is the end.
        low, high = 0, size
        if last < size and _compare(starts, data, last, wanted_starts, wanted_data, wanted) <= 0:
            low, step = last, 1
            while low + step < size and _compare(starts, data, low + step, wanted_starts, wanted_data, wanted) < 0:
                low += step
                step *= 2
            high = min(low + step, size)
        while low < high:
            middle = (low + high) // 2
            if _compare(starts, data, middle, wanted_starts, wanted_data, wanted) < 0:
                low = middle + 1
            else:
                high = middle
        last = low
        found = low < size and _compare(starts, data, low, wanted_starts, wanted_data, wanted) == 0
        rows[wanted] = low if found else -1
