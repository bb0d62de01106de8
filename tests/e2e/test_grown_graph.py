"""A graph grows: new nodes and edges are appended, and embedded by the encoder of before, by the commands alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from preprocessing.bundle import Bundle, SparseFeatures, Topology
from trainer.embedding_set import EmbeddingSet

HOPS = 2


def rgrl(*arguments: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "service.cli", *(str(argument) for argument in arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def tables_of(bundle: Bundle, rows: np.ndarray, late: bool) -> dict[str, pa.Table]:
    """The nodes of some rows, and their edges: each once, in the tables of the later of its ends."""
    if isinstance(bundle.features, SparseFeatures):
        words = [bundle.features.indices[slice(*bundle.features.indptr[row : row + 2])].tolist() for row in rows]
        features = {"words": pa.array(words, pa.list_(pa.int32()))}
    else:
        values = np.asarray(bundle.features.values[rows])
        features = {"x": pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])}
    topology = bundle.topology
    hears = np.repeat(np.arange(bundle.num_nodes), topology.degrees())
    inside = np.zeros(bundle.num_nodes, bool)
    inside[rows] = True
    ends = [hears, topology.indices]
    kept = (inside[ends[0]] | inside[ends[1]]) if late else (inside[ends[0]] & inside[ends[1]])
    kept &= ends[0] < ends[1]
    edges = {name: bundle.ids.column(end[kept]) for name, end in zip(("source", "target"), ends, strict=True)}
    return {"nodes": pa.table({"id": bundle.ids.column(rows), **features}), "edges": pa.table(edges)}


def within(topology: Topology, hops: int, start: np.ndarray) -> np.ndarray:
    """Truths [N]: the nodes within some hops of ``start`` [N]."""
    reached = start.copy()
    for _ in range(hops):
        for row in np.flatnonzero(reached):
            reached[topology.neighbors(row)] = True
    return reached


def check_growth(folder: Path, whole: Bundle, new: np.ndarray, encoder: str) -> None:
    """``new`` rows of ``whole`` come late."""
    paths: dict[str, list[object]] = {}
    old = np.setdiff1d(np.arange(whole.num_nodes), new)
    for when, rows in (("old", old), ("new", new)):
        paths[when] = []
        for name, table in tables_of(whole, rows, when == "new").items():
            pq.write_table(table, folder / f"{when}-{name}.parquet")
            paths[when] += [f"--{name}", folder / f"{when}-{name}.parquet"]
    rgrl("ingest", *paths["old"], folder / "before")
    rgrl("preprocess", folder / "before", "--top-k", 8, "--set", "ppr.exact_arcs=0")
    chosen = (f"encoder.kind={encoder}", "encoder.layers=[16,16]", "run.epochs=3", "anchors.num_global=64")
    options = [part for option in chosen for part in ("--set", option)]
    rgrl("train", folder / "before", folder / "emb", *options)
    rgrl("append", folder / "before", folder / "after", *paths["new"])
    told = rgrl("embed", folder / "emb", folder / "after", folder / "emb-after")
    assert told == rgrl("embed", folder / "emb", folder / "after", folder / "emb-after")

    # The bundle is that of the whole graph, as it was read at first.
    after = Bundle(folder / "after")
    for file in ("topology/indptr.npy", "topology/indices.npy", "ids.parquet"):
        assert (after.path / file).read_bytes() == (whole.path / file).read_bytes()
    assert after.manifest["features"]["columns"] == whole.manifest["features"]["columns"]

    before, found = EmbeddingSet(folder / "emb"), EmbeddingSet(folder / "emb-after")
    with torch.no_grad():
        model = before.model.encoder
        x = found.model.features(after).rows(np.arange(after.num_nodes))
        adjacency = model.aggregator.whole(after.topology).normalized()
        expected = model(x, [adjacency] * HOPS).numpy()
    np.testing.assert_allclose(found.vectors, expected, atol=1e-5)
    # A neighbour of a new node has another degree, which nodes within HOPS of it weigh it by.
    late = np.isin(np.arange(after.num_nodes), new)
    near = within(after.topology, HOPS + 1, late)
    far = np.flatnonzero(~near)
    moved = np.abs(found.vectors[old] - before.vectors).max(axis=1)
    assert len(far) > 20
    assert moved[~near[old]].max() < 1e-5
    assert moved.max() > 1e-3
    assert found.vectors[new].std() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["gcn", "sage_residual"])
def test_a_generated_graph(tmp_path: Path, encoder: str) -> None:
    rgrl("generate", "blocks", tmp_path / "tables", "--nodes", 1500, "--degree", 4, "--set", "community_size=50")
    rgrl(
        "ingest", "--nodes", tmp_path / "tables" / "nodes", "--edges", tmp_path / "tables" / "edges", tmp_path / "whole"
    )
    whole = Bundle(tmp_path / "whole")
    check_growth(tmp_path, whole, np.array([3, 4, 700, 1499]), encoder)


@pytest.mark.realdata
def test_cora(tmp_path: Path, real_data: Path) -> None:
    rgrl("ingest", "--npz", real_data / "cora.npz", tmp_path / "whole")
    check_growth(tmp_path, Bundle(tmp_path / "whole"), np.arange(5, 2708, 400), "gcn")
