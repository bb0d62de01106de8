"""What one training run made that an evaluation measures: its vectors, those of its snapshots, and of no training."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch

from preprocessing.bundle import Bundle
from trainer.embedding_set import EmbeddingSet, Snapshot
from trainer.evaluation.baselines import random_encoder
from trainer.evaluation.probe import ArrayRows
from trainer.features import FeatureStore, load_features
from trainer.inference import scratch
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
        return load_features(self.bundle, self._embeddings.feature_settings)

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
        vectors_ND = scratch(self._embeddings.vectors.shape, self._embeddings.path)
        embed_bundle(
            self._embeddings.encoder(snapshot),
            self.features,
            self.bundle,
            self._embeddings.views,
            vectors_ND,
            directory=self._embeddings.path,
            device=self.device,
        )
        return ArrayRows(vectors_ND)

    def untrained(self) -> ArrayRows:
        """From the encoder before its first step."""
        return random_encoder(self.bundle, self.features, self._embeddings, self._embeddings.path, self.device)
