from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ppr_cases import (
    NAMED,
    Edges,
    adjacency,
    arcs_of,
    check_claims,
    dense_ppr,
    graphs,
    random_adjacency,
    sources_of,
    topology,
    weighted,
)

from preprocessing.bundle import Topology
from preprocessing.chebyshev import Block, solve_rows
from preprocessing.settings import PprSettings
from preprocessing.workspace import Rows, Rule, Workspace


def solve_all(graph: Topology, settings: PprSettings, patience: int = 0, nodes: range | None = None) -> Rows:
    """Every row, all of them solved in lanes but those that the first push proves."""
    nodes = range(graph.num_nodes) if nodes is None else nodes
    arcs, rule = arcs_of(graph, settings), Rule.of(settings, patience)
    rows = Rows.empty(len(nodes), settings.top_k)
    solve_rows(arcs, Workspace.of(arcs), rule, Block.of(graph.num_nodes), sources_of(*nodes), rows)
    return rows


@settings(deadline=None, max_examples=100)
@given(
    graphs(),
    st.builds(
        PprSettings,
        top_k=st.integers(1, 8),
        teleport=st.sampled_from([0.05, 0.15, 0.5, 0.9]),
        self_loops=st.booleans(),
        include_self=st.booleans(),
        epsilon=st.sampled_from([0.9, 1e-2]),
        epsilon_floor=st.just(1e-3),
    ),
    st.sampled_from([None, 0, 1]),
)
def test_rows_keep_their_claims_on_any_graph(graph: tuple[int, Edges], rule: PprSettings, seed: int | None) -> None:
    matrix = adjacency(*graph) if seed is None else weighted(adjacency(*graph), seed)
    rows = solve_all(topology(matrix), rule)
    S = dense_ppr(matrix, rule.teleport, rule.self_loops)
    check_claims(rows, S, rule)
    reach = (S > 0).sum(axis=1) - (not rule.include_self)
    whole = (S > 1e-10).sum(axis=1) - (not rule.include_self) >= rule.top_k
    assert (reach >= rows.counts).all()
    assert (rows.exact | rows.tied)[whole].all()


@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("seed", [None, 3])
def test_a_graph_without_symmetry_is_proved_whole(self_loops: bool, seed: int | None) -> None:
    matrix = random_adjacency(120, 300, seed=7)
    matrix = matrix if seed is None else weighted(matrix, seed)
    rule = PprSettings(top_k=5, self_loops=self_loops)
    rows = solve_all(topology(matrix), rule)
    S = dense_ppr(matrix, 0.15, self_loops)
    check_claims(rows, S, rule)
    connected = np.diff(matrix.indptr) > 0
    assert (rows.exact | rows.tied)[connected].all()
    assert np.count_nonzero(rows.exact & ~rows.tied) > 100
    assert (rows.visits[connected] >= 5 * matrix.nnz).mean() > 0.3


@pytest.mark.parametrize("name", ["star", "clique", "path", "cycle", "open twins under two hubs"])
def test_ties_are_told(name: str) -> None:
    matrix = adjacency(*NAMED[name])
    S = dense_ppr(matrix, 0.15, True)
    for top_k in (1, 2, 3, 4):
        rows = solve_all(topology(matrix), PprSettings(top_k=top_k))
        ranked = -np.sort(-S, axis=1)
        assert rows.tied.tolist() == (ranked[:, top_k - 1] - ranked[:, top_k] < 1e-12).tolist()
        assert (rows.exact | rows.tied).all()


def test_a_row_does_not_depend_on_its_company() -> None:
    graph, rule = topology(random_adjacency(200, 500, seed=8)), PprSettings(top_k=6)
    whole = solve_all(graph, rule)
    for nodes in (range(17, 18), range(90, 103)):
        some = solve_all(graph, rule, nodes=nodes)
        for name, array in whole._asdict().items():
            assert array[nodes.start : nodes.stop].tobytes() == getattr(some, name).tobytes()
