import numpy as np
import pytest
import torch
from scipy.stats import binom, chisquare

from trainer.binomial import MOST, binomial


def draws(count: int, probability: float | torch.Tensor, number: int = 40_000) -> np.ndarray:
    generator = torch.Generator().manual_seed(count)
    return binomial(torch.full((number,), count), probability, generator).numpy()


@pytest.mark.parametrize("count", [1, 2, 7, 40, MOST - 1, MOST, MOST + 1, 3 * MOST, 2000])
@pytest.mark.parametrize("probability", [0.05, 0.7])
def test_counts_are_distributed_as_scipys(count: int, probability: float) -> None:
    """Chi-square over bins of at least 200 expected draws."""
    found = draws(count, probability)
    edges = np.unique(binom.ppf(np.linspace(0, 1, 21)[1:-1], count, probability))
    expected = np.diff(np.concatenate([[0], binom.cdf(edges, count, probability), [1]])) * len(found)
    observed = np.bincount(np.searchsorted(edges, found), minlength=len(expected))
    kept = expected > 0.5
    assert observed[~kept].sum() <= 3
    assert chisquare(observed[kept], expected[kept] * observed[kept].sum() / expected[kept].sum()).pvalue > 1e-4


@pytest.mark.parametrize(("probability", "expected"), [(0.0, 0), (1.0, 1)])
def test_what_never_or_always_succeeds(probability: float, expected: int) -> None:
    for count in (0, 1, 17, MOST, 1000):
        assert (draws(count, probability, 100) == expected * count).all()


def test_each_may_have_a_probability_of_its_own_and_draws_repeat() -> None:
    count, probability = torch.tensor([0, 5, 300, 300]), torch.tensor([0.5, 1.0, 0.0, 0.5])
    first, again = (binomial(count, probability, torch.Generator().manual_seed(3)) for _ in range(2))
    assert first[:3].tolist() == [0, 5, 0]
    assert 100 < first[3] < 200
    assert torch.equal(first, again)
    few = (binomial(count, 0.3, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(*few)
