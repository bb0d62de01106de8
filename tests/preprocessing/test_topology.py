from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocessing import topology
from preprocessing.bundle import Topology
from preprocessing.topology import Direction, build_graph

SIZE = 6
ARCS = st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)), max_size=40)


def rows(csr: Topology) -> list[list[int]]:
    return [csr.neighbors(row).tolist() for row in range(csr.num_nodes)]


def heard(arcs: list[tuple[int, int]], direction: Direction) -> list[list[int]]:
    """Whom each node hears from, by the definition and with sets."""
    hears: list[set[int]] = [set() for _ in range(SIZE)]
    for source, target in arcs:
        if source != target:
            if direction in ("directed", "undirected"):
                hears[target].add(source)
            if direction in ("reverse", "undirected"):
                hears[source].add(target)
    return [sorted(row) for row in hears]


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("direction", ["undirected", "directed", "reverse"])
@given(arcs=ARCS)
def test_csr_and_counts_are_those_of_sets(index: type, direction: Direction, arcs: list[tuple[int, int]]) -> None:
    pairs = np.array(arcs, dtype=np.int64).reshape(-1, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topology, "index_dtype", lambda _: np.dtype(index))
        graph = build_graph(pairs[:, 0], pairs[:, 1], SIZE, direction)
    assert rows(graph.topology) == heard(arcs, direction)
    assert rows(graph.symmetric) == heard(arcs, "undirected")
    assert graph.topology.indices.dtype == index
    assert graph.topology.indptr.dtype == np.int64
    distinct = {arc for arc in arcs if arc[0] != arc[1]}
    unordered = {frozenset(arc) for arc in distinct}
    counts = graph.counts
    assert counts.given == len(arcs)
    assert counts.self_loops == sum(source == target for source, target in arcs)
    assert counts.given - counts.self_loops - counts.duplicate_edges == len(distinct)
    assert counts.reciprocal_edges == len(distinct) - len(unordered)
    assert counts.edges == len(unordered if direction == "undirected" else distinct)
    assert counts.arcs == sum(map(len, heard(arcs, direction)))
    assert counts.isolated == SIZE - len({node for arc in distinct for node in arc})


def test_undirected_topology_is_kept_once() -> None:
    graph = build_graph(np.array([0]), np.array([1]), 3, "undirected")
    assert graph.topology is graph.symmetric


def test_indices_are_int32_below_two_to_the_31_nodes() -> None:
    assert topology.index_dtype(2**31 - 1) == np.int32
    assert topology.index_dtype(2**31) == np.int64
