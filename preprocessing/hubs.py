"""The arcs that a hub walks where its neighbours are capped: the heaviest, in an unweighted graph a drawn few."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from preprocessing.bundle import IntArray, Topology

__all__ = ["kept_arcs"]

Kept = tuple[npt.NDArray[np.int64], IntArray, npt.NDArray[np.float32]]


def kept_arcs(topology: Topology, cap: int | None) -> Kept:
    """Hubs [H], the nodes of more than ``cap`` neighbours, ascending; their kept neighbours and weights, [H · cap].

    Equal weights are drawn among by a generator of the node's number: the choice depends on nothing else. What a hub
    does not walk is never lost: it stays in the residual that bounds the row's error.
    """
    hubs = np.flatnonzero(topology.degrees() > cap) if cap is not None else np.empty(0, dtype=np.int64)
    width = cap or 0
    indices = np.empty((len(hubs), width), dtype=topology.indices.dtype)
    weights = np.ones((len(hubs), width), dtype=np.float32)
    for row, hub in enumerate(hubs):
        begin, end = topology.indptr[hub], topology.indptr[hub + 1]
        drawn = np.random.default_rng(int(hub)).permutation(end - begin)
        if topology.weights is not None:
            drawn = drawn[np.argsort(-np.asarray(topology.weights[begin:end])[drawn], kind="stable")]
            weights[row] = topology.weights[begin + np.sort(drawn[:width])]
        indices[row] = topology.indices[begin + np.sort(drawn[:width])]
    return hubs, indices.reshape(-1), weights.reshape(-1)
