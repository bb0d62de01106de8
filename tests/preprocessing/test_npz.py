from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from preprocessing.bundle import Bundle, DenseFeatures
from preprocessing.errors import ArtifactError, InputError
from preprocessing.ingest import ingest
from preprocessing.stage import Emitter

# Arcs 0→1, 0→2, 2→2, 3→0; features with a repeated entry and columns out of order; node 4 has neither.
WHOLE: dict[str, Any] = {
    "adj_indptr": np.array([0, 2, 2, 3, 4, 4]),
    "adj_indices": np.array([1, 2, 2, 0], np.int32),
    "adj_data": np.ones(4),
    "adj_shape": np.array([5, 5]),
    "attr_indptr": np.array([0, 3, 4, 4, 6, 6]),
    "attr_indices": np.array([2, 0, 2, 1, 2, 0]),
    "attr_data": np.array([1.0, 4.0, 2.0, 5.0, 6.0, 7.0]),
    "attr_shape": np.array([5, 3]),
    "labels": np.array([1, 0, -1, 2, 1]),
}


def run(tmp_path: Path, arrays: dict[str, Any], **source: Any) -> Bundle:
    np.savez(tmp_path / "graph.npz", **arrays)
    source = {"kind": "npz", "path": str(tmp_path / "graph.npz"), **source}
    ingest(
        {"out": str(tmp_path / "bundle"), "settings": {"source": source, "direction": "directed"}}, Emitter("ingest")
    )
    return Bundle(tmp_path / "bundle")


def test_whole_file_becomes_a_bundle(tmp_path: Path) -> None:
    bundle = run(tmp_path, WHOLE)
    assert [bundle.topology.neighbors(row).tolist() for row in range(5)] == [[3], [0], [0], [], []]
    assert bundle.manifest["counts"]["self_loops"] == 1
    assert bundle.ids.identity
    assert isinstance(bundle.features, DenseFeatures)
    assert bundle.features.values.tolist() == [[4, 0, 3], [0, 5, 0], [0, 0, 0], [7, 0, 6], [0, 0, 0]]
    assert pq.read_table(tmp_path / "bundle" / "labels.parquet")["label"].to_pylist() == [1, 0, None, 2, 1]
    assert bundle.manifest["warnings"] == []


def test_topology_alone_is_enough_and_names_may_be_text(tmp_path: Path) -> None:
    arrays = {name: array for name, array in WHOLE.items() if name.startswith("adj_") and name != "adj_data"}
    bundle = run(tmp_path, {**arrays, "labels": np.array(["b", "a", "b", "c", "a"])})
    assert bundle.features is None
    assert bundle.labels is not None
    assert bundle.labels.names == ["a", "b", "c"]
    assert bundle.labels.codes.tolist() == [1, 0, 1, 2, 0]


def test_relations_are_chosen_and_the_rest_is_reported(tmp_path: Path) -> None:
    arrays = {name: array for name, array in WHOLE.items() if not name.startswith("adj_")}
    for relation, target in (("cites", 1), ("co_author", 2)):
        arrays[f"adj_{relation}_indptr"] = np.array([0, 1, 1, 1, 1, 1])
        arrays[f"adj_{relation}_indices"] = np.array([target])
        arrays[f"adj_{relation}_shape"] = np.array([5, 5])
    with pytest.raises(InputError, match="one of cites, co_author"):
        run(tmp_path, arrays, relation="likes")
    bundle = run(tmp_path, arrays, relation="co_author")
    assert bundle.topology.neighbors(2).tolist() == [0]
    assert bundle.topology.num_arcs == 1
    assert bundle.relations == ()
    assert "'adj_cites_indptr', 'adj_cites_indices', 'adj_cites_shape'" in bundle.manifest["warnings"][0]["message"]


def test_without_a_name_every_relation_is_read(tmp_path: Path) -> None:
    arrays = {name: array for name, array in WHOLE.items() if not name.startswith("adj_")}
    for relation, target in (("cites", 1), ("co_author", 2)):
        arrays[f"adj_{relation}_indptr"] = np.array([0, 1, 1, 1, 1, 1])
        arrays[f"adj_{relation}_indices"] = np.array([target])
        arrays[f"adj_{relation}_shape"] = np.array([5, 5])
    bundle = run(tmp_path, arrays)
    assert bundle.relations == ("cites", "co_author")
    assert [bundle.relation(name).num_arcs for name in bundle.relations] == [1, 1]
    assert bundle.relation("cites").neighbors(1).tolist() == [0]
    assert bundle.topology.num_arcs == 2
    assert bundle.topology.neighbors(2).tolist() == [0]
    with pytest.raises(ArtifactError, match="no such relation"):
        bundle.relation("likes")


