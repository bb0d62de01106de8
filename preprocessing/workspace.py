"""What the push kernels read, write and work in: flat arrays, gathered in named tuples that numba understands."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import from_dtype, types

from preprocessing.bundle import IntArray, Topology
from preprocessing.settings import PprSettings
from preprocessing.twins import twin_classes

__all__ = [
    "ARCS_TYPES",
    "ROWS_TYPE",
    "RULE_TYPE",
    "TRAITS_TYPE",
    "WORKSPACE_TYPE",
    "Arcs",
    "Rows",
    "Rule",
    "Traits",
    "Workspace",
]

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

NODE = np.dtype([("residual", np.float64), ("degree", np.float64)])
"""Mass left to push, and degree in A with its self-loop: 16 bytes, so that a neighbour costs one cache line."""


class Arcs(NamedTuple):
    """The undirected adjacency in CSR."""

    indptr: Int64Array
    indices: IntArray

    @classmethod
    def of(cls, topology: Topology) -> Arcs:
        """Views of the topology's arrays."""
        return cls(_read_only(topology.indptr), _read_only(topology.indices))


class Traits(NamedTuple):
    """What a proof needs to know of the nodes: twin class of each (−1: no twin), and rows by descending degree, [N]."""

    twin_class: Int64Array
    by_degree: Int64Array

    @classmethod
    def of(cls, topology: Topology) -> Traits:
        """O(arcs + N log N)."""
        by_degree = np.argsort(-topology.degrees(), kind="stable")
        return cls(_read_only(twin_classes(topology)), _read_only(by_degree))


class Rule(NamedTuple):
    """What a row is, and what it may cost. ``self_loop`` is the weight of A's diagonal, 0 or 1."""

    teleport: float
    self_loop: float
    include_self: bool
    epsilon: float
    epsilon_floor: float
    edge_budget: int

    @classmethod
    def of(cls, settings: PprSettings) -> Rule:
        """The settings as the kernels take them."""
        return cls(
            settings.teleport,
            float(settings.self_loops),
            settings.include_self,
            settings.epsilon,
            settings.epsilon_floor,
            settings.edge_budget,
        )


class Workspace(NamedTuple):
    """One thread's memory, about 40 bytes a node; between rows residuals, estimates and twin scores are zero.

    ``nodes`` [N] and ``estimate`` [N] are masses. ``queue`` is a ring, its size the first power of two above N;
    ``touched`` [N+1] has a slot to spare, so that the kernel can write first and decide afterwards.
    """

    nodes: npt.NDArray[np.void]
    estimate: Float64Array
    queue: Int64Array
    touched: Int64Array
    twin_score: Float64Array

    @classmethod
    def of(cls, arcs: Arcs, traits: Traits, rule: Rule) -> Workspace:
        """A clean workspace."""
        size = len(arcs.indptr) - 1
        nodes = np.zeros(size, dtype=NODE)
        nodes["degree"] = np.diff(arcs.indptr) + rule.self_loop
        return cls(
            nodes,
            np.zeros(size),
            np.empty(1 << size.bit_length(), dtype=np.int64),
            np.empty(size + 1, dtype=np.int64),
            np.zeros(int(traits.twin_class.max(initial=-1)) + 1),
        )


class Rows(NamedTuple):
    """Results for R rows.

    ``neighbors`` [R, K] and ``scores`` [R, K], largest first, equal scores by row number; −1 and 0 past ``counts`` [R].
    A score is a lower bound of its entry of S, and short of it by ``error`` [R] at most. ``gap`` [R]: no node left out
    beats one kept by more; ``exact`` [R]: gap ≤ 0, so the set is a true top-K. ``visits`` [R]: neighbours looked at.
    """

    neighbors: Int64Array
    scores: Float64Array
    counts: npt.NDArray[np.int32]
    exact: npt.NDArray[np.bool_]
    gap: Float64Array
    error: Float64Array
    visits: Int64Array

    @classmethod
    def empty(cls, size: int, top_k: int) -> Rows:
        """Room for ``size`` rows."""
        return cls(
            np.full((size, top_k), -1, dtype=np.int64),
            np.zeros((size, top_k)),
            np.zeros(size, dtype=np.int32),
            np.zeros(size, dtype=np.bool_),
            np.zeros(size),
            np.zeros(size),
            np.zeros(size, dtype=np.int64),
        )

    def part(self, first: int, last: int) -> Rows:
        """Views of the rows from ``first`` up to ``last``."""
        return Rows(
            self.neighbors[first:last],
            self.scores[first:last],
            self.counts[first:last],
            self.exact[first:last],
            self.gap[first:last],
            self.error[first:last],
            self.visits[first:last],
        )


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A plain view that cannot be written: memory-mapped or not, the kernels then see one type."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


_I8, _F8 = types.int64, types.float64
_INT64S, _INT32S = (types.Array(integer, 1, "C", readonly=True) for integer in (_I8, types.int32))
_named = types.BaseTuple.from_types
ARCS_TYPES = [_named((_INT64S, indices), Arcs) for indices in (_INT32S, _INT64S)]
TRAITS_TYPE = _named((_INT64S, _INT64S), Traits)
RULE_TYPE = _named((_F8, _F8, types.boolean, _F8, _F8, _I8), Rule)
WORKSPACE_TYPE = _named((from_dtype(NODE)[::1], _F8[::1], _I8[::1], _I8[::1], _F8[::1]), Workspace)
ROWS_TYPE = _named((_I8[:, ::1], _F8[:, ::1], types.int32[::1], types.boolean[::1], _F8[::1], _F8[::1], _I8[::1]), Rows)
