"""What a person calls a graph, and the digits that the demo brings along."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from embedding_fixtures import write_bundle
from sklearn.datasets import load_digits

from preprocessing.errors import InputError
from service.cli.demo.graph import write_digits
from service.cli.graph_sources import graph_request

ROOT = Path("/pyg")


def test_files_are_told_by_suffix(tmp_path: Path) -> None:
    for name in ("g.npz", "e.parquet", "e.csv", "notes.txt"):
        (tmp_path / name).touch()
    assert graph_request(str(tmp_path / "g.npz"), ROOT) == {"source": {"kind": "npz", "path": str(tmp_path / "g.npz")}}
    for name in ("e.parquet", "e.csv"):
        path = str(tmp_path / name)
        assert graph_request(path, ROOT) == {"source": {"kind": "tables", "edges": path}}
    with pytest.raises(InputError, match="no kind of graph file"):
        graph_request(str(tmp_path / "notes.txt"), ROOT)


def test_uris_are_told_by_suffix_and_kept_as_they_are() -> None:
    for uri in ("s3://bucket/e.parquet?region=eu-north-1", "gs://bucket/E.CSV"):
        assert graph_request(uri, ROOT) == {"source": {"kind": "tables", "edges": uri}}
    assert graph_request("s3://bucket/g.npz", ROOT) == {"source": {"kind": "npz", "path": "s3://bucket/g.npz"}}
    with pytest.raises(InputError, match="no kind of graph file"):
        graph_request("s3://bucket/folder", ROOT)


def test_folders_are_bundles_or_tables(tmp_path: Path) -> None:
    write_bundle(tmp_path / "bundle", 3, [(0, 1)])
    assert graph_request(str(tmp_path / "bundle"), ROOT) == {"bundle": str(tmp_path / "bundle")}
    tables = tmp_path / "tables"
    tables.mkdir()
    with pytest.raises(InputError, match="no edge table"):
        graph_request(str(tables), ROOT)
    (tables / "edges.csv").touch()
    assert graph_request(str(tables), ROOT)["source"] == {"kind": "tables", "edges": str(tables / "edges.csv")}
    (tables / "nodes").mkdir()
    assert graph_request(str(tables), ROOT)["source"]["nodes"] == str(tables / "nodes")


def test_relative_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "g.npz").touch()
    monkeypatch.chdir(tmp_path)
    assert graph_request("g.npz", ROOT)["source"]["path"] == str(tmp_path / "g.npz")


def test_other_names_are_pyg_data_sets_unless_they_look_like_paths() -> None:
    expected = {"source": {"kind": "pyg", "name": "Planetoid:Cora", "root": "/pyg"}}
    assert graph_request("Planetoid:Cora", ROOT) == expected
    for name in ("missing.npz", "folder/missing"):
        with pytest.raises(InputError, match="no such file"):
            graph_request(name, ROOT)


def test_the_digits_join_each_image_to_its_ten_nearest(tmp_path: Path) -> None:
    folder = write_digits(tmp_path / "digits")
    nodes, edges = pq.read_table(folder / "nodes.parquet"), pq.read_table(folder / "edges.parquet")
    digits = load_digits()
    assert nodes["id"].to_pylist() == list(range(1797))
    assert nodes["pixels"].type == pa.list_(pa.float32(), 64)
    assert nodes["label"].to_pylist() == digits.target.tolist()
    source, target = edges["source"].to_numpy(), edges["target"].to_numpy()
    for image in (0, 900, 1796):
        distances = np.square(digits.data - digits.data[image]).sum(axis=1)
        distances[image] = np.inf
        found = target[source == image]
        assert len(found) == 10
        assert np.sort(distances[found]).tolist() == np.sort(distances)[:10].tolist()


def test_columns_are_the_tables_own(tmp_path: Path) -> None:
    for name in ("edges.csv", "nodes.csv", "g.npz"):
        (tmp_path / name).touch()
    named = {"label": "kind", "node_id": "key", "features": ["x"], "source": "a", "target": "b"}
    source = graph_request(str(tmp_path), ROOT, named)["source"]
    assert {option: source[option] for option in named} == named
    assert graph_request(str(tmp_path / "edges.csv"), ROOT, {"source": "a"})["source"]["source"] == "a"
    for graph in (str(tmp_path / "g.npz"), str(tmp_path / "edges.csv"), "Planetoid:Cora"):
        with pytest.raises(InputError, match="there is no node table"):
            graph_request(graph, ROOT, {"label": "kind"})
    with pytest.raises(InputError, match="there is no edge table"):
        graph_request(str(tmp_path / "g.npz"), ROOT, {"source": "a"})
