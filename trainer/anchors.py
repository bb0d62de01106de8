"""Whom a query is compared with: G global anchors by degree weight, K local ones by diffusion (paper, Sec. 4.2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from preprocessing.alias import AliasTable, draw_without_replacement
from preprocessing.bundle import Bundle
from preprocessing.degree_weights import degree_weights
from preprocessing.errors import ArtifactError
from trainer.randomness import Draw, Purpose
from trainer.settings import AnchorSettings

__all__ = ["Anchors"]


class Anchors:
    """The anchors of every node; a query's are looked up, so that memory does not follow the graph."""

    def __init__(self, bundle: Bundle, settings: AnchorSettings) -> None:
        """``ArtifactError`` where the bundle lacks PPR rows, or stores fewer than K a node."""
        self._neighbors_NK = bundle.ppr(settings.num_local).neighbors
        self._indptr = bundle.symmetric.indptr
        self._num_nodes = bundle.num_nodes
        self._num_global = min(settings.num_global, bundle.num_nodes)
        self._table = _table(bundle, settings)

    def locals_of(self, nodes: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Local anchors [Q, K], and which there are; the others are 0: past a row's count, and all of a node without
        neighbours, which the local loss skips.
        """
        neighbors_QK = self._neighbors_NK[nodes].astype(np.int64)
        connected_Q = self._indptr[nodes + 1] > self._indptr[nodes]
        valid_QK = (neighbors_QK >= 0) & connected_Q[:, None]
        return np.where(valid_QK, neighbors_QK, 0), valid_QK

    def draw_global(self, draw: Draw) -> npt.NDArray[np.int64]:
        """G different nodes; all nodes where the graph has no more than G."""
        if self._num_global == self._num_nodes:
            return np.arange(self._num_global)
        return draw_without_replacement(self._table, self._num_global, draw.numpy(Purpose.ANCHORS))


def _table(bundle: Bundle, settings: AnchorSettings) -> AliasTable:
    """As stored with the bundle if it was made with the same α and β, else built here."""
    wanted: dict[str, Any] = settings.weights.model_dump()
    try:
        stored = bundle.degree_weights_manifest()
    except ArtifactError:
        stored = None
    if stored is not None and stored["settings"] == wanted:
        return AliasTable.open(bundle.path / "degree_weights" / "alias")
    return AliasTable.build(degree_weights(bundle.symmetric.degrees(), settings.weights))
