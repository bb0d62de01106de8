"""The graphs that views and embeddings are of: the bundle's one, or every relation of a multiplex graph.

Where every relation is a view, a node's embedding is the mean of its embeddings in all of them
(paper, "Extension to Heterogeneous Graphs").
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from preprocessing.bundle import Bundle, Topology
from preprocessing.errors import InputError
from preprocessing.stage import Emitter
from trainer.encoders import Encoder, RelationEncoders
from trainer.features import FeatureStore
from trainer.inference import embed
from trainer.layer_arrays import LayerArrays
from trainer.settings import ViewKind

__all__ = ["embed_bundle", "view_topologies"]

ADDED_ROWS = 65_536


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
    arrays: LayerArrays,
    *,
    device: torch.device | str = "cpu",
    emitter: Emitter | None = None,
) -> int:
    """Embed every node, in one relation after the other; the answer is the step of ``arrays`` with the vectors, [N, D].

    A relation's steps (``inference.embed``) are followed by one that adds them to the relations' before.
    """
    topologies = view_topologies(bundle, views)
    layers = encoder.relation(0).num_layers
    rows = layers * bundle.num_nodes
    found = 0
    for number, topology in enumerate(topologies):
        made = embed(
            encoder.relation(number),
            features,
            topology,
            arrays,
            number * (layers + 2),
            device=device,
            progress=partial(_report, emitter, number * rows, len(topologies) * rows),
        )
        if number > 0:
            share = len(topologies) if number + 1 == len(topologies) else 1
            _add(arrays, found, made, made + 1, share)
            made += 1
        found = made
    return found


def _report(emitter: Emitter | None, before: int, total: int, done: int) -> None:
    if emitter is not None:
        emitter.progress(before + done, total, "nodes and layers embedded")


def _add(arrays: LayerArrays, one: int, other: int, into: int, share: int) -> None:
    """A step that is the sum of two, divided by ``share``; they go."""
    if (done := arrays.done(into)) < arrays.nodes:
        (one_ND,), (other_ND,) = arrays.of(one), arrays.of(other)
        for first in range(done, arrays.nodes, ADDED_ROWS):
            rows = slice(first, min(first + ADDED_ROWS, arrays.nodes))
            arrays.write(into, rows, [(one_ND[rows] + other_ND[rows]) / np.float32(share)])
    arrays.drop(one)
    arrays.drop(other)
