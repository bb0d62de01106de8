"""The graphs that views and embeddings are of: the bundle's one, or every relation of a multiplex graph.

Where every relation is a view, a node's embedding is the mean of its embeddings in all of them
(paper, "Extension to Heterogeneous Graphs").
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from preprocessing.array_types import Float32Array
from preprocessing.bundle import Bundle, Topology
from preprocessing.errors import InputError
from preprocessing.stage import Emitter
from trainer.encoders import Encoder, RelationEncoders
from trainer.features import FeatureStore
from trainer.inference import embed, scratch
from trainer.settings import ViewKind

__all__ = ["embed_bundle", "view_topologies"]


def view_topologies(bundle: Bundle, views: ViewKind) -> list[Topology]:
    """``InputError`` where every relation is to be a view and there are not two of them."""
    if views == "augmented":
        return [bundle.topology]
    if len(bundle.relations) < 2:
        raise InputError(
            "the graph has no relations to make views of",
            where=str(bundle.path),
            given="one kind of edges",
            expected="two relations or more",
            remedy="views = augmented, or ingest a table of edges a relation (`relations`)",
        )
    return [bundle.relation(name) for name in bundle.relations]


def embed_bundle(
    encoder: Encoder | RelationEncoders,
    features: FeatureStore,
    bundle: Bundle,
    views: ViewKind,
    out_ND: Float32Array,
    *,
    directory: Path,
    device: torch.device | str = "cpu",
    emitter: Emitter | None = None,
) -> None:
    """Write every node's embedding into ``out_ND``, one relation after the other; see ``inference.embed``."""
    topologies = view_topologies(bundle, views)
    part_ND = out_ND
    for number, topology in enumerate(topologies):
        embed(
            encoder.relation(number), features, topology, part_ND, directory=directory, device=device, emitter=emitter
        )
        if number > 0:
            np.add(out_ND, part_ND, out=out_ND)
        elif len(topologies) > 1:
            part_ND = scratch(out_ND.shape, directory)
    if len(topologies) > 1:
        np.divide(out_ND, len(topologies), out=out_ND)
