"""Stage ``split-edges``: a bundle to a training bundle without the edges that link prediction is measured on.

The paper's protocol (section 5.1): edges at random 50/20/30 to train, validate and test, and as many unconnected pairs
of each part, both random ones and hard ones, at two or three hops. An edge is an unordered pair of the undirected
adjacency, also of a directed graph: both of its arcs go or stay. "Unconnected" and "hops" are meant on the whole graph.

The new bundle has the nodes, features and labels of the old one, its training edges, and ``links.parquet``
(``preprocessing.link_table``). PPR rows and anchor weights are not taken over: they know the edges held out.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from preprocessing.array_types import Int64Array, IntArray
from preprocessing.artifact import build, existing, fingerprint, make_folder
from preprocessing.bundle import BUNDLE, Bundle, Topology
from preprocessing.errors import InputError
from preprocessing.link_table import LINKS, NEGATIVES, PARTS, write_links
from preprocessing.negative_pairs import hard_pairs, random_pairs
from preprocessing.settings import EdgeSplitSettings, Settings
from preprocessing.stage import Emitter
from preprocessing.topology import EdgeCounts

__all__ = ["split_edges"]

CHUNK_ARCS = 1 << 22


class _Spec(Settings):
    bundle: Path
    out: Path
    settings: EdgeSplitSettings = EdgeSplitSettings()


def split_edges(spec: dict[str, Any], emitter: Emitter) -> Mapping[str, Any]:
    """Stage ``split-edges``: ``{"bundle": PATH, "out": PATH, "settings": EdgeSplitSettings}``.

    The same bundle and settings make the same bytes. A graph with fewer unconnected pairs than edges gets all it has,
    dealt in the shares of the edges, and a warning. ``InputError`` when a part would have no edge, ``UsageError`` when
    ``out`` is something else.
    """
    request = _Spec.model_validate(spec)
    bundle = Bundle(request.bundle)
    settings = request.settings.model_dump(exclude={"threads"})
    identity = fingerprint("split-edges", bundle.content_hash, settings)
    manifest = existing(request.out, BUNDLE, identity, "the split that this bundle and these settings made")
    if manifest is None:
        with build(request.out, BUNDLE, identity) as made:
            contents = _write(bundle, made.path, request.settings, emitter)
            contents["edge_split"]["settings"] = settings
            manifest = made.publish(contents)
    return {"out": str(request.out)} | {name: manifest[name] for name in ("counts", "edge_split", "content_hash")}


def _write(bundle: Bundle, path: Path, settings: EdgeSplitSettings, emitter: Emitter) -> dict[str, Any]:
    """Write every file; the answer is the manifest's part about them."""
    rng = np.random.default_rng(settings.seed)
    nodes, edges_E = bundle.num_nodes, _edge_keys(bundle.symmetric)
    counts = _shares(len(edges_E), settings)
    order = rng.permutation(len(edges_E))
    training_E = np.zeros(len(edges_E), dtype=np.bool_)
    training_E[order[: counts[0]]] = True

    for name in bundle.manifest["files"]:
        # A split can be split again: its pairs are not taken over, and a file of two names is not written to.
        if not name.startswith("topology/") and name != LINKS:
            _share_file(bundle.path / name, path / name)
    kept = {
        folder: _write_arcs(bundle.path / folder, path / folder, edges_E, training_E)
        for folder in ["topology", *(f"topology/{name}" for name in bundle.relations)]
    }
    threads = settings.threads or len(os.sched_getaffinity(0))
    negatives = {
        "random": random_pairs(nodes, edges_E, len(edges_E), rng),
        "hard": hard_pairs(
            bundle.symmetric,
            len(edges_E),
            rng,
            threads,
            lambda done, total: emitter.progress(done, total, "nodes searched for hard negatives"),
        ),
    }
    links: dict[tuple[str, str | None], Int64Array] = {}
    for kind, keys in [(None, edges_E[order]), *negatives.items()]:
        bounds = np.cumsum([0, *counts]) * len(keys) // len(edges_E)
        for part, first, end in zip(PARTS, bounds[:-1], bounds[1:], strict=True):
            links[part, kind] = np.stack(np.divmod(keys[first:end], nodes), axis=1)
    for kind in NEGATIVES:
        if len(negatives[kind]) < len(edges_E):
            emitter.warning(
                "few_negatives",
                f"the graph has {len(edges_E)} edges and only {len(negatives[kind])} {kind} negatives: all are taken",
            )
    write_links(path, links)
    copied = ("direction", "id_type", "features", "labels", "split", "attributes", "warnings", "settings")
    return {
        **{name: bundle.manifest[name] for name in copied if name in bundle.manifest},
        "counts": {"nodes": nodes, **asdict(kept["topology"])},
        "relations": {name: asdict(kept[f"topology/{name}"]) for name in bundle.relations},
        "edge_split": {
            "of": {"path": str(bundle.path.absolute()), "content_hash": bundle.content_hash},
            "pairs": {part: {kind or "edges": len(links[part, kind]) for kind in (None, *NEGATIVES)} for part in PARTS},
        },
    }


