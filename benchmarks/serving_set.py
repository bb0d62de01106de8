"""An embedding set to serve: vectors as embeddings have them, their graph, an index, and a home that holds them.

Vectors are a mixture of Gaussians, a cluster for every ``CLUSTER`` nodes, each in a subspace of ``INTRINSIC``
dimensions with a little noise in all of them. The graph is a ring in which everyone knows the next few.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from preprocessing.artifact import build, finished, read_manifest
from preprocessing.bundle import BUNDLE
from preprocessing.ids import IdMap
from preprocessing.stage import Emitter
from service.identifiers import new_id
from service.search.embedding_set import EMBEDDING_SET
from service.search.index_settings import IndexSettings
from service.search.indexing import build_index
from service.settings import ServiceSettings
from service.store import Store
from service.store.embeddings import insert_embedding, point_alias, set_part

__all__ = ["ALIAS", "DIM", "home_with", "make_set"]

ALIAS = "live"
DIM, CLUSTER, INTRINSIC, NOISE, REACH = 128, 1000, 16, 0.05, 5


def make_set(folder: Path, nodes: int) -> Path:
    """``folder/set`` and its graph ``folder/graph``, with an HNSW index; what is there already is kept."""
    identity = f"serving {nodes}"
    if finished(folder / "graph", BUNDLE, identity) is None:
        with build(folder / "graph", BUNDLE, identity) as making:
            (making.path / "topology").mkdir()
            steps = np.array([step for step in range(-REACH, REACH + 1) if step])
            rows = np.sort((np.arange(nodes)[:, None] + steps) % nodes, axis=1)
            np.save(making.path / "topology" / "indptr.npy", np.arange(0, rows.size + 1, len(steps), dtype=np.int64))
            np.save(making.path / "topology" / "indices.npy", rows.astype(np.int32).reshape(-1))
            IdMap(np.arange(nodes, dtype=np.int64)).save(making.path)
            counts = {"nodes": nodes, "arcs": rows.size, "edges": rows.size // 2}
            making.publish({"counts": counts, "direction": "undirected", "features": {"layout": "none"}})
    if finished(folder / "set", EMBEDDING_SET, identity) is None:
        with build(folder / "set", EMBEDDING_SET, identity) as making:
            np.save(making.path / "vectors.npy", _vectors(nodes))
            IdMap(np.arange(nodes, dtype=np.int64)).save(making.path)
            content = read_manifest(folder / "graph", BUNDLE)["content_hash"]
            making.publish({"counts": {"nodes": nodes, "dim": DIM}, "bundle": {"path": "", "content_hash": content}})
    build_index(folder / "set", IndexSettings(kind="hnsw"), Emitter("index"))
    return folder / "set"


def _vectors(nodes: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    vectors = np.empty((nodes, DIM), dtype=np.float32)
    for start in range(0, nodes, CLUSTER):
        count = min(CLUSTER, nodes - start)
        center, axes = rng.standard_normal(DIM), rng.standard_normal((INTRINSIC, DIM)) / np.sqrt(INTRINSIC)
        spread = rng.standard_normal((count, INTRINSIC)) @ axes
        vectors[start : start + count] = center + spread + NOISE * rng.standard_normal((count, DIM))
    return vectors[rng.permutation(nodes)]


def home_with(home: Path, embeddings: Path, graph: Path | None) -> ServiceSettings:
    """A server's home whose alias ``ALIAS`` names the set, as the job that made it would have left it."""
    settings = ServiceSettings(home=home)
    store = Store(settings)
    made = store.add_graph(
        name="serving",
        source=None,
        bundle=graph,
        manifest=None if graph is None else read_manifest(graph, BUNDLE),
        direction="undirected",
        feature_dtype="float32",
    )
    identity, index = new_id("emb"), read_manifest(embeddings / "index", "knn_index")
    counts = read_manifest(embeddings, EMBEDDING_SET)["counts"]
    with store.writing() as connection:
        insert_embedding(connection, identity, graph=made.id, job="job_0", path=embeddings, counts=counts)
        set_part(connection, identity, "index", {name: index[name] for name in ("index", "counts", "recall", "effort")})
        point_alias(connection, ALIAS, identity)
    store.close()
    return settings
