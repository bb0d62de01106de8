"""Encoders: node features and one adjacency a layer to node embeddings."""

from __future__ import annotations

from collections.abc import Mapping

from trainer.encoders.base import Encoder, RelationEncoders
from trainer.encoders.gcn import GcnEncoder
from trainer.encoders.sage import SageResidualEncoder, SageSkipEncoder
from trainer.settings import EncoderSettings

__all__ = ["ENCODERS", "Encoder", "RelationEncoders", "new_encoder"]

ENCODERS: Mapping[str, type[Encoder]] = {
    "gcn": GcnEncoder,
    "sage_residual": SageResidualEncoder,
    "sage_skip": SageSkipEncoder,
}


def new_encoder(in_dim: int, settings: EncoderSettings, num_relations: int = 1) -> Encoder | RelationEncoders:
    """What the settings name, its first weights from torch's generator: one encoder, or one for each relation."""
    if settings.per_relation:
        return RelationEncoders(_encoder(in_dim, settings) for _ in range(num_relations))
    return _encoder(in_dim, settings)


def _encoder(in_dim: int, settings: EncoderSettings) -> Encoder:
    match settings.kind:
        case "gcn":
            return GcnEncoder(in_dim, settings.layers, settings.batch_norm_momentum)
        case "sage_residual":
            return SageResidualEncoder(in_dim, settings.layers)
        case "sage_skip":
            return SageSkipEncoder(in_dim, settings.layers)
