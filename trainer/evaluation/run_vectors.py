"""What one training run made that an evaluation measures: its vectors, those of its snapshots, and of no training."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch

from preprocessing.bundle import Bundle
from trainer.embedding_set import EmbeddingSet, Snapshot
from trainer.evaluation.baselines import random_encoder
from trainer.evaluation.probe import ArrayRows
from trainer.features import FeatureStore
from trainer.layer_arrays import LayerArrays
from trainer.relations import embed_bundle

__all__ = ["RunVectors"]


class RunVectors:
    """Every node's vector, [N, D], as the run's encoder gives it at one time or another."""

    def __init__(self, bundle: Bundle, embeddings: EmbeddingSet) -> None:
        self.bundle = bundle
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.last_epoch = int(embeddings.manifest["training"]["epochs"])
        self.losses: list[dict[str, Any]] = embeddings.manifest["training"].get("losses", [])
        self._embeddings = embeddings

    @cached_property
    def features(self) -> FeatureStore:
        """What the encoder sees."""
        return self._embeddings.model.features(self.bundle)

    @property
    def snapshots(self) -> list[Snapshot]:
        """Those before the last epoch."""
        return [snapshot for snapshot in self._embeddings.snapshots if snapshot.epoch != self.last_epoch]

    @property
    def last(self) -> ArrayRows:
        """The embeddings themselves."""
        return ArrayRows(self._embeddings.vectors)

    def at(self, snapshot: Snapshot) -> ArrayRows:
        """As they were then."""
        model, arrays = self._embeddings.model_at(snapshot), LayerArrays(self.bundle.num_nodes, self._embeddings.path)
        step = embed_bundle(model.encoder, self.features, self.bundle, model.views, arrays, device=self.device)
        (vectors_ND,) = arrays.of(step)
        return ArrayRows(vectors_ND)

    def untrained(self) -> ArrayRows:
        """From the encoder before its first step."""
        return random_encoder(self.bundle, self.features, self._embeddings, self._embeddings.path, self.device)
