"""Small bundles for the trainer's tests: ingested from npz files, PPR rows by dense algebra."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from preprocessing.artifact import build, fingerprint
from preprocessing.bundle import PPR, Bundle
from preprocessing.degree_weights import write_degree_weights
from preprocessing.ingest import ingest
from preprocessing.row_parts import write_matrices
from preprocessing.settings import DegreeWeightSettings
from preprocessing.stage import Emitter
from trainer.features import Features, FeatureStore

ALPHA, BETA, TELEPORT = 0.9, 0.1, 0.15

# Threads that wait for each other cost these small networks more than they save.
torch.set_num_threads(1)


class Recorder(Emitter):
    """Keeps the events."""

    def __init__(self) -> None:
        super().__init__("train")
        self.events: list[dict[str, Any]] = []

    def _emit(self, event: str, **fields: Any) -> None:
        self.events.append({"event": event, **fields})

    def of(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.events if line["event"] == event]


def every_row(store: FeatureStore) -> Features:
    """The features of all nodes, [N, F]."""
    return store.rows(np.arange(store.num_nodes))


def random_edges(nodes: int, edges: int, seed: int) -> np.ndarray:
    """Edges among all nodes but the last, which stays isolated; [E, 2]."""
    rng = np.random.default_rng(seed)
    path = np.stack([np.arange(nodes - 2), np.arange(1, nodes - 1)], axis=1)
    return np.concatenate([path, rng.integers(0, nodes - 1, size=(edges, 2))])


def make_bundle(
    folder: Path,
    nodes: int = 40,
    edges: int = 60,
    *,
    features: np.ndarray | None = None,
    top_k: int = 4,
    direction: str = "undirected",
    seed: int = 0,
) -> Bundle:
    """A bundle at ``folder / "bundle"``; random features of 12 columns unless some are given."""
    rng = np.random.default_rng(seed)
    pairs = random_edges(nodes, edges, seed)
    if features is None:
        features = rng.normal(size=(nodes, 12)).astype(np.float32)
    bundle = ingested(folder, pairs, features, direction)
    write_ppr(bundle, top_k)
    write_weights(bundle)
    return bundle


def ingested(folder: Path, pairs: np.ndarray, features: np.ndarray, direction: str = "undirected") -> Bundle:
    """A bundle at ``folder / "bundle"`` without PPR rows and weights; features [N, F], F perhaps 0."""
    nodes = len(features)
    adjacency = csr(nodes, pairs)
    arrays: dict[str, Any] = {f"adj_{name}": value for name, value in adjacency.items()}
    if features.shape[1]:
        entries = np.nonzero(features)
        arrays |= {
            "attr_data": features[entries],
            "attr_indices": entries[1],
            "attr_indptr": np.concatenate([[0], np.cumsum((features != 0).sum(axis=1))]),
            "attr_shape": np.array(features.shape),
        }
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "graph.npz", **arrays, labels=np.arange(nodes) % 3)
    source = {"kind": "npz", "path": str(folder / "graph.npz")}
    ingest({"out": folder / "bundle", "settings": {"source": source, "direction": direction}}, Emitter("ingest"))
    return Bundle(folder / "bundle")


def make_ring(folder: Path, nodes: int) -> Bundle:
    """Nodes around a circle under shuffled numbers, each the neighbour and local anchor of the two beside it."""
    rng = np.random.default_rng(nodes)
    circle = rng.permutation(nodes)
    bundle = ingested(
        folder, np.stack([circle, np.roll(circle, -1)], axis=1), rng.normal(size=(nodes, 4)).astype(np.float32)
    )
    neighbors = np.empty((nodes, 3), dtype=np.int64)
    neighbors[circle] = np.stack([circle, np.roll(circle, -1), np.roll(circle, 1)], axis=1)
    write_ppr_rows(bundle, neighbors, np.tile([0.5, 0.2, 0.2], (nodes, 1)))
    write_weights(bundle)
    return bundle


def csr(nodes: int, pairs: np.ndarray) -> dict[str, np.ndarray]:
    ordered = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    counts = np.bincount(ordered[:, 0], minlength=nodes)
    return {
        "data": np.ones(len(ordered)),
        "indices": ordered[:, 1],
        "indptr": np.concatenate([[0], np.cumsum(counts)]),
        "shape": np.array([nodes, nodes]),
    }


def dense(topology: Any) -> np.ndarray:
    """The 0/1 adjacency, row by row."""
    matrix = np.zeros((topology.num_nodes, topology.num_nodes))
    for row in range(topology.num_nodes):
        matrix[row, topology.neighbors(row)] = 1
    return matrix


def diffusion(adjacency: np.ndarray) -> np.ndarray:
    """S of METHOD, by the inverse."""
    looped = adjacency + np.eye(len(adjacency))
    root = looped.sum(axis=1) ** -0.5
    transition = root[:, None] * looped * root[None, :]
    return TELEPORT * np.linalg.inv(np.eye(len(adjacency)) - (1 - TELEPORT) * transition)


def write_ppr(bundle: Bundle, top_k: int) -> None:
    scores = diffusion(dense(bundle.symmetric))
    scores[scores < 1e-12] = 0
    order = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
    best = np.take_along_axis(scores, order, axis=1)
    write_ppr_rows(bundle, np.where(best > 0, order, -1), best)


def write_ppr_rows(bundle: Bundle, neighbors: np.ndarray, scores: np.ndarray) -> None:
    """Rows [N, K]; neighbours that there are not are -1, of score 0."""
    nodes, top_k = neighbors.shape
    table = pa.table(
        {
            "node": np.arange(nodes),
            "neighbors": pa.FixedSizeListArray.from_arrays(neighbors.reshape(-1), top_k),
            "scores": pa.FixedSizeListArray.from_arrays(scores.astype(np.float32).reshape(-1), top_k),
            "count": (scores > 0).sum(axis=1).astype(np.int32),
            "exact": np.ones(nodes, bool),
            "error": np.zeros(nodes, np.float32),
        }
    )
    with build(bundle.path / "ppr", PPR, fingerprint("test")) as made:
        pq.write_table(table, made.path / "part-00000.parquet")
        write_matrices(made.path, [(0, nodes)], top_k)
        made.publish({"settings": {"top_k": top_k}, "bundle": bundle.content_hash})


def write_weights(bundle: Bundle) -> None:
    write_degree_weights(bundle, DegreeWeightSettings(alpha=ALPHA, beta=BETA), 16_384, Emitter("preprocess"))


def settings_document(**parts: dict[str, Any]) -> dict[str, Any]:
    """Small networks and few epochs; ``parts`` are laid over the sections."""
    base: dict[str, dict[str, Any]] = {
        "encoder": {"layers": [16, 8], "predictor_hidden": 16},
        "anchors": {"num_global": 7, "num_local": 3, "weights": {"alpha": ALPHA, "beta": BETA}},
        "run": {"epochs": 4, "checkpoint_every": 2},
        "batch": {"mode": "full"},
    }
    return {name: base.get(name, {}) | parts.get(name, {}) for name in {*base, *parts}}
