"""Arcs on disk, partitioned by the rows they belong to, so that any part can be sorted in memory.

Every arc u → v is kept twice, as an entry of row u (outgoing) and of row v (incoming), in the bucket of that row. An
entry is one unsigned number of 64 bits: the row within its bucket, the column, and a last bit for incoming.

A journal tells how many blocks of arcs are in: a killed build goes on at the block it was at.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from numba import njit

from preprocessing.array_file import ArrayFile
from preprocessing.array_types import Float32Array, Int64Array, IntArray
from preprocessing.journal import Journal

__all__ = ["WORKING_COPIES", "ArcBuckets", "Keys"]

Keys = npt.NDArray[np.uint64]

MAX_BUCKETS = 256
"""Open files, and the smallest pieces that a block is cut into."""
WORKING_COPIES = 6
"""Memory that two pieces take, one while it is sorted and one while it is written, in times of the size of one."""


@dataclass(frozen=True)
class _Layout:
    """How entries are packed: ``rows`` a bucket, and the bits of a column with its direction."""

    num_nodes: int
    rows: int
    bits: int

    @classmethod
    def of(cls, num_nodes: int, buckets: int) -> _Layout:
        bits = num_nodes.bit_length() + 1
        return cls(num_nodes, min(max(-(-num_nodes // buckets), 1), 1 << (64 - bits)), bits)

    @property
    def buckets(self) -> int:
        return max(-(-self.num_nodes // self.rows), 1)


class ArcBuckets:
    """Arcs on disk, by the rows they belong to. ``add`` block after block; then ``write_topology``."""

    def __init__(self, folder: Path, num_nodes: int, expected_arcs: int, memory: int, *, weighted: bool) -> None:
        """``memory`` bytes bound what is held at once; ``expected_arcs`` may be an estimate.

        In a ``folder`` that a killed build left, ``blocks`` tells how many blocks are there already, and ``whole``
        that there are no more.
        """
        folder.mkdir(exist_ok=True)
        self.folder, self.weighted = folder, weighted
        entry = 12 if weighted else 8
        wanted = math.ceil(2 * expected_arcs * entry * WORKING_COPIES / memory)
        self.largest = max(memory // (entry * WORKING_COPIES), 1)
        self.layout = _Layout.of(num_nodes, min(max(wanted, 1), MAX_BUCKETS))
        self._journal = Journal(folder / "journal.json")
        state = self._journal.state
        self.blocks: int = state.get("blocks", 0)
        self.given: int = state.get("given", 0)
        self.self_loops: int = state.get("self_loops", 0)
        self.whole: bool = state.get("whole", False)
        sizes = state.get("sizes", [0] * self.layout.buckets)
        self._keys = [ArrayFile(folder / f"{i:05d}.keys", np.uint64, size) for i, size in enumerate(sizes)]
        self._weights = [
            ArrayFile(folder / f"{i:05d}.weights", np.float32, size) for i, size in enumerate(sizes) if weighted
        ]

    def add(self, source: IntArray, target: IntArray, weights: Float32Array | None = None) -> None:
        """One block of arcs, rows [B] each; self-loops are counted and left out."""
        loops = int(np.count_nonzero(source == target))
        ends = np.zeros(self.layout.buckets + 1, dtype=np.int64)
        source, target = (np.ascontiguousarray(end, dtype=np.int64) for end in (source, target))
        _count(source, target, self.layout.rows, ends)
        np.cumsum(ends, out=ends)
        keys = np.empty(ends[-1], dtype=np.uint64)
        origin = np.empty(ends[-1] if weights is not None else 0, dtype=np.int64)
        _scatter(source, target, self.layout.rows, self.layout.bits, ends[:-1].copy(), keys, origin)
        for bucket, (first, end) in enumerate(itertools.pairwise(ends.tolist())):
            self._keys[bucket].append(keys[first:end])
            if weights is not None:
                self._weights[bucket].append(weights[origin[first:end]])
        self.blocks += 1
        self.given += len(source)
        self.self_loops += loops
        for file in (*self._keys, *self._weights):
            file.flush()
        self._record()

    def close_intake(self) -> None:
        """All arcs are in: a build that goes on need not read them again (``whole``)."""
        self.whole = True
        self._record()

    def _record(self) -> None:
        self._journal.record(
            blocks=self.blocks,
            given=self.given,
            self_loops=self.self_loops,
            whole=self.whole,
            sizes=[len(file) for file in self._keys],
        )

    def pieces(self, bucket: int) -> Iterator[tuple[int, int, Keys, Float32Array | None]]:
        """The bucket's rows, by ranges whose entries fit into memory: first row, number of rows, entries unsorted.

        One range, unless a bucket is far above the expected size; a single row is never split.
        """
        first = bucket * self.layout.rows
        rows = min(self.layout.rows, self.layout.num_nodes - first)
        keys = self._keys[bucket].array()
        weights = self._weights[bucket].array() if self.weighted else None
        if len(keys) <= self.largest:
            yield first, rows, np.array(keys), None if weights is None else np.array(weights)
            return
        shift = np.uint64(self.layout.bits)
        load = np.zeros(rows, dtype=np.int64)
        for block in _blocks(len(keys), self.largest):
            load += np.bincount((keys[block] >> shift).astype(np.int64), minlength=rows)
        for begin, end in _ranges(load, self.largest):
            chosen = [
                block.start + np.flatnonzero((keys[block] >> shift >= begin) & (keys[block] >> shift < end))
                for block in _blocks(len(keys), self.largest)
            ]
            places = np.concatenate(chosen)
            part = keys[places] - (np.uint64(begin) << shift)
            yield first + begin, end - begin, part, None if weights is None else weights[places]

    def __enter__(self) -> ArcBuckets:
        return self

    def __exit__(self, *_: object) -> None:
        for file in (*self._keys, *self._weights):
            file.close()


def _blocks(size: int, length: int) -> Iterator[slice]:
    for first in range(0, size, length):
        yield slice(first, min(first + length, size))


def _ranges(load: Int64Array, largest: int) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of rows of at most ``largest`` entries, or of one row."""
    begin, total = 0, 0
    for row, entries in enumerate(load.tolist()):
        if row > begin and total + entries > largest:
            yield begin, row
            begin, total = row, 0
        total += entries
    yield begin, len(load)


@njit("void(i8[::1], i8[::1], i8, i8[::1])", nogil=True, cache=True)
def _count(source: Int64Array, target: Int64Array, rows: int, ends: Int64Array) -> None:
    for arc in range(len(source)):
        if source[arc] != target[arc]:
            ends[source[arc] // rows + 1] += 1
            ends[target[arc] // rows + 1] += 1


@njit("void(i8[::1], i8[::1], i8, i8, i8[::1], u8[::1], i8[::1])", nogil=True, cache=True)
def _scatter(
    source: Int64Array, target: Int64Array, rows: int, bits: int, cursor: Int64Array, keys: Keys, origin: Int64Array
) -> None:
    """Both entries of every arc into their buckets; ``origin``, unless empty, is the arc each comes from."""
    for arc in range(len(source)):
        if source[arc] == target[arc]:
            continue
        for incoming in range(2):
            row, column = (target[arc], source[arc]) if incoming else (source[arc], target[arc])
            bucket = row // rows
            place = cursor[bucket]
            keys[place] = (np.uint64(row - bucket * rows) << np.uint64(bits)) | np.uint64(2 * column + incoming)
            if len(origin) > 0:
                origin[place] = arc
            cursor[bucket] += 1
