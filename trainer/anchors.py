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
    """The anchors of every node.

    ``locals_NK`` [N, K] int64 are rows of the PPR matrix, 0 where ``valid_NK`` [N, K] is false: past a row's count, and
    in rows of nodes without neighbours, which the local loss skips.
    """

    def __init__(self, bundle: Bundle, settings: AnchorSettings) -> None:
        """``ArtifactError`` where the bundle lacks PPR rows, or stores fewer than K a node."""
        ppr = bundle.ppr(settings.num_local)
        present_NK = np.arange(settings.num_local) < ppr.count[:, None]
        self.valid_NK: npt.NDArray[np.bool_] = present_NK & (bundle.symmetric.degrees() > 0)[:, None]
        self.locals_NK: npt.NDArray[np.int64] = np.where(self.valid_NK, ppr.neighbors, 0)
        self._num_global = min(settings.num_global, bundle.num_nodes)
        self._table = _table(bundle, settings)

    def draw_global(self, draw: Draw) -> npt.NDArray[np.int64]:
        """G different nodes; all nodes where the graph has no more than G."""
        if self._num_global == len(self.valid_NK):
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
