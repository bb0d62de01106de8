"""How often each neighbour is drawn: against counted-out probabilities, with fixed seeds."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from preprocessing.bundle import Topology
from preprocessing.errors import InputError
from trainer.sampler import NumbaSampler

DRAWS = 8_000
SURE = 1e-4
"""A fixed seed passes or fails for good: what it passes is no rarer than this."""


def star(weights: list[float], dtype: type = np.int32) -> Topology:
    """Node 0 hears 1, 2, …, with these weights; nobody else hears anyone."""
    count = len(weights)
    indptr = np.array([0] + [count] * (count + 1), dtype=np.int64)
    return Topology(indptr, np.arange(1, count + 1, dtype=dtype), np.array(weights, dtype=np.float32))


def drawn(sampler: NumbaSampler, topology: Topology, width: int, draws: int = DRAWS) -> list[tuple[int, ...]]:
    """The neighbours of node 0 in the order sampled, one tuple a seed."""
    return [
        tuple(found.nodes[found.indices].tolist())
        for found in (sampler.sample(topology, np.array([0]), [width], seed) for seed in range(draws))
    ]


def check(counts: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> None:
    """Chi-square over all outcomes; nothing that cannot happen."""
    assert set(counts) <= {outcome for outcome, chance in expected.items() if chance > 0}
    total = sum(counts.values())
    assert sum(expected.values()) == pytest.approx(1)
    assert min(expected.values()) * total > 5
    observed = [counts[outcome] for outcome in expected]
    assert chisquare(observed, [chance * total for chance in expected.values()]).pvalue > SURE


def test_chi_square_tells_a_small_bias() -> None:
    """The test of the tests: draws of 0 … 5 that favour one by a fifth do not pass."""
    chances = np.array([1.2, 1, 1, 1, 1, 1]) / 6.2
    counts = Counter((int(n),) for n in np.random.default_rng(0).choice(6, DRAWS, p=chances))
    with pytest.raises(AssertionError):
        check(counts, {(n,): 1 / 6 for n in range(6)})


@pytest.mark.parametrize(("degree", "width"), [(5, 2), (6, 1), (5, 4)])
def test_without_replacement_every_subset_is_as_likely(degree: int, width: int) -> None:
    subsets = list(itertools.combinations(range(1, degree + 1), width))
    counts = Counter(tuple(sorted(picked)) for picked in drawn(NumbaSampler(), star([1] * degree), width))
    check(counts, dict.fromkeys(subsets, 1 / len(subsets)))


def with_replacement(chances: list[float], width: int) -> dict[tuple[int, ...], float]:
    """Multisets of draws, sorted."""
    expected: Counter[tuple[int, ...]] = Counter()
    for sequence in itertools.product(range(len(chances)), repeat=width):
        expected[tuple(sorted(n + 1 for n in sequence))] += float(np.prod([chances[n] for n in sequence]))
    return dict(expected)


@pytest.mark.parametrize(("degree", "width"), [(4, 3), (2, 5)])
def test_with_replacement_draws_are_independent_and_repeats_side_by_side(degree: int, width: int) -> None:
    """Also where the row has fewer neighbours than are drawn."""
    picks = drawn(NumbaSampler(replace=True), star([1] * degree), width)
    assert all(picked == tuple(sorted(picked)) for picked in picks)
    check(Counter(picks), with_replacement([1 / degree] * degree, width))


@pytest.mark.parametrize("weights", [[1, 2, 5], [3, 1, 0.5, 0.5]])
def test_with_replacement_by_weight(weights: list[float]) -> None:
    chances = (np.array(weights) / sum(weights)).tolist()
    picks = drawn(NumbaSampler(replace=True, weighted=True), star(weights), 2)
    assert all(picked == tuple(sorted(picked)) for picked in picks)
    check(Counter(picks), with_replacement(chances, 2))


@pytest.mark.parametrize(("weights", "width"), [([1, 2, 5, 2], 1), ([1, 2, 5, 2], 2), ([5, 1, 1, 2, 3, 1], 3)])
def test_without_replacement_by_weight_one_after_the_other_from_those_left(weights: list[float], width: int) -> None:
    expected: Counter[tuple[int, ...]] = Counter()
    for sequence in itertools.permutations(range(len(weights)), width):
        chance, left = 1.0, float(sum(weights))
        for n in sequence:
            chance *= weights[n] / left
            left -= weights[n]
        expected[tuple(sorted(n + 1 for n in sequence))] += chance
    picks = drawn(NumbaSampler(weighted=True), star(weights), width)
    check(Counter(tuple(sorted(picked)) for picked in picks), dict(expected))


def test_a_hub_by_weight() -> None:
    """10,000 neighbours, one of which has half of the weight; the jumps of the reservoir are long here."""
    degree = 10_000
    weights = np.ones(degree, dtype=np.float32)
    weights[7_777] = degree - 1
    hub = star(weights.tolist())
    for replace, missed in ((False, 0.5), (True, 0.25)):
        picks = drawn(NumbaSampler(replace=replace, weighted=True), hub, 1 + replace, 2_000)
        share = sum(7_778 in picked for picked in picks) / len(picks)
        assert share == pytest.approx(1 - missed, abs=0.05)
        others = np.array([n for picked in picks for n in picked if n != 7_778])
        assert chisquare(np.histogram(others, bins=10, range=(1, degree + 1))[0]).pvalue > SURE


def test_a_hub_uniformly_and_every_neighbour_of_it_distinct() -> None:
    degree, width = 50_000, 40
    picks = drawn(NumbaSampler(), star([1] * degree), width, 500)
    assert all(len(set(picked)) == width for picked in picks)
    everyone = np.array(picks).ravel()
    assert chisquare(np.histogram(everyone, bins=25, range=(1, degree + 1))[0]).pvalue > SURE


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("width", [1, 3, 5])
def test_extreme_weights_neither_fail_nor_leave_the_row(replace: bool, width: int) -> None:
    weights = [1e-45, 3e38, 1e-45, 1.0, 3e38, 1e-30]
    for picked in drawn(NumbaSampler(replace=replace, weighted=True), star(weights), width, 200):
        assert len(picked) == width
        assert set(picked) <= set(range(1, 7))
        assert replace or len(set(picked)) == width
        assert {2, 5} & set(picked)


def test_weights_that_are_not_there() -> None:
    bare = Topology(np.array([0, 1, 1]), np.array([1], dtype=np.int32))
    with pytest.raises(InputError, match="no edge weights") as error:
        NumbaSampler(weighted=True).sample(bare, np.array([0]), [1], 0)
    assert error.value.pointer == "/settings/batch/weighted"
    assert error.value.remedy
