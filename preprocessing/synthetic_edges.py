"""Edges of synthetic graphs, and the ids of their nodes.

* ``rmat``: recursive matrices (Chakrabarti et al., 2004) with the quadrants of Graph500. A few hubs, no communities.
* ``blocks``: a degree-corrected block graph (Karrer and Newman, 2011). Nodes fall into communities of one size; inside
  each, the propensity to have edges is a power of the rank, so degrees have a heavy tail whatever N is.

Nodes get their ids through a seeded bijection: neighbours in structure are not neighbours in id.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, types

from preprocessing.array_types import Int64Array
from preprocessing.settings import GenerateSettings
from preprocessing.splitmix import State, uniform

__all__ = ["Ids", "draw_edges"]

RMAT = (0.57, 0.19, 0.19)
"""Probabilities of the quadrants a, b and c; d is the rest."""
TAIL = 0.5
"""Rank r of m has propensity r^-TAIL: the tail of the degrees falls off as degree^-(1 + 1/TAIL)."""


class Ids(NamedTuple):
    """A bijection of 0..N−1: an affine map modulo the power of two at or above N, walked until it lands below N."""

    nodes: int
    mask: int
    factor: int
    offset: int
    shift: int

    @classmethod
    def of(cls, nodes: int, seed: int) -> Ids:
        """The bijection of ``seed``."""
        bits = max(nodes - 1, 1).bit_length()
        factor, offset = np.random.default_rng([seed, 0]).integers(1 << bits, size=2).tolist()
        return cls(nodes, (1 << bits) - 1, factor | 1, offset, (bits + 1) // 2)

    def named(self, nodes: Int64Array) -> Int64Array:
        """The ids of nodes, [N] each."""
        named: Int64Array = _named(self, nodes)
        return named


_I8, _F8 = types.int64, types.float64
_IDS = types.BaseTuple.from_types((_I8,) * 5, Ids)


def draw_edges(settings: GenerateSettings, ids: Ids, number: int, count: int) -> Int64Array:
    """Both ends of the block's edges, [count, 2]."""
    state = np.random.default_rng([settings.seed, 1, number]).integers(1 << 63, dtype=np.uint64)
    ends = np.empty((count, 2), dtype=np.int64)
    if settings.kind == "rmat":
        a, b, c = RMAT
        _rmat(ends, ids, state, a, b, c)
    else:
        _blocks(ends, ids, state, min(settings.community_size, settings.nodes), settings.mixing)
    return ends


@njit([_I8(_IDS, _I8)], nogil=True, cache=True)
def _name(ids: Ids, node: int) -> int:
    """The id of a node. Each step is a bijection of the power of two: xor by a shift, an odd factor, an offset."""
    value = node
    while True:
        value ^= value >> ids.shift
        value = (value * ids.factor + ids.offset) & ids.mask
        value ^= value >> ids.shift
        value = (value * ids.factor + ids.offset) & ids.mask
        if value < ids.nodes:
            return value


@njit([_I8[::1](_IDS, _I8[::1])], nogil=True, cache=True)
def _named(ids: Ids, nodes: Int64Array) -> Int64Array:
    names = np.empty_like(nodes)
    for place in range(len(nodes)):
        names[place] = _name(ids, nodes[place])
    return names


@njit([types.void(_I8[:, ::1], _IDS, types.uint64, _F8, _F8, _F8)], nogil=True, cache=True)
def _rmat(ends: Int64Array, ids: Ids, seed: np.uint64, a: float, b: float, c: float) -> None:
    """A quadrant a bit of the two ends; an edge that leaves 0..N−1 is drawn again."""
    state = np.full(1, seed, dtype=np.uint64)
    for edge in range(len(ends)):
        while True:
            source, target, bit = 0, 0, ids.mask
            while bit > 0:
                u = uniform(state)
                source = 2 * source + (u >= a + b)
                target = 2 * target + ((a <= u < a + b) or u >= a + b + c)
                bit >>= 1
            if source < ids.nodes and target < ids.nodes:
                break
        ends[edge, 0], ends[edge, 1] = _name(ids, source), _name(ids, target)


@njit([_I8(types.uint64[::1], _I8, _I8)], nogil=True, cache=True)
def _member(state: State, first: int, size: int) -> int:
    """A node of the community that starts at ``first``, by propensity: the inverse of r^(1−TAIL)."""
    return first + int(size * uniform(state) ** (1 / (1 - TAIL)))


@njit([types.void(_I8[:, ::1], _IDS, types.uint64, _I8, _F8)], nogil=True, cache=True)
def _blocks(ends: Int64Array, ids: Ids, seed: np.uint64, size: int, mixing: float) -> None:
    """A community, a member, and another of it, or with probability ``mixing`` of any; the last one may be smaller."""
    state = np.full(1, seed, dtype=np.uint64)
    for edge in range(len(ends)):
        for side in range(2):
            if side == 0 or uniform(state) < mixing:
                # By a node, so that a smaller community gets a smaller share.
                first = int(ids.nodes * uniform(state)) // size * size
            ends[edge, side] = _name(ids, _member(state, first, min(size, ids.nodes - first)))
