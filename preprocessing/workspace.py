"""What the PPR kernels read, write and work in: flat arrays, gathered in named tuples that numba understands."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import from_dtype, types

from preprocessing import hubs
from preprocessing.array_file import read_only
from preprocessing.array_types import Float32Array, Float64Array, Int64Array, IntArray
from preprocessing.bundle import Topology
from preprocessing.settings import PprSettings
from preprocessing.twins import twin_leaders

__all__ = [
    "ARCS_TYPES",
    "FIRST_BITS",
    "FLOAT32S",
    "ROWS_TYPE",
    "RULE_TYPE",
    "SOURCES",
    "WORKSPACE_TYPE",
    "Arcs",
    "Rows",
    "Rule",
    "Workspace",
]


RECORD = np.dtype([("residual", np.float64), ("degree", np.float64), ("estimate", np.float64), ("leader", np.int64)])
"""Mass left to push, above zero once the node is touched; weighted degree with the self-loop; mass settled; leader of
the twin class. Half a cache line."""
CACHE_LINE = 64
FIRST_BITS = 8
"""Of the hash table when a row starts."""
LISTED_HUBS = 1024
UNLIMITED: int = np.iinfo(np.int64).max


class Arcs(NamedTuple):
    """The undirected graph as the kernels read it.

    ``weights[place & weight_mask]`` is the weight of an arc: an unweighted graph stores a single 1 and a mask of 0.
    ``degree`` [N] is the weighted degree with the self-loop, ``least_degree`` the least of a node with a neighbour;
    past ``hub_degree`` a node is pushed as eagerly as one of that.
    ``twin_leader`` [N] is the first node of a twin class, −1 without a twin. ``by_degree`` lists the rows of greatest
    degree, descending.
    """

    indptr: Int64Array
    indices: IntArray
    weights: Float32Array
    weight_mask: int
    degree: Float64Array
    least_degree: float
    hub_degree: float
    twin_leader: IntArray
    by_degree: Int64Array

    @classmethod
    def of(cls, topology: Topology, settings: PprSettings) -> Arcs:
        """Views of the arrays of a topology whose hubs stand by reach, and what is derived: O(arcs + N log N)."""
        weights = np.ones(1, dtype=np.float32) if topology.weights is None else topology.weights
        strengths = topology.strengths()
        degree = strengths + float(settings.self_loops)
        connected = topology.degrees() > 0
        listed = min(LISTED_HUBS, topology.num_nodes)
        return cls(
            read_only(topology.indptr),
            read_only(topology.indices),
            read_only(weights),
            0 if topology.weights is None else -1,
            read_only(degree),
            float(degree.min(where=connected, initial=np.inf)),
            hubs.HUB_ARCS * float(strengths.sum()) / max(topology.num_arcs, 1),
            read_only(twin_leaders(topology)),
            read_only(_largest(degree, listed)),
        )


class Rule(NamedTuple):
    """What a row is, and what it may cost. ``self_loop`` is the weight of A's diagonal, 0 or 1.

    A node of more than ``hub_arcs`` walks as many as matter, of the first ``hub_cap``. A row that costs more than
    ``patience`` edge visits is left to the block solver.
    """

    teleport: float
    self_loop: float
    include_self: bool
    epsilon: float
    epsilon_floor: float
    hub_arcs: int
    hub_cap: int
    edge_budget: int
    patience: int

    @classmethod
    def of(cls, settings: PprSettings, patience: int = UNLIMITED) -> Rule:
        """The settings as the kernels take them."""
        return cls(
            settings.teleport,
            float(settings.self_loops),
            settings.include_self,
            settings.epsilon,
            settings.epsilon_floor,
            hubs.hub_arcs(settings),
            UNLIMITED if settings.hub_cap is None else settings.hub_cap,
            UNLIMITED if settings.edge_budget is None else settings.edge_budget,
            patience,
        )


class Workspace(NamedTuple):
    """One thread's memory for the nodes that a row touches.

    ``dense``: a record a node, under the node's number. Else records come in the order of the first touch, ``nodes``
    tells whose they are, and ``entries``, a hash table of which 2^bits are in use, lead from a node to its own, −1
    where there is none. ``touched`` [C + 1] are the records in the order of the first touch, ``queue`` is a ring of
    records. ``shared`` [C]: the best score of the twin class that the record's node leads, 0 between rows. ``hubs`` are
    the records of the hubs that the row has pushed, ``reached`` [C] how many of its arcs each has walked, else 0.
    """

    records: npt.NDArray[np.void]
    nodes: Int64Array
    touched: npt.NDArray[np.int32]
    shared: Float64Array
    hubs: npt.NDArray[np.int32]
    reached: Int64Array
    queue: npt.NDArray[np.int32]
    entries: npt.NDArray[np.int32]
    dense: bool

    @classmethod
    def of(cls, arcs: Arcs, touched: int | None = None) -> Workspace:
        """A clean workspace: dense, or hashed with room for ``touched`` nodes at first."""
        size, dense = len(arcs.degree), touched is None
        room = size if touched is None else 1 << (min(touched, max(size, 2)) - 1).bit_length()
        records = _aligned(room)
        if dense:
            records["residual"], records["estimate"] = 0.0, 0.0
            records["degree"], records["leader"] = arcs.degree, arcs.twin_leader
        return cls(
            records,
            np.empty(0 if dense else room, dtype=np.int64),
            np.arange(room + 1, dtype=np.int32),
            np.zeros(room),
            np.empty(room, dtype=np.int32),
            np.zeros(room, dtype=np.int64),
            np.zeros(1 << (room + 1).bit_length(), dtype=np.int32),
            np.full(0 if dense else max(4 * room, 1 << FIRST_BITS), -1, dtype=np.int32),
            dense,
        )


class Rows(NamedTuple):
    """Results for R rows.

    ``neighbors`` [R, K] and ``scores`` [R, K], largest first but for rounding, equal ones by row number; −1 and 0 past
    ``counts`` [R]. A score is a lower bound of its entry of S, and short of it by ``error`` [R] at most. ``gap`` [R]:
    no node left out beats one kept by more; ``exact`` [R]: gap ≤ 0, so the set is a true top-K. ``tied`` [R]: the K-th
    place is a tie of twins, or one within the resolution of float32, so another set is as good. ``capped`` [R]: a hub
    walked only some of its arcs, or the budget ended the row. ``visits`` [R]: neighbours looked at.
    """

    neighbors: Int64Array
    scores: Float64Array
    counts: npt.NDArray[np.int32]
    exact: npt.NDArray[np.bool_]
    gap: Float64Array
    error: Float64Array
    tied: npt.NDArray[np.bool_]
    capped: npt.NDArray[np.bool_]
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
            np.zeros(size, dtype=np.bool_),
            np.zeros(size, dtype=np.bool_),
            np.zeros(size, dtype=np.int64),
        )

    def part(self, first: int, last: int) -> Rows:
        """Views of the rows from ``first`` up to ``last``."""
        return Rows._make(array[first:last] for array in self)


def _aligned(count: int) -> npt.NDArray[np.void]:
    """Records none of which lies across two cache lines."""
    room = np.empty(count * RECORD.itemsize + CACHE_LINE, dtype=np.uint8)
    first = -room.ctypes.data % CACHE_LINE
    return room[first : first + count * RECORD.itemsize].view(RECORD)


def _largest(values: Float64Array, count: int) -> Int64Array:
    """The places of the ``count`` largest values, descending, equal ones by place."""
    if count < len(values):
        least = np.partition(values, len(values) - count)[len(values) - count]
        places = np.flatnonzero(values >= least)
    else:
        places = np.arange(len(values))
    return places[np.argsort(-values[places], kind="stable")][:count]


_I8, _F8 = types.int64, types.float64
_INT64S, _INT32S, FLOAT32S, _FLOAT64S = (
    types.Array(number, 1, "C", readonly=True) for number in (_I8, types.int32, types.float32, _F8)
)
_named = types.BaseTuple.from_types
SOURCES = _INT64S
ARCS_TYPES = [
    _named(
        (_INT64S, indices, FLOAT32S, _I8, _FLOAT64S, _F8, _F8, indices, _INT64S),
        Arcs,
    )
    for indices in (_INT32S, _INT64S)
]
RULE_TYPE = _named((_F8, _F8, types.boolean, _F8, _F8, _I8, _I8, _I8, _I8), Rule)
_INT32_ROOM = types.int32[::1]
WORKSPACE_TYPE = _named(
    (
        from_dtype(RECORD)[::1],
        _I8[::1],
        _INT32_ROOM,
        _F8[::1],
        _INT32_ROOM,
        _I8[::1],
        _INT32_ROOM,
        _INT32_ROOM,
        types.boolean,
    ),
    Workspace,
)
ROWS_TYPE = _named(
    (
        _I8[:, ::1],
        _F8[:, ::1],
        types.int32[::1],
        types.boolean[::1],
        _F8[::1],
        _F8[::1],
        types.boolean[::1],
        types.boolean[::1],
        _I8[::1],
    ),
    Rows,
)
