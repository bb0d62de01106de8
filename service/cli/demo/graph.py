"""The demo's graph: scikit-learn's handwritten digits, an image a node, joined to the ten images most like it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["write_digits"]

NEIGHBORS = 10


def write_digits(folder: Path) -> Path:
    """Write ``nodes.parquet`` (id, pixels, label) and ``edges.parquet`` (source, target) as a user would bring them."""
    from sklearn.datasets import load_digits
    from sklearn.neighbors import kneighbors_graph

    digits = load_digits()
    pixels = (digits.data / 16).astype("float32")
    source, target = kneighbors_graph(digits.data, NEIGHBORS).nonzero()
    columns = pa.FixedSizeListArray.from_arrays(pa.array(pixels.reshape(-1)), pixels.shape[1])
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.table({"id": range(len(pixels)), "pixels": columns, "label": digits.target}), folder / "nodes.parquet"
    )
    pq.write_table(pa.table({"source": source, "target": target}), folder / "edges.parquet")
    return folder
