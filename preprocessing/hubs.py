"""The arcs that a hub walks where its neighbours are capped: the heaviest, in an unweighted graph a drawn few."""

from __future__ import annotations

import numpy as np

from preprocessing.bundle import IntArray, Topology

__all__ = ["kept_arcs_first"]


def kept_arcs_first(topology: Topology, cap: int) -> Topology:
    """A copy in which the first ``cap`` arcs of every node of more are those that it walks; other rows stay.

    Equal weights are drawn among by a generator of the node's number: the choice depends on nothing else. What a hub
    does not walk is never lost: it stays in the residual that bounds the row's error.
    """
    indices: IntArray = topology.indices.copy()
    weights = None if topology.weights is None else np.array(topology.weights)
    for hub in np.flatnonzero(topology.degrees() > cap):
        arcs = slice(topology.indptr[hub], topology.indptr[hub + 1])
        order = np.random.default_rng(int(hub)).permutation(arcs.stop - arcs.start)
        if weights is not None:
            order = order[np.argsort(-weights[arcs][order], kind="stable")]
            weights[arcs] = weights[arcs][order]
        indices[arcs] = indices[arcs][order]
    return Topology(topology.indptr, indices, weights)
