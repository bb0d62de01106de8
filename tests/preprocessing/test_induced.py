"""The graph induced by parts of a split against the same cut made on dense matrices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preprocessing.bundle import Bundle, DenseFeatures, SparseFeatures, Topology
from preprocessing.errors import InputError
from preprocessing.induced import induce
from preprocessing.ingest import ingest
from preprocessing.stage import Emitter

NODES = 24
PARTS = np.array(["train", "validation", None, "train", "test", "train"] * 4, dtype=object)


def made(folder: Path, direction: str = "undirected", *, split: bool = True, width: int = 3) -> Bundle:
    """Nodes n00, n01, …; two relations with weights; features of ``width`` columns, sparse when it is large."""
    rng = np.random.default_rng(0)
    values = np.zeros((NODES, width), np.float32)
    values[np.arange(NODES), np.arange(NODES) % width] = 1 + np.arange(NODES)
    columns = {
        "id": [f"n{i:02d}" for i in range(NODES)],
        "x": pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), width),
        "label": np.arange(NODES) % 3,
        "part": PARTS,
    }
    pq.write_table(pa.table(columns), folder / "nodes.parquet")
    for name in ("a", "b"):
        ends = rng.integers(0, NODES, (80, 2))
        edges = {"source": [f"n{i:02d}" for i in ends[:, 0]], "target": [f"n{i:02d}" for i in ends[:, 1]]}
        pq.write_table(pa.table(edges | {"weight": rng.integers(1, 5, 80) * 0.5}), folder / f"{name}.parquet")
    relations = {name: str(folder / f"{name}.parquet") for name in ("a", "b")}
    source = {"kind": "tables", "nodes": str(folder / "nodes.parquet"), "relations": relations, "features": ["x"]}
    settings = {"source": source | ({"split": "part"} if split else {}), "direction": direction}
    ingest({"out": folder / "bundle", "settings": settings}, Emitter("ingest"))
    return Bundle(folder / "bundle")


def cut(bundle: Bundle, out: Path, parts: list[str]) -> Bundle:
    induce({"bundle": bundle.path, "out": out, "settings": {"parts": parts}}, Emitter("induce"))
    return Bundle(out)


def weighed(topology: Topology) -> np.ndarray:
    matrix = np.zeros((topology.num_nodes, topology.num_nodes))
    rows = np.repeat(np.arange(topology.num_nodes), topology.degrees())
    matrix[rows, topology.indices] = topology.weights
    return matrix


@pytest.mark.parametrize("direction", ["undirected", "directed", "reverse"])
@pytest.mark.parametrize("parts", [["train"], ["train", "test"]])
def test_edges_among_the_parts_stay_as_they_are(tmp_path: Path, direction: str, parts: list[str]) -> None:
    bundle = made(tmp_path, direction)
    small = cut(bundle, tmp_path / "small", parts)
    kept = np.flatnonzero(np.isin(PARTS, parts))
    assert small.ids.external(np.arange(small.num_nodes)) == [f"n{i:02d}" for i in kept]
    assert small.manifest["direction"] == direction
    pairs = [(small.topology, bundle.topology), (small.symmetric, bundle.symmetric)]
    pairs += [(small.relation(name), bundle.relation(name)) for name in ("a", "b")]
    for found, whole in pairs:
        expected = weighed(whole)[np.ix_(kept, kept)]
        assert (expected > 0).sum() > 10
        np.testing.assert_allclose(weighed(found), expected)


@pytest.mark.parametrize(("width", "layout"), [(3, DenseFeatures), (12, SparseFeatures)])
def test_features_stay_and_labels_do_not_come_along(tmp_path: Path, width: int, layout: type) -> None:
    bundle = made(tmp_path, width=width)
    small = cut(bundle, tmp_path / "small", ["train"])
    kept = np.flatnonzero(PARTS == "train")
    expected = np.zeros((len(kept), width), np.float32)
    expected[np.arange(len(kept)), kept % width] = 1 + kept
    assert isinstance(small.features, layout)
    if isinstance(small.features, DenseFeatures):
        found = np.asarray(small.features.values)
    else:
        found = np.zeros_like(expected)
        rows = np.repeat(np.arange(len(kept)), np.diff(small.features.indptr))
        found[rows, small.features.indices] = small.features.values
    np.testing.assert_array_equal(found, expected)
    assert (small.labels, small.split) == (None, None)


def test_asked_again_it_answers_and_without_a_split_it_refuses(tmp_path: Path) -> None:
    bundle = made(tmp_path)
    first, second = (cut(bundle, tmp_path / "small", ["train"]) for _ in range(2))
    assert first.content_hash == second.content_hash
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match="no published split"):
        cut(made(tmp_path / "other", split=False), tmp_path / "none", ["train"])
    assert not (tmp_path / "none").exists()
