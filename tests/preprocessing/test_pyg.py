from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch_geometric import datasets
from torch_geometric.data import Data, HeteroData

from preprocessing.bundle import Bundle
from preprocessing.errors import InputError, UsageError
from preprocessing.ingest import ingest, ingest_pyg
from preprocessing.stage import Emitter


def data(**changes: Any) -> Data:
    fields = {
        "edge_index": torch.tensor([[0, 1, 1, 2], [1, 0, 2, 2]]),
        "x": torch.tensor([[0.5, 0.0], [1.0, 2.0], [0.0, 3.0], [4.0, 0.0]]),
        "y": torch.tensor([2, 0, -1, 2]),
        **changes,
    }
    return Data(**{name: value for name, value in fields.items() if value is not None})


def by_name(tmp_path: Path, name: str) -> Bundle:
    source = {"kind": "pyg", "name": name, "root": str(tmp_path / "downloads")}
    ingest({"out": str(tmp_path / "bundle"), "settings": {"source": source}}, Emitter("ingest"))
    return Bundle(tmp_path / "bundle")


def test_data_object_becomes_a_bundle(tmp_path: Path) -> None:
    ingest_pyg(data(train_mask=torch.ones(4)), tmp_path / "bundle", direction="directed", feature_dtype="float16")
    bundle = Bundle(tmp_path / "bundle")
    assert [bundle.topology.neighbors(row).tolist() for row in range(4)] == [[1], [0], [1], []]
    assert bundle.features is not None
    assert np.asarray(bundle.features.values).tolist() == [[0.5, 0], [1, 2], [0, 3], [4, 0]]
    assert np.asarray(bundle.features.values).dtype == np.float16
    assert pq.read_table(tmp_path / "bundle" / "labels.parquet")["label"].to_pylist() == [2, 0, None, 2]
    assert bundle.manifest["warnings"] == [{"code": "fields_unread", "message": "Data: fields not used: train_mask"}]


def test_sparse_features_are_those_of_the_dense(tmp_path: Path) -> None:
    hashes = set()
    for name, x in (("dense", data().x), ("coo", data().x.to_sparse()), ("bfloat16", data().x.bfloat16())):
        ingest_pyg(data(x=x), tmp_path / name)
        hashes.add(Bundle(tmp_path / name).content_hash)
    assert len(hashes) == 1


def test_the_same_data_is_answered_again_and_other_data_refused(tmp_path: Path) -> None:
    assert ingest_pyg(data(), tmp_path / "bundle") == ingest_pyg(data(), tmp_path / "bundle")
    for change in ({"x": data().x + 1}, {"y": None}, {"edge_index": data().edge_index.flip(0)}):
        with pytest.raises(UsageError, match="exists already"):
            ingest_pyg(data(**change), tmp_path / "bundle")


MASKS = {
    "train_mask": torch.tensor([True, False, False, False]),
    "val_mask": torch.tensor([False, True, False, True]),
    "test_mask": torch.tensor([False, False, False, False]),
}


def test_masks_of_one_split_are_read_and_of_many_reported(tmp_path: Path) -> None:
    ingest_pyg(data(**MASKS), tmp_path / "bundle")
    bundle = Bundle(tmp_path / "bundle")
    assert bundle.split is not None
    assert [part.tolist() for part in (bundle.split.train, bundle.split.validation, bundle.split.test)] == [
        [0],
        [1, 3],
        [],
    ]
    assert bundle.manifest["split"] == {"train": 1, "validation": 2, "test": 0}
    assert bundle.manifest["warnings"] == []
    with pytest.raises(UsageError, match="exists already"):
        ingest_pyg(data(**{**MASKS, "test_mask": torch.tensor([False, False, True, False])}), tmp_path / "bundle")
    many = {name: mask[:, None].repeat(1, 20) for name, mask in MASKS.items()}
    ingest_pyg(data(**many), tmp_path / "many")
    assert Bundle(tmp_path / "many").split is None
    assert "test_mask, train_mask, val_mask" in Bundle(tmp_path / "many").manifest["warnings"][0]["message"]
    with pytest.raises(InputError, match=r"node 1 \(from 0\) is in two parts"):
        ingest_pyg(data(**{**MASKS, "test_mask": torch.tensor([False, True, False, False])}), tmp_path / "twice")


