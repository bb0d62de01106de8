"""From arcs to CSR: a counting sort each way and a merge, so time and memory are a small constant times the edges.

Entries of a transposed CSR come out ascending in every row. Hence two transpositions sort any list of arcs, and the
union of both directions is one merge of sorted rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from numba import njit

from preprocessing.bundle import Int64Array, IntArray, Topology

__all__ = ["Direction", "EdgeCounts", "Graph", "build_graph", "index_dtype"]

AnyArray = npt.NDArray[Any]
Direction = Literal["undirected", "directed", "reverse"]


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


@dataclass(frozen=True)
class Graph:
    """``topology`` is what messages follow; ``symmetric`` the undirected graph (the same object if undirected)."""

    topology: Topology
    symmetric: Topology
    counts: EdgeCounts


def index_dtype(num_nodes: int) -> np.dtype[Any]:
    """int32 below 2^31 nodes."""
    return np.dtype(np.int32 if num_nodes < 2**31 else np.int64)


def build_graph(source: IntArray, target: IntArray, num_nodes: int, direction: Direction) -> Graph:
    """CSR of the arcs ``source[e]`` → ``target[e]`` (rows, [E] each) under a direction policy.

    Row i of ``topology`` lists whom i hears from: its sources (`directed`), its targets (`reverse`) or both
    (`undirected`). Repeated ordered pairs and self-loops are dropped and counted.
    """
    dtype = index_dtype(num_nodes)
    source = np.ascontiguousarray(source, dtype=dtype)
    target = np.ascontiguousarray(target, dtype=dtype)
    by_source = _grouped(source, target, num_nodes)
    incoming = _without_repeats(_transposed(by_source))
    del by_source
    outgoing = _transposed(incoming)
    symmetric = _union(incoming, outgoing)
    loops = int(np.count_nonzero(source == target))
    distinct = incoming.num_arcs
    reciprocal = distinct - symmetric.num_arcs // 2
    topology = {"undirected": symmetric, "directed": incoming, "reverse": outgoing}[direction]
    counts = EdgeCounts(
        given=len(source),
        self_loops=loops,
        duplicate_edges=len(source) - loops - distinct,
        reciprocal_edges=reciprocal,
        edges=distinct - reciprocal if direction == "undirected" else distinct,
        arcs=topology.num_arcs,
        isolated=int(np.count_nonzero(symmetric.degrees() == 0)),
    )
    return Graph(topology, symmetric, counts)


def _grouped(source: IntArray, target: IntArray, num_nodes: int) -> Topology:
    """Row i: targets of i in the order given, self-loops left out."""
    indptr = _indptr(source[source != target], num_nodes)
    indices = np.empty(indptr[-1], dtype=source.dtype)
    _scatter_arcs(source, target, indptr[:-1].copy(), indices)
    return Topology(indptr, indices)


def _transposed(csr: Topology) -> Topology:
    indptr = _indptr(csr.indices, csr.num_nodes)
    indices = np.empty_like(csr.indices)
    _scatter_rows(csr.indptr, csr.indices, indptr[:-1].copy(), indices)
    return Topology(indptr, indices)


def _without_repeats(csr: Topology) -> Topology:
    """Rows are ascending: repeats are neighbours. Works in place and hands back a shorter view."""
    indptr = np.zeros_like(csr.indptr)
    _squeeze(csr.indptr, csr.indices, indptr)
    return Topology(indptr, csr.indices[: indptr[-1]])


def _union(a: Topology, b: Topology) -> Topology:
    indptr = np.zeros_like(a.indptr)
    indices = np.empty(a.num_arcs + b.num_arcs, dtype=a.indices.dtype)
    _merge(a.indptr, a.indices, b.indptr, b.indices, indptr, indices)
    return Topology(indptr, indices[: indptr[-1]])


def _indptr(rows: AnyArray, num_nodes: int) -> Int64Array:
    indptr = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=num_nodes), out=indptr[1:])
    return indptr


@njit(["void(i4[::1], i4[::1], i8[::1], i4[::1])", "void(i8[::1], i8[::1], i8[::1], i8[::1])"], nogil=True, cache=True)
def _scatter_arcs(source: AnyArray, target: AnyArray, cursor: Int64Array, indices: AnyArray) -> None:
    for e in range(len(source)):
        row = source[e]
        if row != target[e]:
            indices[cursor[row]] = target[e]
            cursor[row] += 1


@njit(["void(i8[::1], i4[::1], i8[::1], i4[::1])", "void(i8[::1], i8[::1], i8[::1], i8[::1])"], nogil=True, cache=True)
def _scatter_rows(indptr: Int64Array, indices: AnyArray, cursor: Int64Array, transposed: AnyArray) -> None:
    for row in range(len(indptr) - 1):
        for e in range(indptr[row], indptr[row + 1]):
            column = indices[e]
            transposed[cursor[column]] = row
            cursor[column] += 1


@njit(["void(i8[::1], i4[::1], i8[::1])", "void(i8[::1], i8[::1], i8[::1])"], nogil=True, cache=True)
def _squeeze(indptr: Int64Array, indices: AnyArray, new_indptr: Int64Array) -> None:
    end = 0
    for row in range(len(indptr) - 1):
        begin = end
        for e in range(indptr[row], indptr[row + 1]):
            if end == begin or indices[end - 1] != indices[e]:
                indices[end] = indices[e]
                end += 1
        new_indptr[row + 1] = end


@njit(
    [
        "void(i8[::1], i4[::1], i8[::1], i4[::1], i8[::1], i4[::1])",
        "void(i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1])",
    ],
    nogil=True,
    cache=True,
)
def _merge(
    indptr_a: Int64Array,
    indices_a: AnyArray,
    indptr_b: Int64Array,
    indices_b: AnyArray,
    indptr: Int64Array,
    indices: AnyArray,
) -> None:
    end = 0
    for row in range(len(indptr) - 1):
        a, last_a = indptr_a[row], indptr_a[row + 1]
        b, last_b = indptr_b[row], indptr_b[row + 1]
        while a < last_a or b < last_b:
            take_a = b == last_b or (a < last_a and indices_a[a] <= indices_b[b])
            take_b = a == last_a or (b < last_b and indices_b[b] <= indices_a[a])
            indices[end] = indices_a[a] if take_a else indices_b[b]
            end += 1
            a += take_a
            b += take_b
        indptr[row + 1] = end