def _shares(edges: int, settings: EdgeSplitSettings) -> list[int]:
    train, validation = round(settings.train_share * edges), round(settings.validation_share * edges)
    counts = [train, validation, edges - train - validation]
    if min(counts) < 1:
        raise InputError(
            "the graph has too few edges to split",
            given=f"{edges} edges, {counts[0]} to train, {counts[1]} to validate and {counts[2]} to test",
            expected="at least one of each",
            remedy="use a larger graph, or other shares",
        )
    return counts


def _share_file(source: Path, target: Path) -> None:
    """The same content under a second name, by a hard link where the file system has them: bundles never change."""
    make_folder(target.parent)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP}:
            raise
        shutil.copyfile(source, target)


def _arcs(graph: Topology) -> Iterator[tuple[Int64Array, IntArray]]:
    """Rows and columns of the stored arcs, in order, so many at a time."""
    for first in range(0, graph.num_arcs, CHUNK_ARCS):
        arcs = np.arange(first, min(first + CHUNK_ARCS, graph.num_arcs))
        yield np.searchsorted(graph.indptr, arcs, side="right") - 1, graph.indices[arcs[0] : arcs[-1] + 1]


def _edge_keys(graph: Topology) -> Int64Array:
    """lesser node · N + greater node of every edge of an undirected graph, ascending; [E]."""
    keys = [(rows * graph.num_nodes + columns)[rows < columns] for rows, columns in _arcs(graph)]
    return np.concatenate([np.empty(0, dtype=np.int64), *keys])


def _write_arcs(source: Path, target: Path, edges_E: Int64Array, training_E: npt.NDArray[np.bool_]) -> EdgeCounts:
    """The adjacency at ``source``, and its undirected one where it has one, without the edges held out."""
    kept = _filter(source, target, edges_E, training_E)
    directed = (source / "symmetric").is_dir()
    union = _filter(source / "symmetric", target / "symmetric", edges_E, training_E) if directed else kept
    edges = kept.num_arcs if directed else kept.num_arcs // 2
    return EdgeCounts(
        given=edges,
        self_loops=0,
        duplicate_edges=0,
        reciprocal_edges=kept.num_arcs - union.num_arcs // 2 if directed else 0,
        edges=edges,
        arcs=kept.num_arcs,
        isolated=int(np.count_nonzero(union.degrees() == 0)),
    )


def _filter(source: Path, target: Path, edges_E: Int64Array, training_E: npt.NDArray[np.bool_]) -> Topology:
    """Write the arcs whose edges are for training; weights as they were."""
    graph = Topology.open(source)
    make_folder(target)
    kept_A = np.empty(graph.num_arcs, dtype=np.bool_)
    end = 0
    for rows, columns in _arcs(graph):
        keys = np.minimum(rows, columns) * graph.num_nodes + np.maximum(rows, columns)
        kept_A[end : end + len(keys)] = training_E[np.searchsorted(edges_E, keys)]
        end += len(keys)
    np.save(target / "indptr.npy", np.concatenate([[0], np.cumsum(kept_A)])[graph.indptr])
    np.save(target / "indices.npy", graph.indices[kept_A])
    if graph.weights is not None:
        np.save(target / "weights.npy", graph.weights[kept_A])
    return Topology.open(target)
