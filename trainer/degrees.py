"""How many neighbours some nodes hear from, read where the topology is stored."""

from __future__ import annotations

import numpy as np
from numba import njit, types

from preprocessing.array_file import read_only
from preprocessing.array_types import Int64Array
from preprocessing.bundle import Topology

__all__ = ["degrees_of"]


def degrees_of(topology: Topology, nodes: Int64Array) -> Int64Array:
    """The degree of every one of ``nodes``, [n]."""
    degree_n = np.empty(len(nodes), dtype=np.int64)
    _read(read_only(topology.indptr), read_only(nodes), degree_n)
    return degree_n


_READ = types.Array(types.int64, 1, "C", readonly=True)


@njit(types.void(_READ, _READ, types.int64[::1]), nogil=True, cache=True)
def _read(indptr: Int64Array, nodes: Int64Array, degree_n: Int64Array) -> None:
    for place in range(len(nodes)):
        node = nodes[place]
        degree_n[place] = indptr[node + 1] - indptr[node]
