"""The graph induced by the nodes of some parts of a published split: what an inductive encoder is trained on.

A bundle of its own, with PPR rows of its own, so that nothing of the held-out nodes reaches the training: neither their
features nor an edge, and not their weight in anyone's degree or diffusion. It has no labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from preprocessing.array_types import Int64Array
from preprocessing.artifact import fingerprint
from preprocessing.attributes import Attribute
from preprocessing.bundle import Bundle, DenseFeatures, SparseFeatures, Topology
from preprocessing.errors import InputError
from preprocessing.features import FeatureSource, matrix_features
from preprocessing.ids import IdMap
from preprocessing.ingest import make_bundle
from preprocessing.raw_graph import ArcBlock, Arcs, RawGraph
from preprocessing.settings import GraphSettings, InduceSettings, Settings
from preprocessing.stage import Emitter

__all__ = ["induce"]

BLOCK_ROWS = 1 << 16


class _Spec(Settings):
    bundle: Path
    out: Path
    settings: InduceSettings = InduceSettings()


def induce(spec: dict[str, Any], emitter: Emitter) -> Mapping[str, Any]:
    """Stage ``induce``: ``{"bundle": PATH, "out": PATH, "settings": InduceSettings}`` to a bundle at ``out``.

    Returns its counts, and ``cut_from``: the nodes, labels and split of the whole graph.
    ``InputError`` where the bundle has no split, or its parts no edge among them. Ids stay as they are.
    """
    request = _Spec.model_validate(spec)
    bundle, parts = Bundle(request.bundle), request.settings.parts
    if bundle.split is None:
        raise InputError(
            "the graph has no published split",
            where=str(bundle.path),
            expected="one read by ingest: a split column, or train_mask, val_mask, test_mask of an .npz or PyG graph",
            remedy="ingest the graph again with its split (of tables: name the column)",
        )
    rows = np.sort(np.concatenate([getattr(bundle.split, part) for part in set(parts)]))
    told = bundle.manifest["settings"]
    settings = GraphSettings(direction=told["direction"], feature_dtype=told["feature_dtype"])
    source = {"kind": "induced", "bundle": bundle.content_hash, "parts": sorted(parts)}

    def read(_: Path) -> RawGraph:
        return _induced(bundle, rows, settings)

    summary = make_bundle(request.out, read, settings, source, fingerprint(source), emitter)
    whole = {name: bundle.manifest.get(name) for name in ("labels", "split")}
    return {**summary, "cut_from": {"nodes": bundle.num_nodes, **whole}}


def _induced(bundle: Bundle, rows: Int64Array, settings: GraphSettings) -> RawGraph:
    position_N = np.full(bundle.num_nodes, -1, dtype=np.int64)
    position_N[rows] = np.arange(len(rows))
    named = {name: bundle.relation(name) for name in bundle.relations} or {"edges": bundle.topology}
    # Ingest turns edges round for `reverse`; a bundle's rows are turned already.
    turned = settings.direction == "reverse"
    relations = {name: _arcs(topology, rows, position_N, turned) for name, topology in named.items()}
    ids = bundle.ids.column(rows)
    return RawGraph(
        str(bundle.path),
        IdMap(ids.to_numpy() if bundle.ids.kind == "int64" else ids),
        relations,
        _features(bundle, rows, settings),
        None,
        (),
        union=_arcs(bundle.topology, rows, position_N, turned),
        attributes=tuple(_attribute(bundle.attribute(name), rows) for name in bundle.attributes),
    )


def _arcs(topology: Topology, rows: Int64Array, position_N: Int64Array, turned: bool) -> Arcs:
    """The arcs among ``rows``, whose places among themselves are ``position_N`` [N]; −1 elsewhere."""

    def block(first: int) -> ArcBlock:
        hears = rows[first : first + BLOCK_ROWS]
        starts, lengths = topology.indptr[hears], topology.indptr[hears + 1] - topology.indptr[hears]
        ends = np.cumsum(lengths)
        entries = np.arange(int(lengths.sum())) + np.repeat(starts - ends + lengths, lengths)
        heard = position_N[topology.indices[entries]]
        kept = heard >= 0
        source, target = heard[kept], np.repeat(np.arange(first, first + len(hears)), lengths)[kept]
        weights = None if topology.weights is None else np.asarray(topology.weights[entries[kept]])
        return (target, source, weights) if turned else (source, target, weights)

    def blocks() -> Iterator[Callable[[], ArcBlock]]:
        return (partial(block, first) for first in range(0, len(rows), BLOCK_ROWS))

    return Arcs(topology.num_arcs, topology.weights is not None, blocks)


def _attribute(whole: Attribute, rows: Int64Array) -> Attribute:
    """Strings that no node of ``rows`` has stay among those that codes stand for."""
    return Attribute(whole.name, whole.type, whole.values[rows], whole.strings)


def _features(bundle: Bundle, rows: Int64Array, settings: GraphSettings) -> FeatureSource | None:
    match bundle.features:
        case DenseFeatures() as dense:
            part = np.asarray(dense.values[rows])
        case SparseFeatures() as sparse:
            part = sp.csr_array((sparse.values, sparse.indices, sparse.indptr), shape=sparse.shape)[rows]
        case None:
            return None
    return matrix_features(part, settings.feature_dtype, "features", str(bundle.path))
