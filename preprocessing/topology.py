"""From arcs to CSR out of core: partition by row, sort a bucket at a time, append.

Every arc u → v is kept twice, as an entry of row u (outgoing) and of row v (incoming), in the bucket of that row. A
bucket is small enough to be sorted in memory; sorted, repeats are neighbours, the entries of either kind are one
direction's rows, and the distinct columns of both are the undirected ones. An entry is one unsigned number of 64 bits:
the row within its bucket, the column, and a last bit for incoming.

Both passes keep a journal: a killed build goes on at the block of arcs, or at the bucket, that it was at.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from numba import njit

from preprocessing.array_file import ArrayFile, mapped_npy
from preprocessing.bundle import Int64Array, IntArray
from preprocessing.journal import Journal

__all__ = ["ArcBuckets", "Direction", "EdgeCounts", "index_dtype", "write_topology"]

Direction = Literal["undirected", "directed", "reverse"]
Keys = npt.NDArray[np.uint64]
Float32Array = npt.NDArray[np.float32]

MAX_BUCKETS = 256
"""Open files, and the smallest pieces that a block is cut into."""
WORKING_COPIES = 6
"""Memory that a bucket takes while it is sorted and written, in times of its own size."""


@dataclass(frozen=True)
class EdgeCounts:
    """What became of the edges given: given = self_loops + duplicate_edges + distinct ordered pairs.

    ``edges`` are distinct ordered pairs under `directed` and `reverse`; under `undirected` they are unordered pairs,
    and then distinct ordered pairs = edges + reciprocal_edges.
    """

    given: int
    self_loops: int
    duplicate_edges: int
    reciprocal_edges: int
    edges: int
    arcs: int
    isolated: int


def index_dtype(num_nodes: int) -> np.dtype[Any]:
    """int32 below 2^31 nodes."""
    return np.dtype(np.int32 if num_nodes < 2**31 else np.int64)


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

        In a ``folder`` that a killed build left, ``blocks`` tells how many blocks are there already.
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
        self._journal.record(
            blocks=self.blocks, given=self.given, self_loops=self.self_loops, sizes=[len(file) for file in self._keys]
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


def write_topology(
    buckets: ArcBuckets, folder: Path, direction: Direction, progress: Callable[[int, int], None]
) -> EdgeCounts:
    """Write ``indptr.npy``, ``indices.npy`` and perhaps ``weights.npy`` into ``folder``; the answer is the counts.

    Row i lists whom i hears from: its sources (`directed`), its targets (`reverse`) or both (`undirected`). The two
    former have the undirected rows too, in ``folder/symmetric``. Repeated ordered pairs and self-loops are dropped and
    counted; the weights of repeats add up, and an undirected arc has the larger weight of its two directions.
    """
    layout = buckets.layout
    folder.mkdir(parents=True, exist_ok=True)
    journal = Journal(buckets.folder / "rows.json")
    state = journal.state or {"bucket": 0, "distinct": 0, "isolated": 0, "sizes": {}}
    kinds = {"undirected": ["union"], "directed": ["union", "incoming"], "reverse": ["union", "outgoing"]}[direction]
    folders = {kind: folder if kind == kinds[-1] else folder / "symmetric" for kind in kinds}
    files = {
        kind: _RowFiles.open(where, layout.num_nodes, state["sizes"].get(kind, 0), weighted=buckets.weighted)
        for kind, where in folders.items()
    }
    with contextlib.ExitStack() as stack:
        for file in files.values():
            stack.callback(file.close)
        for bucket in range(state["bucket"], layout.buckets):
            for first, rows, keys, weights in buckets.pieces(bucket):
                entries = _Entries.of(keys, weights)
                state["distinct"] += int(np.count_nonzero(~entries.incoming))
                for kind, file in files.items():
                    counts = file.append(first, rows, entries.only(kind), layout.bits)
                    state["isolated"] += int(np.count_nonzero(counts == 0)) if kind == "union" else 0
            state |= {"bucket": bucket + 1, "sizes": {kind: file.flush() for kind, file in files.items()}}
            journal.record(**state)
            progress(bucket + 1, layout.buckets)
        arcs = {kind: file.finish() for kind, file in files.items()}
    distinct, union = state["distinct"], arcs["union"]
    reciprocal = distinct - union // 2
    return EdgeCounts(
        given=buckets.given,
        self_loops=buckets.self_loops,
        duplicate_edges=buckets.given - buckets.self_loops - distinct,
        reciprocal_edges=reciprocal,
        edges=distinct - reciprocal if direction == "undirected" else distinct,
        arcs=arcs[kinds[-1]],
        isolated=state["isolated"],
    )


@dataclass(frozen=True)
class _Entries:
    """Distinct entries of a bucket, ascending: row and column in one number, direction, weight (repeats summed)."""

    place: Keys
    incoming: npt.NDArray[np.bool_]
    weight: Float32Array | None

    @classmethod
    def of(cls, keys: Keys, weights: Float32Array | None) -> _Entries:
        if weights is None:
            keys.sort()
        else:
            # By weight too: the sum of repeats must not depend on the order they came in.
            order = np.lexsort((weights, keys))
            keys, weights = keys[order], weights[order]
        fresh = np.ones(len(keys), dtype=np.bool_)
        np.not_equal(keys[1:], keys[:-1], out=fresh[1:])
        if weights is not None and len(keys):
            weights = np.add.reduceat(weights.astype(np.float64), np.flatnonzero(fresh)).astype(np.float32)
        keys = keys[fresh]
        return cls(keys >> np.uint64(1), (keys & np.uint64(1)).astype(np.bool_), weights)

    def only(self, kind: str) -> tuple[Keys, Float32Array | None]:
        """Places and weights of one direction, or of the union of both."""
        if kind != "union":
            chosen = self.incoming if kind == "incoming" else ~self.incoming
            return self.place[chosen], None if self.weight is None else self.weight[chosen]
        fresh = np.ones(len(self.place), dtype=np.bool_)
        np.not_equal(self.place[1:], self.place[:-1], out=fresh[1:])
        weight = self.weight
        if weight is not None and len(weight):
            weight = np.maximum.reduceat(weight, np.flatnonzero(fresh))
        return self.place[fresh], weight


@dataclass
class _RowFiles:
    """A CSR in the making."""

    indptr: np.memmap[Any, Any]
    indices: ArrayFile
    weights: ArrayFile | None

    @classmethod
    def open(cls, folder: Path, num_nodes: int, size: int, *, weighted: bool) -> _RowFiles:
        folder.mkdir(exist_ok=True)
        file = folder / "indptr.npy"
        if size == 0:
            mapped_npy(file, np.int64, (num_nodes + 1,))
        return cls(
            np.load(file, mmap_mode="r+", allow_pickle=False),
            ArrayFile(folder / "indices.npy", index_dtype(num_nodes), size, npy=True),
            ArrayFile(folder / "weights.npy", np.float32, size, npy=True) if weighted else None,
        )

    def append(self, first: int, rows: int, entries: tuple[Keys, Float32Array | None], bits: int) -> Int64Array:
        """The rows from ``first`` on; the answer is the entries of each, [rows]."""
        place, weight = entries
        shift = np.uint64(bits - 1)
        counts = np.bincount((place >> shift).astype(np.int64), minlength=rows)
        self.indptr[first + 1 : first + rows + 1] = len(self.indices) + np.cumsum(counts)
        self.indices.append((place & ((np.uint64(1) << shift) - np.uint64(1))).astype(self.indices.dtype))
        if self.weights is not None and weight is not None:
            self.weights.append(weight)
        return counts

    def flush(self) -> int:
        self.indices.flush()
        if self.weights is not None:
            self.weights.flush()
        return len(self.indices)

    def finish(self) -> int:
        self.indptr.flush()
        self.indices.finish()
        if self.weights is not None:
            self.weights.finish()
        return len(self.indices)

    def close(self) -> None:
        self.indices.close()
        if self.weights is not None:
            self.weights.close()


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
