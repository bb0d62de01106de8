"""Binomial counts by alias tables: one uniform number and two reads a draw (Walker, 1977)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from preprocessing.alias import AliasTable

__all__ = ["binomial"]

MOST = 255
"""Trials of the largest distribution in the table; more trials are drawn as the sum of several counts."""


def binomial(count_n: Tensor, probability: float | Tensor, generator: torch.Generator) -> Tensor:
    """How many of ``count_n`` [n] trials succeed, [n] int64, each with ``probability``, or that of its own [n].

    With one probability for all a draw takes some 10 ns, where ``torch.binomial`` takes 400.
    """
    if isinstance(probability, Tensor):
        return torch.binomial(count_n.float(), probability.float(), generator).to(torch.int64)
    whole_n = count_n // MOST
    drawn_n = _few(count_n % MOST, probability, generator)
    if bool(whole_n.any()):
        owner_m = torch.repeat_interleave(torch.arange(len(count_n), device=count_n.device), whole_n)
        drawn_n.index_add_(0, owner_m, _few(torch.full_like(owner_m, MOST), probability, generator))
    return drawn_n


def _few(count_n: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    """Of at most ``MOST`` trials each: the cell that a uniform number falls into, or its alias."""
    starts, threshold, alias = (part.to(count_n.device) for part in _table(probability))
    uniform_n = torch.rand(len(count_n), generator=generator, dtype=torch.float64, device=count_n.device)
    # Below d + 1 even when rounded: a uniform number is a multiple of 2^-53.
    place_n = uniform_n * (count_n + 1)
    cell_n = place_n.long()
    entry_n = starts[count_n] + cell_n
    return torch.where(place_n - cell_n < threshold[entry_n], cell_n, alias[entry_n])


@lru_cache(maxsize=8)
def _table(probability: float) -> tuple[Tensor, Tensor, Tensor]:
    """Alias tables of d = 0 … ``MOST`` trials one after the other: where each begins, thresholds, aliases."""
    rows = [np.ones(1)]
    for _ in range(MOST):
        # One trial more fails, or succeeds.
        rows.append(np.append(rows[-1] * (1 - probability), 0) + np.append(0, rows[-1] * probability))
    tables = [AliasTable.build(row) for row in rows]
    starts = np.concatenate([[0], np.arange(1, MOST + 1).cumsum()])
    threshold, alias = (np.concatenate(parts) for parts in zip(*((t.threshold, t.alias) for t in tables), strict=True))
    return torch.from_numpy(starts), torch.from_numpy(threshold), torch.from_numpy(alias)
