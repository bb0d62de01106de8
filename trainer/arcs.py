"""Entries and arcs: sampling with replacement gives an arc as many entries as it was drawn times, side by side."""

from __future__ import annotations

import torch
from torch import Tensor

from trainer.sparse import Pattern

__all__ = ["Arcs"]


class Arcs:
    """The arcs of a sampled pattern, of which an entry is the same as the one before it in its row, or another."""

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        again_E = torch.zeros(pattern.num_entries, dtype=torch.bool, device=pattern.device)
        again_E[1:] = (pattern.indices[1:] == pattern.indices[:-1]) & (pattern.rows[1:] == pattern.rows[:-1])
        # Without replacement, which is the rule, entries are arcs.
        self._first_E = ~again_E if bool(again_E.any()) else None

    def as_one(self, keep_E: Tensor) -> Tensor:
        """A truth an entry, made that of its arc's first."""
        if self._first_E is None:
            return keep_E
        places_E = torch.arange(len(keep_E), device=keep_E.device)
        return keep_E[torch.where(self._first_E, places_E, 0).cummax(0).values]

    def per_row(self, keep_E: Tensor | None = None) -> Tensor:
        """How many arcs a row has, or of those that ``as_one`` left true, [R]."""
        if self._first_E is None:
            return self._pattern.indptr.diff() if keep_E is None else self._pattern.row_sums(keep_E)
        return self._pattern.row_sums(self._first_E if keep_E is None else self._first_E & keep_E)
