"""From arcs to CSR out of core: partition by row, sort a bucket at a time, append.

Sorted, repeats are neighbours; the entries of either direction are its rows, and the distinct columns of both are the
undirected ones. A journal tells how many buckets are written: a killed build goes on at the bucket it was at.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from numba import njit

from preprocessing.arc_buckets import ArcBuckets, Keys
from preprocessing.array_file import ArrayFile, mapped_npy
from preprocessing.array_types import Float32Array, Int64Array
from preprocessing.errors import InputError
from preprocessing.journal import Journal
from preprocessing.prefetch import ahead

__all__ = ["Direction", "EdgeCounts", "index_dtype", "write_topology"]

Direction = Literal["undirected", "directed", "reverse"]

KINDS = ("outgoing", "incoming", "union")
UNION = 2


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
        coming = stack.enter_context(contextlib.closing(ahead(_sorted(buckets, state["bucket"]))))
        for bucket, entries in coming:
            if entries is not None:
                state["distinct"] += entries.outgoing
                for kind, file in files.items():
                    counts = file.append(kind, entries, layout.bits)
                    state["isolated"] += int(np.count_nonzero(counts == 0)) if kind == "union" else 0
                continue
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


def _sorted(buckets: ArcBuckets, begin: int) -> Iterator[tuple[int, _Entries | None]]:
    """The pieces of every bucket, and None where a bucket ends."""
    for bucket in range(begin, buckets.layout.buckets):
        for piece in buckets.pieces(bucket):
            yield bucket, _Entries.of(*piece)
        yield bucket, None


@dataclass(frozen=True)
class _Entries:
    """Distinct entries of some rows, ascending, and their weights (repeats summed; empty where every edge is 1)."""

    first: int
    rows: int
    keys: Keys
    weights: Float32Array
    outgoing: int

    @classmethod
    def of(cls, first: int, rows: int, keys: Keys, weights: Float32Array | None) -> _Entries:
        """Sorts ``keys`` in place where there are no weights."""
        if weights is None:
            keys.sort()
            weights = np.empty(0, dtype=np.float32)
        else:
            order = np.argsort(keys)
            keys, weights = keys[order], weights[order]
        distinct, outgoing = _squeeze(keys, weights)
        if not np.isfinite(weights[:distinct]).all():
            raise InputError(
                "the weights of an edge that is given several times add up to more than float32 holds",
                where="the edges",
                expected="sums below 3.4e38",
                remedy="divide all weights by one number",
            )
        return cls(first, rows, keys[:distinct], weights[:distinct], outgoing)


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

    def append(self, kind: str, entries: _Entries, bits: int) -> Int64Array:
        """The rows of one direction, or the union of both; the answer is the entries of each, [rows]."""
        counts = np.zeros(entries.rows, dtype=np.int64)
        indices = np.empty(len(entries.keys), dtype=self.indices.dtype)
        weights = np.empty_like(entries.weights)
        size = _extract(entries.keys, entries.weights, KINDS.index(kind), bits, counts, indices, weights)
        first, end = entries.first + 1, entries.first + 1 + entries.rows
        np.cumsum(counts, out=self.indptr[first:end])
        self.indptr[first:end] += len(self.indices)
        self.indices.append(indices[:size])
        if self.weights is not None:
            self.weights.append(weights[:size])
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


@njit("UniTuple(i8, 2)(u8[::1], f4[::1])", nogil=True, cache=True)
def _squeeze(keys: Keys, weights: Float32Array) -> tuple[int, int]:
    """Ascending keys made distinct in place, weights of equal ones summed; how many there are, and how many outgoing.

    Equal keys' weights are summed from the least to the largest: the order they came in must not matter.
    """
    end, outgoing, first = 0, 0, 0
    for entry in range(1, len(keys) + 1):
        if entry < len(keys) and keys[entry] == keys[first]:
            continue
        keys[end] = keys[first]
        if not keys[first] & np.uint64(1):
            outgoing += 1
        if len(weights) > 0:
            if entry - first > 2:
                weights[first:entry].sort()
            total = 0.0
            for repeat in range(first, entry):
                total += weights[repeat]
            weights[end] = np.float32(total)
        end += 1
        first = entry
    return end, outgoing


@njit(
    [f"i8(u8[::1], f4[::1], i8, i8, i8[::1], {index}[::1], f4[::1])" for index in ("i4", "i8")],
    nogil=True,
    cache=True,
)
def _extract(
    keys: Keys,
    weights: Float32Array,
    kind: int,
    bits: int,
    counts: Int64Array,
    indices: npt.NDArray[Any],
    chosen_weights: Float32Array,
) -> int:
    """Columns, weights and counts by row of the entries of a kind; the answer is how many there are."""
    end = 0
    columns = (np.uint64(1) << np.uint64(bits - 1)) - np.uint64(1)
    for entry in range(len(keys)):
        place = keys[entry] >> np.uint64(1)
        if kind == UNION:
            if entry > 0 and keys[entry - 1] >> np.uint64(1) == place:
                if len(weights) > 0:
                    chosen_weights[end - 1] = max(chosen_weights[end - 1], weights[entry])
                continue
        elif np.int64(keys[entry] & np.uint64(1)) != kind:
            continue
        counts[np.int64(place >> np.uint64(bits - 1))] += 1
        indices[end] = place & columns
        if len(weights) > 0:
            chosen_weights[end] = weights[entry]
        end += 1
    return end
