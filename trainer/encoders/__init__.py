"""Encoders: node features and one adjacency a layer to node embeddings."""

from __future__ import annotations

from trainer.adjacency import SymmetricAggregator
from trainer.encoders.base import Aggregator, Encoder, RelationEncoders
from trainer.encoders.gcn import GcnEncoder
from trainer.encoders.sage import SageResidualEncoder, SageSkipEncoder
from trainer.mean_adjacency import MeanAggregator
from trainer.settings import EncoderSettings

__all__ = ["Encoder", "RelationEncoders", "new_encoder", "training_aggregator"]


def new_encoder(in_dim: int, settings: EncoderSettings, num_relations: int = 1) -> Encoder | RelationEncoders:
    """What the settings name, its first weights from torch's generator: one encoder, or one for each relation."""
    if settings.per_relation:
        return RelationEncoders(_encoder(in_dim, settings) for _ in range(num_relations))
    return _encoder(in_dim, settings)


def training_aggregator(settings: EncoderSettings) -> Aggregator:
    """Whose matrices the views of a training step have; an encoder's own are those that embeddings are made by."""
    return SymmetricAggregator(settings.self_loop_weight) if settings.kind == "gcn" else MeanAggregator()


def _encoder(in_dim: int, settings: EncoderSettings) -> Encoder:
    match settings.kind:
        case "gcn":
            self_loop_weight = settings.embedding_self_loop_weight or settings.self_loop_weight
            return GcnEncoder(in_dim, settings.layers, settings.batch_norm_momentum, self_loop_weight)
        case "sage_residual":
            return SageResidualEncoder(in_dim, settings.layers)
        case "sage_skip":
            return SageSkipEncoder(in_dim, settings.layers)
