"""Renumbering: the same graph under other numbers, and near ones for neighbours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ppr_cases import Edges, adjacency, graphs, random_adjacency, topology, weighted

from preprocessing.bundle import Topology
from preprocessing.locality import COMMUNITY, near_order, opened, renumber
from preprocessing.settings import PprSettings


def dense(graph: Topology) -> np.ndarray:
    matrix = np.zeros((graph.num_nodes, graph.num_nodes))
    for node in range(graph.num_nodes):
        row = slice(graph.indptr[node], graph.indptr[node + 1])
        assert (np.diff(graph.indices[row]) > 0).all()
        matrix[node, graph.indices[row]] = 1 if graph.weights is None else graph.weights[row]
    return matrix


def distance(graph: Topology) -> float:
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    return float(np.log2(1 + np.abs(rows - graph.indices)).mean())


@settings(deadline=None, max_examples=50)
@given(graphs(), st.sampled_from([None, 1]), st.integers(1, 3), st.sampled_from([np.int32, np.int64]))
def test_the_graph_is_the_same_under_its_new_numbers(
    graph: tuple[int, Edges], seed: int | None, threads: int, dtype: type[np.integer]
) -> None:
    matrix = adjacency(*graph) if seed is None else weighted(adjacency(*graph), seed)
    made = renumber(topology(matrix, dtype), PprSettings(), threads)
    assert sorted(made.order.tolist()) == list(range(graph[0]))
    assert made.topology.indices.dtype == dtype
    assert (dense(made.topology) == matrix.toarray()[np.ix_(made.order, made.order)]).all()


@pytest.mark.parametrize("seed", [None, 4])
def test_files_hold_the_same_and_are_whole_or_absent(
    tmp_path: Path, seed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = random_adjacency(50, 120, seed=2)
    graph = topology(matrix if seed is None else weighted(matrix, seed))
    with monkeypatch.context() as broken:
        broken.setattr(np, "save", lambda *_: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            renumber(graph, PprSettings(), 2, tmp_path / "graph")
    assert not (tmp_path / "graph").exists()
    held, written = renumber(graph, PprSettings(), 2), renumber(graph, PprSettings(), 2, tmp_path / "graph")
    assert isinstance(written.topology.indices, np.memmap)
    for made in (written, opened(tmp_path / "graph")):
        assert made.order.tolist() == held.order.tolist()
        assert (dense(made.topology) == dense(held.topology)).all()


def test_shuffled_communities_are_found() -> None:
    cliques, size = 60, 12
    edges = [(c * size + a, c * size + b) for c in range(cliques) for a in range(size) for b in range(a)]
    edges += [(c * size, (c + 7) % cliques * size + 1) for c in range(cliques)]
    shuffled = np.random.default_rng(0).permutation(cliques * size)
    graph = topology(adjacency(cliques * size, [(int(shuffled[a]), int(shuffled[b])) for a, b in edges]))
    assert distance(graph) > 7
    assert distance(renumber(graph, PprSettings(), 2).topology) < 3


def test_a_good_order_stays_and_a_community_has_a_bound() -> None:
    size = 3 * COMMUNITY
    path = topology(adjacency(size, [(a, a + 1) for a in range(size - 1)]))
    assert near_order(path).tolist() == list(range(size))
    star = topology(adjacency(size, [(size - 1, leaf) for leaf in range(size - 1)]))
    assert sorted(near_order(star).tolist()) == list(range(size))
