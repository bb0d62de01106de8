"""Collapse figures of matrices whose figures are known, and against plain numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from preprocessing.errors import ArtifactError
from trainer.evaluation import collapse
from trainer.evaluation.collapse import collapse_figures


def with_singular_values(values: list[float], nodes: int = 50, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    left, _ = np.linalg.qr(rng.normal(size=(nodes, len(values))))
    right, _ = np.linalg.qr(rng.normal(size=(len(values), len(values))))
    return left @ np.diag(values) @ right


@pytest.mark.parametrize(
    ("values", "rank"),
    [
        ([3.0, 3.0, 3.0, 3.0], 4.0),
        ([5.0, 5.0, 0.0, 0.0, 0.0], 2.0),
        ([7.0, 0.0, 0.0], 1.0),
        # Shares 1/2, 1/4, 1/4: entropy 1.5 ln 2.
        ([2.0, 1.0, 1.0], 2**1.5),
    ],
)
def test_effective_rank_of_known_singular_values(values: list[float], rank: float) -> None:
    assert collapse_figures(with_singular_values(values)).effective_rank == pytest.approx(rank, abs=1e-4)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_vector_that_is_not_finite_is_named(bad: float) -> None:
    vectors = np.ones((5, 3))
    vectors[3, 1] = bad
    with pytest.raises(ArtifactError, match="not finite") as error:
        collapse_figures(vectors)
    assert error.value.given == "row 3"


def test_effective_rank_ignores_scale_and_is_zero_for_zeros() -> None:
    vectors = with_singular_values([4.0, 2.0, 1.0])
    assert collapse_figures(vectors * 1e-3).effective_rank == pytest.approx(collapse_figures(vectors).effective_rank)
    assert collapse_figures(np.zeros((6, 3), dtype=np.float32)).effective_rank == 0


def test_figures_against_their_definitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collapse, "PART_ROWS", 7)
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(60, 5)) * [3, 1, 1, 1, 0.001] + [2, 0, 0, 0, 0]
    vectors[4] = 0
    figures = collapse_figures(vectors.astype(np.float32))
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, length, where=length > 0, out=np.zeros_like(vectors))
    cosines = [unit[i] @ unit[j] for i in range(60) for j in range(60) if i != j]
    assert figures.mean_cosine == pytest.approx(np.mean(cosines), abs=1e-6)
    assert figures.std_min == pytest.approx(unit.std(axis=0).min(), abs=1e-6)
    assert figures.std_mean == pytest.approx(unit.std(axis=0).mean(), abs=1e-6)
    assert figures.std_even == pytest.approx(1 / math.sqrt(5))
    assert figures.idle_share == pytest.approx(0.2)
    assert figures.dim == 5
    singular = np.linalg.svd(vectors, compute_uv=False)
    share = singular / singular.sum()
    assert figures.effective_rank == pytest.approx(math.exp(-(share * np.log(share)).sum()), rel=1e-5)
    assert not figures.collapsed


def test_directions_spread_evenly_have_the_even_deviation() -> None:
    figures = collapse_figures(np.random.default_rng(2).normal(size=(20_000, 16)))
    assert figures.std_mean == pytest.approx(figures.std_even, rel=0.02)
    assert figures.mean_cosine == pytest.approx(0, abs=0.005)
    assert figures.effective_rank == pytest.approx(16, rel=0.01)
    assert (figures.idle_share, figures.collapsed) == (0, False)


@pytest.mark.parametrize(
    ("vectors", "collapsed"),
    [
        (np.ones((30, 8)) + 0.01 * np.random.default_rng(0).normal(size=(30, 8)), True),  # one point
        (np.outer(np.linspace(-1, 1, 30), np.arange(1, 9)), True),  # one line, both directions
        (np.zeros((30, 8)), True),
        (np.random.default_rng(0).normal(size=(30, 8)), False),
        (np.repeat(np.eye(8)[:2], 15, axis=0), False),  # two clusters are information
        (np.array([[1.0], [-1.0], [2.0]]), False),  # one dimension has no other rank than 1
        (np.ones((5, 1)), True),
    ],
)
def test_verdict(vectors: np.ndarray, collapsed: bool) -> None:
    assert collapse_figures(vectors).collapsed is collapsed
