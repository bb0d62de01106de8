"""An embedding set of clusters far apart, and the graph it embeds, with labels and attributes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from embedding_fixtures import write_set

from preprocessing.bundle import Bundle
from preprocessing.ingest import ingest
from preprocessing.stage import Emitter

CITIES = ["Bern", "Rom", "Łódź"]


def clusters(nodes: int, dim: int = 16, count: int = 6) -> np.ndarray:
    """Points about ``count`` directions, node i about direction i modulo ``count``."""
    rng = np.random.default_rng(4)
    noise = rng.standard_normal((nodes, dim))
    return (4 * rng.standard_normal((count, dim))[np.arange(nodes) % count] + noise).astype(np.float32)


def attributed(folder: Path, nodes: int) -> tuple[Path, Path]:
    """A set of ids 100, 101, … in a ring, with its bundle: labels and an attribute of each type, each with nulls."""
    ids = list(range(100, 100 + nodes))
    table = {
        "id": ids,
        "label": [None if i % 9 == 0 else f"l{i % 4}" for i in range(nodes)],
        "city": [None if i % 5 == 0 else CITIES[i % 3] for i in range(nodes)],
        "age": [None if i % 7 == 0 else i for i in range(nodes)],
        "height": [None if i % 3 == 0 else i / 4 for i in range(nodes)],
        "member": [None if i % 4 == 0 else bool(i % 2) for i in range(nodes)],
        "x": [float(i) for i in range(nodes)],
    }
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(table), folder / "nodes.parquet")
    # A ring, and the first node knows the tenth, too.
    edges = {"source": [*ids, ids[0]], "target": [*ids[1:], ids[0], ids[10]]}
    pq.write_table(pa.table(edges), folder / "edges.parquet")
    source = {
        "kind": "tables",
        "nodes": str(folder / "nodes.parquet"),
        "edges": str(folder / "edges.parquet"),
        "features": ["x"],
        "label": "label",
        "attributes": ["city", "age", "height", "member"],
    }
    ingest({"out": str(folder / "bundle"), "settings": {"source": source}}, Emitter("ingest"))
    content = Bundle(folder / "bundle").content_hash
    return write_set(folder / "set", clusters(nodes), ids, content), folder / "bundle"
