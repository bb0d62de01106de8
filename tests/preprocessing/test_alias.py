from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from preprocessing import alias
from preprocessing.alias import AliasTable, draw, draw_without_replacement
from preprocessing.errors import UsageError

weights = st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1e6)), min_size=1, max_size=40).filter(any)


@given(weights)
def test_the_cells_of_a_table_add_up_to_the_weights(weight: list[float]) -> None:
    table = AliasTable.build(weight)
    assert ((table.threshold >= 0) & (table.threshold <= 1)).all()
    mass = np.bincount(table.alias, 1 - table.threshold, minlength=len(weight)) + table.threshold
    assert mass / len(weight) == pytest.approx(np.array(weight) / sum(weight), abs=1e-12)
    assert (mass[np.array(weight) == 0] == 0).all()


def test_draws_follow_the_weights() -> None:
    weight = np.array([5.0, 0.0, 1.0, 3.0, 0.5, 0.5])
    counts = np.bincount(draw(AliasTable.build(weight), 60_000, np.random.default_rng(1)), minlength=6)
    assert counts[1] == 0
    positive = weight > 0
    assert chisquare(counts[positive], 60_000 * weight[positive] / weight.sum()).pvalue > 0.001


@pytest.mark.parametrize("race_share", [0.0, 1.0], ids=["race", "rejection"])
@pytest.mark.parametrize("candidates", [1, 4], ids=["then race", "alone"])
def test_drawing_without_replacement_is_successive_sampling(
    monkeypatch: pytest.MonkeyPatch, race_share: float, candidates: int
) -> None:
    """Every ordered outcome at its exact probability: w_a/W · w_b/(W−w_a) · w_c/(W−w_a−w_b)."""
    monkeypatch.setattr(alias, "RACE_SHARE", race_share)
    monkeypatch.setattr(alias, "CANDIDATES_A_DRAW", candidates)
    weight = np.array([6.0, 3.0, 2.0, 1.0, 0.5])
    table, rng, draws = AliasTable.build(weight), np.random.default_rng(2), 6_000
    expected: dict[tuple[int, ...], float] = {}
    for outcome in permutations(range(5), 3):
        left, probability = weight.sum(), 1.0
        for node in outcome:
            probability *= weight[node] / left
            left -= weight[node]
        expected[outcome] = draws * probability
    observed = dict.fromkeys(expected, 0)
    for _ in range(draws):
        observed[tuple(draw_without_replacement(table, 3, rng).tolist())] += 1
    assert chisquare(list(observed.values()), list(expected.values())).pvalue > 0.001


@pytest.mark.parametrize("count", [0, 1, 10, 25, 60, 99, 100, 1000])
def test_nodes_are_distinct_and_as_many_as_asked_for_or_all(count: int) -> None:
    weight = np.linspace(0.1, 1, 100)
    drawn = draw_without_replacement(AliasTable.build(weight), count, np.random.default_rng(3))
    assert drawn.dtype == np.int64
    assert len(set(drawn.tolist())) == len(drawn) == min(count, 100)


def test_nodes_of_weight_zero_are_never_drawn() -> None:
    weight = np.array([0.0, 1.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0])
    for count in (1, 2, 8):
        drawn = draw_without_replacement(AliasTable.build(weight), count, np.random.default_rng(4))
        assert set(drawn.tolist()) <= {1, 3}
        assert len(drawn) == min(count, 2)


def test_a_few_heavy_nodes_do_not_hold_the_draw_up() -> None:
    weight = np.full(1000, 1e-12)
    weight[7] = 1.0
    drawn = draw_without_replacement(AliasTable.build(weight), 200, np.random.default_rng(5))
    assert len(set(drawn.tolist())) == 200
    assert drawn[0] == 7


def test_the_same_generator_state_gives_the_same_nodes() -> None:
    table = AliasTable.build(np.arange(1, 500))
    first, second = (draw_without_replacement(table, 64, np.random.default_rng(6)) for _ in range(2))
    assert first.tolist() == second.tolist()
    assert first.tolist() != draw_without_replacement(table, 64, np.random.default_rng(7)).tolist()


@pytest.mark.parametrize("weight", [[], [0.0, 0.0], [1.0, -1.0, 3.0], [1.0, np.nan], [1.0, np.inf], [[1.0]]])
def test_weights_that_mean_nothing_are_refused(weight: list[float]) -> None:
    with pytest.raises(UsageError, match="cannot be drawn from"):
        AliasTable.build(weight)
