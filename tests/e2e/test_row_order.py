"""Embeddings follow external ids, whatever the order of the input rows and the number of workers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preprocessing.ids import IdMap

NODES, COLUMNS = 120, 12
TRAINING = {
    "encoder": {"layers": [16, 8], "predictor_hidden": 16},
    "anchors": {"num_global": 32, "num_local": 4},
}


def run(module: str, stage: str, folder: Path, spec: dict) -> None:
    file = folder / f"{stage}.json"
    file.write_text(json.dumps(spec))
    done = subprocess.run([sys.executable, "-m", module, stage, str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def vectors_by_id(folder: Path, nodes: pa.Table, edges: pa.Table, workers: int) -> dict[str, np.ndarray]:
    """Tables to vectors in ``folder``, every stage a process of its own."""
    folder.mkdir()
    pq.write_table(nodes, folder / "nodes.parquet")
    pq.write_table(edges, folder / "edges.parquet")
    source = {"kind": "tables", "nodes": str(folder / "nodes.parquet"), "edges": str(folder / "edges.parquet")}
    bundle, out = str(folder / "bundle"), folder / "embeddings"
    run("preprocessing", "ingest", folder, {"out": bundle, "settings": {"source": source}})
    run("preprocessing", "preprocess", folder, {"bundle": bundle, "settings": {"ppr": {"top_k": 4}}})
    settings = TRAINING | {"batch": {"mode": "full"}, "run": {"epochs": 3, "num_workers": workers}}
    spec = {"bundle": bundle, "out": str(out), "work": str(folder / "work"), "settings": settings}
    run("trainer", "train", folder, spec)
    ids = IdMap.open(out).external(np.arange(NODES))
    return dict(zip(ids, np.load(out / "vectors.npy"), strict=True))


@pytest.mark.parametrize(("kind", "workers"), [("string", 0), pytest.param("int64", 2, marks=pytest.mark.slow)])
def test_vectors_follow_ids_when_rows_and_workers_change(tmp_path: Path, kind: str, workers: int) -> None:
    random = np.random.default_rng(3)
    numbers = random.permutation(10 * NODES)[:NODES]
    names = numbers if kind == "int64" else np.array([f"node {number}" for number in numbers])
    features = random.random((NODES, COLUMNS), dtype=np.float32)
    ends = random.integers(0, NODES, (4 * NODES, 2))

    def tables(rows: np.ndarray, arcs: np.ndarray) -> tuple[pa.Table, pa.Table]:
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(features[rows].reshape(-1)), COLUMNS)
        return (
            pa.table({"id": names[rows], "x": vectors}),
            pa.table({"source": names[ends[arcs, 0]], "target": names[ends[arcs, 1]]}),
        )

    given = tables(np.arange(NODES), np.arange(len(ends)))
    shuffled = tables(random.permutation(NODES), random.permutation(len(ends)))
    once = vectors_by_id(tmp_path / "once", *given, 0)
    again = vectors_by_id(tmp_path / "again", *shuffled, workers)
    assert set(once) == set(again) == {str(name) for name in names}
    once_ND, again_ND = (np.stack([vectors[name] for name in once]) for vectors in (once, again))
    # Two workers add in another order, and Adam's first steps magnify that wherever a gradient is near zero.
    np.testing.assert_allclose(again_ND, once_ND, atol=0 if workers == 0 else 0.02, rtol=0)
    distances_NN = np.linalg.norm(again_ND[:, None] - once_ND[None], axis=2)
    np.testing.assert_array_equal(distances_NN.argmin(axis=1), np.arange(NODES))
