from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from ppr_cases import (
    NAMED,
    Edges,
    adjacency,
    check_claims,
    dense_ppr,
    fill,
    push_all,
    random_adjacency,
    topology,
    twin_graphs,
    weighted,
)

from preprocessing.settings import PprSettings


@settings(deadline=None, max_examples=100)
@given(twin_graphs(), st.integers(1, 5), st.booleans(), st.sampled_from([0, 10**6]), st.sampled_from([None, 1]))
def test_twins_rows_are_exchanged(
    graph: tuple[int, Edges], top_k: int, include_self: bool, exact_arcs: int, seed: int | None
) -> None:
    matrix = adjacency(*graph) if seed is None else weighted(adjacency(*graph), seed)
    rule = PprSettings(top_k=top_k, include_self=include_self, exact_arcs=exact_arcs)
    rows = fill(topology(matrix), rule)
    own = push_all(topology(matrix), rule.model_copy(update={"epsilon_floor": 1e-9}))
    check_claims(rows, dense_ppr(matrix, 0.15, True), rule)
    # Of tied nodes any may be kept.
    proved = rows.exact & own.exact & ~rows.tied & ~own.tied
    exchanged, computed = (np.sort(some.neighbors[proved], axis=1).tolist() for some in (rows, own))
    assert exchanged == computed


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("top_k", [1, 3, 12])
def test_special_graphs(name: str, top_k: int) -> None:
    matrix = adjacency(*NAMED[name])
    rule = PprSettings(top_k=top_k)
    rows = fill(topology(matrix), rule)
    check_claims(rows, dense_ppr(matrix, 0.15, True), rule)
    assert (rows.exact | rows.tied).all()


def test_small_graphs_are_exact_and_what_bounds_the_cost_of_a_row_takes_that_away() -> None:
    matrix = random_adjacency(3000, 12_000, seed=9)
    coarse = {"top_k": 8, "epsilon": 1e-2, "epsilon_floor": 1e-2}
    small = fill(topology(matrix), PprSettings(**coarse), 0, 300)
    assert (small.exact | small.tied).all()
    for bound in ({"exact_arcs": 0}, {"edge_budget": 10**9}, {"hub_cap": 2000}):
        rows = fill(topology(matrix), PprSettings(**coarse, **bound), 0, 300)
        assert (rows.exact | rows.tied).mean() < 0.5
        assert rows.visits.max() < small.visits.max()


@pytest.mark.parametrize("records", [0, 1 << 25])
@pytest.mark.parametrize("leaves", [80_000, pytest.param(1_100_000, marks=pytest.mark.slow)])
def test_a_hub_of_most_nodes(leaves: int, records: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A star beside nodes without an edge, whose rows are known in closed form; hashed, its table has to grow."""
    monkeypatch.setattr("preprocessing.row_solver.DENSE_RECORDS", records)
    matrix = adjacency(leaves + 10_000, [(7, leaf) for leaf in range(leaves)])
    rows = fill(topology(matrix), PprSettings(top_k=4, exact_arcs=0, epsilon=1e-4, epsilon_floor=1e-9), 0, 9)
    assert rows.neighbors[7].tolist() == [7, 0, 1, 2]
    assert rows.neighbors[8].tolist() == [8, 7, 0, 1]
    assert (rows.exact & rows.tied).all()
    d = float(leaves)
    hub = 0.15 / (1 - 0.85 / d - 0.85**2 * (d - 1) / (2 * d) / (1 - 0.85 / 2))
    spoke = 0.85 / np.sqrt(2 * d) * hub / (1 - 0.85 / 2)
    own = (0.15 + 0.85 / np.sqrt(2 * d) * spoke) / (1 - 0.85 / 2)
    other = 0.85 / np.sqrt(2 * d) * spoke / (1 - 0.85 / 2)
    for row, truth in ((7, [hub, spoke, spoke, spoke]), (8, [own, spoke, other, other])):
        short = np.array(truth) - rows.scores[row]
        assert (short >= -1e-13).all()
        assert (short <= rows.error[row] + 1e-13).all()
    assert rows.error[8] < 1e-3


def test_nodes_without_an_edge_have_themselves() -> None:
    rows = fill(topology(adjacency(70, [])), PprSettings(top_k=2), 3)
    assert rows.neighbors.tolist() == [[node, -1] for node in range(3, 70)]
    assert rows.scores.tolist() == [[1.0, 0.0]] * 67
    assert rows.exact.all()


def test_a_copied_row_keeps_each_score_beside_its_node() -> None:
    """Weights so far apart that rounding takes more off a score than lies between it and the next."""
    drawn, size = np.random.default_rng(7565), 13
    weights = np.zeros((size, size))
    for a, b in drawn.integers(0, size - 1, (2 * size, 2)):
        weights[a, b] = 10.0 ** drawn.uniform(-14, 0)
    weights = np.triu(np.maximum(weights, weights.T), 1)
    weights += weights.T
    weights[-1], weights[:, -1] = weights[0], weights[:, 0]
    weights[-1, -1] = weights[0, -1] = weights[-1, 0] = 0
    matrix = sp.csr_array(weights.astype(np.float32).astype(np.float64))
    for self_loops in (False, True):
        rule = PprSettings(top_k=8, self_loops=self_loops, exact_arcs=0)
        rows, S = fill(topology(matrix), rule), dense_ppr(matrix, 0.15, self_loops)
        for source in (0, size - 1):
            count = rows.counts[source]
            kept, scores = rows.neighbors[source, :count], rows.scores[source, :count]
            assert (scores <= S[source, kept] + 1e-15).all()
        exchanged = [{0: size - 1, size - 1: 0}.get(node, node) for node in rows.neighbors[0].tolist()]
        first = dict(zip(exchanged, rows.scores[0].tolist(), strict=True))
        assert first == dict(zip(rows.neighbors[-1].tolist(), rows.scores[-1].tolist(), strict=True))