def test_weights_are_kept(tmp_path: Path) -> None:
    bundle = run(tmp_path, {**WHOLE, "adj_data": np.array([1.0, 2.5, 1.0, 1.0])})
    assert bundle.topology.weights is not None
    assert sorted(bundle.topology.weights.tolist()) == [1.0, 1.0, 2.5]


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf])
def test_entries_that_are_no_weight(tmp_path: Path, weight: float) -> None:
    with pytest.raises(InputError, match=r"array 'adj_data': entry 1 \(from 0\) is no weight"):
        run(tmp_path, {**WHOLE, "adj_data": np.array([1.0, weight, 1.0, 1.0])})


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("adj_indptr", None, "there is no array 'adj_indptr'"),
        ("adj_indptr", np.array([0, 2, 2, 3, 4]), "array 'adj_indptr': wrong length"),
        ("adj_indptr", np.array([0, 2, 1, 3, 4, 4]), "array 'adj_indptr': not the row starts"),
        ("adj_indptr", np.array([0, 2, 2, 3, 3, 3]), "array 'adj_indptr': not the row starts"),
        ("adj_indptr", np.array([0.0, 2, 2, 3, 4, 4]), "array 'adj_indptr': wrong kind of array"),
        ("adj_indices", np.array([1, 2, 5, 0]), "array 'adj_indices': entry 2 (from 0) is out of range\n  given: 5"),
        ("adj_indices", np.array([1, 2, 2, -1]), "array 'adj_indices': entry 3 (from 0) is out of range\n  given: -1"),
        ("adj_indices", np.array([1, 2, 2, 0], dtype=object), "array 'adj_indices': the array holds Python objects"),
        ("adj_shape", np.array([5, 6]), "array 'adj_shape': the adjacency is not square\n  given: 5 x 6"),
        ("adj_shape", np.array([5, 5, 5]), "array 'adj_shape': wrong shape"),
        (
            "attr_data",
            np.array([1.0, 4.0, 2.0, 5.0, np.nan, 7.0]),
            "graph.npz, node 3, feature 2 (both from 0): a feature",
        ),
        ("attr_data", np.ones(5), "array 'attr_data': wrong kind of array"),
        ("attr_data", np.array(list("abcdef")), "array 'attr_data': wrong kind of array"),
        ("attr_data", np.array([{}] * 6), "array 'attr_data': the array holds Python objects"),
        ("attr_indices", np.array([2, 0, 2, 1, 3, 0]), "array 'attr_indices': entry 4 (from 0) is out of range"),
        ("labels", np.array(["a", 1, None, 2, 1], dtype=object), "array 'labels': the array holds Python objects"),
        ("labels", np.ones((5, 2), int), "array 'labels': unsupported labels"),
        ("labels", np.ones(5), "array 'labels': unsupported labels\n  given: float64 (5,)"),
        ("labels", np.ones(4, int), "array 'labels': unsupported labels"),
    ],
)
def test_arrays_that_do_not_fit_are_named(tmp_path: Path, name: str, array: np.ndarray | None, message: str) -> None:
    arrays = {key: value for key, value in {**WHOLE, name: array}.items() if value is not None}
    with pytest.raises(InputError) as raised:
        run(tmp_path, arrays)
    assert message in raised.value.text()
    assert str(tmp_path / "graph.npz") in raised.value.text()
    assert {path.name for path in tmp_path.iterdir()} == {"graph.npz"}


@pytest.mark.parametrize(("nodes", "edges"), [(0, 0), (3, 0)])
def test_an_empty_graph_is_refused(tmp_path: Path, nodes: int, edges: int) -> None:
    arrays = {
        "adj_indptr": np.zeros(nodes + 1, int),
        "adj_indices": np.zeros(edges, int),
        "adj_shape": np.array([nodes, nodes]),
    }
    with pytest.raises(InputError, match="the graph is empty") as raised:
        run(tmp_path, arrays)
    assert raised.value.given == f"{nodes} nodes and {edges} edges"


def test_files_that_are_no_archive_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "graph.npz"
    np.savez(file, **WHOLE)
    whole = file.read_bytes()
    spec = {"out": str(tmp_path / "bundle"), "settings": {"source": {"kind": "npz", "path": str(file)}}}
    damaged = bytearray(whole)
    damaged[whole.index(b"adj_indices.npy") + 160] ^= 255
    for content, message in (
        (whole[: len(whole) // 2], "no .npz, or it is truncated"),
        (b"\x93NUMPY", "no .npz, or it is truncated"),
        (bytes(damaged), "array 'adj_indices': damaged"),
    ):
        file.write_bytes(content)
        with pytest.raises(InputError) as raised:
            ingest(spec, Emitter("ingest"))
        assert message in raised.value.text()
    file.unlink()
    with pytest.raises(InputError, match="there is no such file"):
        ingest(spec, Emitter("ingest"))


@pytest.mark.parametrize("name", ["..", "a.b", "symmetric", "two words"])
def test_a_relation_is_named_as_its_folder_can_be(tmp_path: Path, name: str) -> None:
    arrays = dict(WHOLE)
    for part in ("indptr", "indices", "shape"):
        arrays[f"adj_{name}_{part}"] = arrays.pop(f"adj_{part}")
    with pytest.raises(InputError, match="cannot be the name of a relation"):
        run(tmp_path, arrays)


@pytest.mark.parametrize("prefix", ["", "split_"])
def test_masks_are_a_published_split(tmp_path: Path, prefix: str) -> None:
    masks = {"train_mask": [1, 0, 0, 1, 0], "val_mask": [0, 1, 0, 0, 0], "test_mask": [0, 0, 1, 0, 0]}
    named = {prefix + name: np.array(mask) for name, mask in masks.items()}
    bundle = run(tmp_path, WHOLE | named)
    column = pq.read_table(tmp_path / "bundle" / "splits.parquet")["split"].to_pylist()
    assert column == ["train", "validation", "test", "train", None]
    assert bundle.split is not None
    assert bundle.split.train.tolist() == [0, 3]
    assert bundle.manifest["warnings"] == []
    (tmp_path / "short").mkdir()
    with pytest.raises(InputError, match=r"this is no mask\n  given: int64 \(4,\)"):
        run(tmp_path / "short", WHOLE | named | {prefix + "val_mask": np.array([0, 1, 0, 0])})
