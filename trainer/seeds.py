"""Whom a mini-batch embeds: its queries, and the anchors that are not among them, each node once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from preprocessing.array_types import Int64Array

__all__ = ["FEWEST_ROWS", "Positions", "SeedSet", "seed_set"]

FEWEST_ROWS = 2
"""BatchNorm's statistics need as many."""


@dataclass(frozen=True)
class SeedSet:
    """``seeds`` [S]: queries first, then other nodes that are embedded. ``read`` [m]: nodes whose embeddings are read
    from the bank. No node is in it twice.
    """

    seeds: Int64Array
    read: Int64Array

    def positions(self) -> Positions:
        """Of seeds, and after them of what is read."""
        return Positions(np.concatenate([self.seeds, self.read]))


def seed_set(queries: Int64Array, computed: Int64Array, read: Int64Array) -> SeedSet:
    """Queries, then the nodes to compute that are not among them; for want of others, nodes 0 and 1."""
    spare = np.arange(FEWEST_ROWS if len(queries) + len(computed) < FEWEST_ROWS else 0)
    seeds = np.concatenate([queries, np.setdiff1d(np.concatenate([computed, spare]), queries)])
    return SeedSet(seeds, np.setdiff1d(read, seeds))


class Positions:
    """Where nodes stand among others; any place for a node that is not there."""

    def __init__(self, nodes: Int64Array) -> None:
        self._order = np.argsort(nodes)
        self._sorted = nodes[self._order]

    def __call__(self, nodes: Int64Array) -> Int64Array:
        """Of an array of any shape."""
        places = np.searchsorted(self._sorted, nodes).clip(max=len(self._sorted) - 1)
        positions: Int64Array = self._order[places]
        return positions