def test_any_number_of_classes_a_node(tmp_path: Path) -> None:
    truths = torch.tensor([[0.0, 1, 1], [0, 0, 0], [0, 1, 0], [0, 1, 1]])
    ingest_pyg(data(y=truths), tmp_path / "bundle")
    bundle = Bundle(tmp_path / "bundle")
    assert bundle.labels is None
    assert bundle.label_sets is not None
    assert pq.read_table(tmp_path / "bundle" / "labels.parquet")["label"].to_pylist() == [[1, 2], [], [1], [1, 2]]
    assert bundle.label_sets.names == ["1", "2"]
    assert bundle.label_sets.members.tolist() == [[True, True], [False, False], [True, False], [True, True]]
    assert bundle.label_sets.labelled.all()
    assert bundle.manifest["labels"] == {"classes": 2, "labelled": 4}


@pytest.mark.parametrize("y", [2 * torch.ones(4, 3), torch.ones(4), torch.ones(1, dtype=torch.long)])
def test_targets_that_are_no_classes_are_reported(tmp_path: Path, y: torch.Tensor) -> None:
    ingest_pyg(data(y=y), tmp_path / "bundle")
    bundle = Bundle(tmp_path / "bundle")
    assert bundle.labels is None
    assert [warning["code"] for warning in bundle.manifest["warnings"]] == ["labels_unread"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (data(edge_index=None), "the graph has no edges"),
        (data(edge_index=torch.tensor([[0, 1], [1, 7]])), r"edge_index[1, 1] names an unknown node"),
        (data(edge_index=torch.tensor([[0, -1], [1, 2]])), r"edge_index[0, 1] names an unknown node"),
        (data(edge_index=torch.tensor([[0.0], [1.0]])), "wrong kind of edge_index"),
        (data(edge_index=torch.empty(2, 0, dtype=torch.long)), "the graph is empty"),
        (
            data(x=torch.tensor([[0.0], [1.0], [float("nan")], [2.0]])),
            "Data, node 2, feature 0 (both from 0): a feature is",
        ),
        (data(x=torch.zeros(4)), "wrong kind of x"),
        (data(x=torch.zeros(3, 2), num_nodes=4), "wrong kind of x"),
        (HeteroData(), "this is no homogeneous graph"),
    ],
)
def test_what_is_no_graph_is_refused(tmp_path: Path, given: Any, message: str) -> None:
    with pytest.raises(InputError) as raised:
        ingest_pyg(given, tmp_path / "bundle")
    assert message in raised.value.text()
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_data_set_that_needs_no_download(tmp_path: Path) -> None:
    bundle = by_name(tmp_path, "KarateClub")
    counts = bundle.manifest["counts"]
    assert (counts["nodes"], counts["edges"], counts["isolated"]) == (34, 78, 0)
    assert bundle.manifest["labels"] == {"classes": 4, "labelled": 34}


def test_no_network_is_an_input_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(root: str, name: str) -> None:
        raise ConnectionError(f"no route to the host of {name}")

    monkeypatch.setattr(datasets, "Planetoid", unreachable)
    with pytest.raises(InputError, match=r"could not be fetched \(no route to the host of Cora"):
        by_name(tmp_path, "Planetoid:Cora")


def test_unknown_names_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="no such data set"):
        by_name(tmp_path, "os:system")

    def planetoid(root: str, name: str) -> None:
        assert name == "Cora"

    monkeypatch.setattr(datasets, "Planetoid", planetoid)
    with pytest.raises(InputError, match="does not know this member of Planetoid"):
        by_name(tmp_path, "Planetoid:Coral")


def test_several_graphs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "KarateClub", lambda: [data(), data()])
    with pytest.raises(InputError, match="not one graph"):
        by_name(tmp_path, "KarateClub")


def test_graphs_of_a_split_stand_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As PPI is: a part of the split at a time, several graphs each, 0/1 targets."""
    truths = torch.tensor([[1.0, 0], [0, 1], [1, 1], [0, 0]])

    def ppi(root: str, split: str) -> list[Data]:
        number = {"train": 2, "val": 1, "test": 1}[split]
        return [data(x=data().x + len(split), y=truths) for _ in range(number)]

    monkeypatch.setattr(datasets, "PPI", ppi)
    bundle = by_name(tmp_path, "PPI")
    assert bundle.num_nodes == 16
    assert bundle.manifest["split"] == {"train": 8, "validation": 4, "test": 4}
    assert [bundle.topology.neighbors(row).tolist() for row in range(16)] == [
        [near + 4 * graph for near in row] for graph in range(4) for row in ([1], [0, 2], [1], [])
    ]
    assert bundle.features is not None
    expected = np.concatenate([data().x.numpy() + shift for shift in (5, 5, 3, 4)])
    assert np.asarray(bundle.features.values).tolist() == expected.tolist()
    assert bundle.label_sets is not None
    assert bundle.label_sets.members.tolist() == truths.bool().tolist() * 4
