"""An embedding set whose map, labels, edges and report are known, behind a server in a process of its own.

Nodes 1000, 1001, … lie about six directions, node i about direction i modulo 6, which is its label's too; each shares
an edge with the third of its direction before and after it, and the first with all others of its direction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from embedding_fixtures import write_set
from page_harness import Look
from playwright.sync_api import Page
from service_harness import Server, settings_in

from preprocessing.bundle import Bundle
from preprocessing.ingest import ingest
from preprocessing.stage import Emitter
from service.search.index_settings import IndexSettings, ProjectionSettings
from service.search.indexing import build_index

NODES, CLASSES, FIRST, DIM = 240, 6, 1000, 16
PALETTE = Path(__file__).parents[3] / "service" / "page" / "src" / "map" / "palette.ts"
REPORT: dict[str, Any] = {
    "objective": "rgrl",
    "epochs": 3,
    "notes": ["a note of the evaluation"],
    "probe": {
        "protocol": {"metric": "accuracy", "splits": 20, "split": "random"},
        "trained": {"last": {"test_mean": 0.9321, "test_std": 0.0042}},
        "baselines": {"raw_features": {"test_mean": 0.8713, "test_std": 0.01}, "random_encoder": None},
    },
    "degree_buckets": [
        {"min_degree": 2, "max_degree": 3, "nodes": 234, "error_rate": 0.125},
        {"min_degree": 32, "max_degree": 63, "nodes": 1, "error_rate": 0.5},
    ],
    "links": {
        "trained": {"last": {"random": {"test_auc": 0.981}, "hard": None}},
        "baselines": {"common_neighbors": {"random": {"test_auc": 0.871}, "hard": {"test_auc": 0.66}}},
    },
    "collapse": {
        "effective_rank": 11.25,
        "dim": DIM,
        "std_mean": 0.2,
        "std_even": 0.25,
        "idle_share": 0.125,
        "mean_cosine": 0.0312,
        "collapsed": False,
        "rule": "mean_cosine > 0.99",
    },
    "losses": [{"epoch": 1, "loss": 9.5}, {"epoch": 2, "loss": None}, {"epoch": 3, "loss": 4.25}],
    "summary": {
        "effective_rank": 11.25,
        "collapsed": False,
        "notes": [],
        "test_accuracy": {"rgrl": 0.9321, "raw_features": 0.8713},
    },
}


@dataclass(frozen=True)
class World:
    """``points`` [N, 2] of the map by row; ``edges`` are pairs of ids, both ways."""

    server: Server
    folder: Path
    whole: str
    sample: str
    bare: str
    labels: list[str | None]
    degrees: np.ndarray
    points: np.ndarray
    edges: set[tuple[str, str]]

    def neighbors(self, ref: str, node: str, k: int = 10, connected: bool = False) -> list[dict[str, Any]]:
        """What the API answers."""
        body = {"queries": [{"id": node}], "k": k, "exclude": {"connected": connected}}
        answer = self.server.client.post(f"/v1/embeddings/{ref}/neighbors", json=body)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["answers"][0]["results"])

    def labelled(self, name: str, labels: list[str | None]) -> tuple[str, str]:
        """A graph, a path of nodes 0, 1, … of these labels, and a set of it with all of them on its map."""
        data, ids = self.folder / "data", list(range(len(labels)))
        pq.write_table(pa.table({"id": ids, "label": labels}), data / f"{name}.parquet")
        pq.write_table(pa.table({"source": ids[:-1], "target": ids[1:]}), data / f"{name}-edges.parquet")
        source = {"nodes": str(data / f"{name}.parquet"), "edges": str(data / f"{name}-edges.parquet")}
        source |= {"kind": "tables", "label": "label"}
        ingest({"out": str(data / f"{name}-bundle"), "settings": {"source": source}}, Emitter("ingest"))
        vectors = np.random.default_rng(0).standard_normal((len(ids), 8)).astype(np.float32)
        made = write_set(data / name, vectors, ids, Bundle(data / f"{name}-bundle").content_hash)
        projection = ProjectionSettings(method="pca", points=len(ids))
        build_index(made, IndexSettings(projection=projection), Emitter("index"))
        client = self.server.client
        graph = client.post("/v1/graphs", json={"bundle": f"{name}-bundle"}).json()["id"]
        return graph, client.post("/v1/embeddings", json={"path": name, "graph": graph}).json()["id"]

    def forget(self, graph: str, ref: str) -> None:
        for path in (f"/v1/embeddings/{ref}", f"/v1/graphs/{graph}"):
            assert self.server.client.delete(path).status_code == 204


def row_of(node: str) -> int:
    return int(node) - FIRST


@contextmanager
def map_world(folder: Path) -> Iterator[World]:
    """``whole``: every node on the map, evaluated; ``sample``: 50 of them on it; ``bare``: no index and no map."""
    settings = settings_in(folder)
    data = folder / "data"
    ids = [FIRST + row for row in range(NODES)]
    # Fewer of each class than of the one before it, and some without.
    kinds = np.arange(NODES) % CLASSES
    labels = [
        None if row % 40 == 0 or (row // CLASSES) < 2 * kind else f"kind {kind}" for row, kind in enumerate(kinds)
    ]
    pairs = {(row, row + 3 * CLASSES) for row in range(NODES - 3 * CLASSES)} | {(0, row) for row in range(6, NODES, 6)}
    table = {"id": ids, "label": labels, "x": [float(row) for row in ids]}
    pq.write_table(pa.table(table), data / "nodes.parquet")
    ends = np.array(sorted(pairs)) + FIRST
    pq.write_table(pa.table({"source": ends[:, 0], "target": ends[:, 1]}), data / "edges.parquet")
    source = {"kind": "tables", "nodes": str(data / "nodes.parquet"), "edges": str(data / "edges.parquet")}
    source |= {"features": ["x"], "label": "label"}
    ingest({"out": str(data / "bundle"), "settings": {"source": source}}, Emitter("ingest"))
    content = Bundle(data / "bundle").content_hash
    rng = np.random.default_rng(8)
    vectors = 3 * rng.standard_normal((CLASSES, DIM))[kinds] + rng.standard_normal((NODES, DIM))
    for name, points in (("whole", NODES), ("sample", 50), ("bare", None)):
        made = write_set(data / name, vectors.astype(np.float32), ids, content)
        if points:
            projection = ProjectionSettings(method="pca", points=points)
            build_index(made, IndexSettings(kind="hnsw", effort=200, projection=projection), Emitter("index"))
    (data / "whole" / "report.json").write_text(json.dumps(REPORT))
    degrees = np.bincount(np.array(sorted(pairs)).ravel(), minlength=NODES)
    edges = {(str(FIRST + one), str(FIRST + other)) for pair in pairs for one, other in (pair, pair[::-1])}
    with Server(settings) as server:
        graph = server.client.post("/v1/graphs", json={"bundle": "bundle", "name": "six kinds"}).json()["id"]
        refs = [
            server.client.post("/v1/embeddings", json={"path": name, "graph": graph, "name": name}).json()["id"]
            for name in ("whole", "sample", "bare")
        ]
        assert server.client.put("/v1/aliases/live", json={"embedding": refs[0]}).status_code == 200
        placed = np.load(data / "whole" / "projection" / "points.npy")
        yield World(server, folder, *refs, labels, degrees, placed, edges)


class Map:
    """The map on an open page, and where on it a node has to lie: all points fitted to 92 % of its frame."""

    def __init__(self, world: World, page: Page) -> None:
        self.world, self.page = world, page
        self.frame = page.get_by_role("application")
        page.wait_for_selector("[data-drawn]")
        box = self.frame.bounding_box()
        assert box is not None
        self.box = box
        low, high = world.points.min(axis=0), world.points.max(axis=0)
        self.scale = 0.92 * min(box["width"] / (high - low)[0], box["height"] / (high - low)[1])
        self.middle = (low + high) / 2

    def place(self, row: int) -> tuple[float, float]:
        """In pixels of the frame."""
        right, up = (self.world.points[row] - self.middle) * self.scale
        return self.box["width"] / 2 + float(right), self.box["height"] / 2 - float(up)

    def at(self, row: int) -> tuple[float, float]:
        """In pixels of the window."""
        left, top = self.place(row)
        return self.box["x"] + left, self.box["y"] + top

    def alone(self, reach: float = 24) -> list[int]:
        """Nodes with no other within ``reach`` pixels, away from the frame's rim and its buttons."""
        places = np.array([self.place(row) for row in range(NODES)])
        apart = np.linalg.norm(places[:, None] - places[None], axis=2) + np.eye(NODES) * 1e9
        far = apart.min(axis=1) > reach
        inside = (places[:, 0] > 20) & (places[:, 0] < self.box["width"] - 60) & (places[:, 1] > 20)
        return np.flatnonzero(far & inside & (places[:, 1] < self.box["height"] - 20)).tolist()

    def colors(self, rows: list[int]) -> np.ndarray:
        """What the canvas shows where these nodes lie, RGB [n, 3]."""
        places = [self.place(row) for row in rows]
        script = """(places) => { const canvas = document.querySelector(".map canvas");
            const context = canvas.getContext("2d");
            return places.map(([x, y]) => [...context.getImageData(Math.floor(x), Math.floor(y), 1, 1).data]); }"""
        return np.array(self.page.evaluate(script, places))[:, :3]


def open_map(world: World, look: Look, place: str = "", **how: Any) -> Map:
    return Map(world, look(world.server, f"#/embeddings/{world.whole}{place}", **how))


def palette(dark: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Colours of kinds [12, 3], of what has none [3], and of the ground [3]."""
    text = PALETTE.read_text(encoding="utf-8")
    parts = [
        [
            int(pair[dark], 16)
            for pair in re.findall(r"\[0x(\w{6}), 0x(\w{6})\]", text[text.index(name) :].split(";")[0])
        ]
        for name in ("KINDS:", "OTHER:", "GROUND:")
    ]
    kinds, other, ground = (np.array([[c >> 16, (c >> 8) & 255, c & 255] for c in part]) for part in parts)
    return kinds, other[0], ground[0]
