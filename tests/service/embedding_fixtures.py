"""Tiny graphs and embedding sets, written with numpy, and servers that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from preprocessing.artifact import build
from preprocessing.bundle import BUNDLE
from preprocessing.ids import IdMap
from service.search.embedding_set import EMBEDDING_SET
from service.search.index_settings import ProjectionSettings
from service.settings import ServiceSettings
from service.store import Store

CONTENT = "the graph's content"
QUICK_MAP = ProjectionSettings(method="pca")
"""For tests that are about something else: nothing is imported or compiled for it."""


def id_map(ids: Sequence[int] | Sequence[str]) -> IdMap:
    if isinstance(ids[0], str):
        return IdMap(pa.array(ids, pa.large_string()))
    return IdMap(np.array(ids, dtype=np.int64))


def write_set(
    path: Path, vectors: npt.NDArray[Any], ids: Sequence[int] | Sequence[str] | None = None, content: str = CONTENT
) -> Path:
    """An embedding set as the trainer leaves one, less what only the trainer reads."""
    nodes, dim = vectors.shape
    with build(path, EMBEDDING_SET, "test") as making:
        np.save(making.path / "vectors.npy", vectors)
        id_map(range(nodes) if ids is None else ids).save(making.path)
        making.publish({"counts": {"nodes": nodes, "dim": dim}, "bundle": {"path": "", "content_hash": content}})
    return path


def write_bundle(path: Path, nodes: int, edges: Sequence[tuple[int, int]], content: str | None = None) -> str:
    """A bundle of topology alone; the answer is its content hash."""
    neighbors: list[list[int]] = [[] for _ in range(nodes)]
    for one, other in edges:
        neighbors[one].append(other)
        neighbors[other].append(one)
    with build(path, BUNDLE, content or "test") as making:
        (making.path / "topology").mkdir()
        lengths = [0, *(len(row) for row in neighbors)]
        np.save(making.path / "topology" / "indptr.npy", np.cumsum(lengths, dtype=np.int64))
        flat = [other for row in neighbors for other in sorted(row)]
        np.save(making.path / "topology" / "indices.npy", np.array(flat, dtype=np.int32))
        id_map(range(nodes)).save(making.path)
        manifest = making.publish(
            {
                "counts": {"nodes": nodes, "arcs": len(flat), "edges": len(edges)},
                "direction": "undirected",
                "settings": {"feature_dtype": "float32"},
                "features": {"layout": "none"},
                "labels": None,
                "warnings": [],
            }
        )
    return str(manifest["content_hash"])


def add_set(store: Store, path: Path, bundle: Path | None = None) -> str:
    """Register a graph and an embedding set at ``path``; the answer is the set's id."""
    from service.identifiers import new_id
    from service.store.embeddings import insert_embedding

    graph = store.add_graph(
        name=None,
        source={"kind": "npz", "path": "/gone/graph.npz"},
        bundle=bundle,
        manifest=None,
        direction="undirected",
        feature_dtype="float32",
    )
    identity = new_id("emb")
    nodes, dim = np.load(path / "vectors.npy", mmap_mode="r").shape
    with store.writing() as connection:
        insert_embedding(
            connection, identity, graph=graph.id, job="job_0", path=path, counts={"nodes": int(nodes), "dim": int(dim)}
        )
    return identity


def settings(home: Path, **changes: Any) -> ServiceSettings:
    return ServiceSettings(home=home, log_level="error", **changes)
