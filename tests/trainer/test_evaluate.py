"""The report of an embedding set: with labels, without, and with labels that are of no use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from labelled_bundles import make_labelled_bundle, new_encoder, write_embeddings
from safetensors.torch import save_file
from training_bundles import random_edges

from preprocessing.bundle import Bundle, Labels, SparseFeatures
from preprocessing.errors import UsageError
from preprocessing.ingest import ingest
from preprocessing.stage import Emitter
from trainer.embedding_set import EmbeddingSet
from trainer.evaluation.collapse import collapse_figures
from trainer.evaluation.degree_bias import degree_buckets
from trainer.evaluation.evaluate import evaluate
from trainer.evaluation.probe import ArrayRows, ProbeResult, probe
from trainer.evaluation.splits import draw_splits
from trainer.evaluation.targets import ClassTargets
from trainer.features import FeatureStore, _SparseSource
from trainer.settings import EvaluateSettings, FeatureSettings

# These matrices are too small to share among threads.
torch.set_num_threads(1)

QUICK = {"splits": 3, "steps": 60}
NODES = 90


class Recorder(Emitter):
    """Keeps what an emitter is told."""

    def __init__(self, stage: str) -> None:
        super().__init__(stage)
        self.steps: list[tuple[int, int, str]] = []
        self.warnings: list[str] = []

    def progress(self, done: int, total: int, unit: str) -> None:
        self.steps.append((done, total, unit))

    def warning(self, code: str, _message: str) -> None:
        self.warnings.append(code)


def class_names(nodes: int = NODES, classes: int = 3) -> list[str | None]:
    return [f"class {i % classes}" for i in range(nodes)]


def run(bundle: Bundle, embeddings: Path, **settings: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    spec = {"bundle": str(bundle.path), "embeddings": str(embeddings), "settings": QUICK | settings}
    summary = dict(evaluate(spec, Emitter("evaluate")))
    return json.loads((embeddings / "report.json").read_text()), summary


def test_report_of_a_run_with_snapshots(tmp_path: Path) -> None:
    bundle = make_labelled_bundle(tmp_path, [f"n{i}" for i in range(NODES)], class_names())
    snapshots = tmp_path / "snapshots"
    snapshots.mkdir()
    for epoch in (2, 4):
        save_file(new_encoder(bundle, seed=epoch).state_dict(), snapshots / f"epoch-{epoch:05d}.safetensors")
    losses = [{"epoch": 1, "loss": 3.5}, {"epoch": 2, "loss": 3.25}]
    # Epoch 4 is the last: its snapshot is the encoder itself, and is not probed twice.
    write_embeddings(
        tmp_path / "emb",
        bundle,
        new_encoder(bundle, seed=4),
        snapshots_dir=snapshots,
        training_info={"losses": losses},
    )
    report, summary = run(bundle, tmp_path / "emb")

    assert (report["schema_version"], report["epochs"], report["losses"]) == (2, 4, losses)
    assert report["bundle"]["content_hash"] == bundle.content_hash
    assert report["notes"] == []
    assert report["probe"]["protocol"]["nodes"] == {"train": 9, "validation": 9, "test": 72}
    assert report["probe"]["protocol"]["classes"] == 3

    # The same probe called directly, on labels looked up by external id.
    vectors = EmbeddingSet(tmp_path / "emb").vectors
    codes = np.array([int(name[1:]) % 3 for name in bundle.ids.external(np.arange(NODES))])
    targets = ClassTargets(Labels(codes, ["class 0", "class 1", "class 2"]))
    settings = EvaluateSettings(**QUICK)
    expected = probe(ArrayRows(vectors), targets, draw_splits(np.arange(NODES), settings), settings)
    last = report["probe"]["trained"]["last"]
    rank = collapse_figures(vectors).effective_rank
    assert last == {"epoch": 4, **expected.summary(), "effective_rank": rank}

    curve = report["probe"]["snapshots"]
    assert [score["epoch"] for score in curve] == [2, 4]
    assert curve[-1] == last
    best = report["probe"]["trained"]["best_validation"]
    assert "reads labels" in best.pop("note")
    assert best in curve
    assert best["val_mean"] == max(score["val_mean"] for score in curve)

    # Two points of a curve never show a plateau: the last epoch it is.
    label_free = report["probe"]["trained"]["label_free"]
    assert "effective rank" in label_free.pop("note")
    assert label_free == last

    baselines = report["probe"]["baselines"]
    assert set(baselines) == {"raw_features", "ppr_smoothed", "random_encoder"}
    # The features tell the classes apart; the fixture's random edges only blur them.
    assert baselines["raw_features"]["test_mean"] > 0.6
    assert len({score["test_mean"] for score in baselines.values()}) == 3
    assert sum(bucket["nodes"] for bucket in report["degree_buckets"]) == (expected.tested > 0).sum()
    assert report["collapse"] == collapse_figures(vectors).as_dict()
    assert summary["test_accuracy"] == {
        "rgrl": last["test_mean"],
        **{name: score["test_mean"] for name, score in baselines.items()},
    }
    assert summary["collapsed"] is False


@pytest.mark.parametrize(
    ("labels", "note"),
    [
        (None, "no labels"),
        (["only"] * NODES, "every label is the same, 'only'"),
        (["a", "b"] * 4 + [None] * (NODES - 8), "8 labelled nodes are too few"),
    ],
)
def test_labels_of_no_use_leave_a_report_without_a_probe(
    tmp_path: Path, labels: list[str | None] | None, note: str
) -> None:
    bundle = make_labelled_bundle(tmp_path, list(range(NODES)), labels)
    write_embeddings(tmp_path / "emb", bundle)
    report, summary = run(bundle, tmp_path / "emb")
    assert report["probe"] is None
    assert report["degree_buckets"] == []
    assert len(report["notes"]) == 1
    assert note in report["notes"][0]
    assert report["collapse"]["effective_rank"] > 1
    assert summary["test_accuracy"] is None


def test_sets_of_labels_on_a_published_split(tmp_path: Path) -> None:
    """A node table with a list of labels and a split column, to micro-F1 in the report."""
    rng = np.random.default_rng(2)
    values = rng.normal(size=(NODES, 4)).astype(np.float32)
    sets = [[name for name, value in zip("abcd", row, strict=True) if value > 0] for row in values]
    parts = ["train"] * 40 + ["val"] * 20 + ["test"] * 25 + [None] * 5
    order = rng.permutation(NODES)
    nodes = {
        "id": order,
        "x": pa.FixedSizeListArray.from_arrays(pa.array(values[order].reshape(-1)), 4),
        "label": [sets[i] if i != 3 else None for i in order],
        "split": [parts[i] for i in order],
    }
    pq.write_table(pa.table(nodes), tmp_path / "nodes.parquet")
    ends = random_edges(NODES, 90, seed=0)
    pq.write_table(pa.table({"source": ends[:, 0], "target": ends[:, 1]}), tmp_path / "edges.parquet")
    tables = {name: str(tmp_path / f"{name}.parquet") for name in ("nodes", "edges")}
    source = {"kind": "tables", **tables, "split": "split"}
    ingest({"out": tmp_path / "bundle", "settings": {"source": source}}, Emitter("ingest"))
    bundle = Bundle(tmp_path / "bundle")
    assert bundle.manifest["labels"] == {"classes": 4, "labelled": NODES - 1}
    assert bundle.manifest["split"] == {"train": 40, "validation": 20, "test": 25}
    assert bundle.labels is None

    write_embeddings(tmp_path / "emb", bundle)
    report, _ = run(bundle, tmp_path / "emb", steps=200, lr=0.1)
    protocol = report["probe"]["protocol"]
    assert (protocol["metric"], protocol["split"], protocol["classes"]) == ("micro_f1", "fixed", 4)
    assert protocol["nodes"] == {"train": 39, "validation": 20, "test": 25}
    # Labels are the signs of the features: only the untrained network stands between.
    assert report["probe"]["baselines"]["raw_features"]["test_mean"] > 0.9
    random, _ = run(bundle, tmp_path / "emb", protocol="random")
    assert random["probe"]["protocol"]["split"] == "random"


def test_a_rare_class_some_missing_labels_and_no_ppr_are_noted(tmp_path: Path) -> None:
    labels = ["rare", *class_names(NODES - 11), *[None] * 10]
    bundle = make_labelled_bundle(tmp_path, list(range(NODES)), labels, ppr=False)
    write_embeddings(tmp_path / "emb", bundle)
    report, _ = run(bundle, tmp_path / "emb")
    assert report["probe"]["protocol"]["nodes"] == {"train": 8, "validation": 8, "test": 64}
    assert any("'rare' (1)" in note for note in report["notes"])
    assert any("no PPR-smoothed baseline" in note for note in report["notes"])
    assert report["probe"]["baselines"]["ppr_smoothed"] is None
    assert report["probe"]["baselines"]["raw_features"]["test_mean"] > 0
    assert report["probe"]["trained"]["best_validation"] is None


def test_a_graph_of_topology_alone_has_no_feature_baselines(tmp_path: Path) -> None:
    bundle = make_labelled_bundle(tmp_path, list(range(NODES)), class_names(), features=False)
    write_embeddings(tmp_path / "emb", bundle)
    report, _ = run(bundle, tmp_path / "emb")
    baselines = report["probe"]["baselines"]
    assert (baselines["raw_features"], baselines["ppr_smoothed"]) == (None, None)
    assert baselines["random_encoder"]["test_mean"] > 0
    assert any("no node features of its own" in note for note in report["notes"])


def test_baselines_and_snapshots_can_be_left_out(tmp_path: Path) -> None:
    bundle = make_labelled_bundle(tmp_path, list(range(NODES)), class_names())
    (tmp_path / "snapshots").mkdir()
    save_file(new_encoder(bundle).state_dict(), tmp_path / "snapshots" / "epoch-00002.safetensors")
    write_embeddings(tmp_path / "emb", bundle, snapshots_dir=tmp_path / "snapshots")
    report, _ = run(bundle, tmp_path / "emb", baselines=False, snapshots=False)
    assert report["probe"]["baselines"] == {}
    assert [score["epoch"] for score in report["probe"]["snapshots"]] == [4]
    # A second evaluation takes the place of the first.
    report, _ = run(bundle, tmp_path / "emb")
    assert [score["epoch"] for score in report["probe"]["snapshots"]] == [2, 4]


def test_collapsed_embeddings_are_called_so(tmp_path: Path) -> None:
    bundle = make_labelled_bundle(tmp_path, list(range(NODES)), class_names())
    encoder = new_encoder(bundle)
    with torch.no_grad():
        encoder.state_dict()["layers.1.weight"].zero_()
        encoder.state_dict()["layers.1.bias"].fill_(1)
    write_embeddings(tmp_path / "emb", bundle, encoder)
    recorder = Recorder("evaluate")
    spec = {"bundle": str(bundle.path), "embeddings": str(tmp_path / "emb"), "settings": QUICK}
    assert evaluate(spec, recorder)["collapsed"] is True
    assert recorder.warnings == ["collapsed"]
    assert recorder.steps == [(1, 4, "probes"), (2, 4, "probes"), (3, 4, "probes"), (4, 4, "probes")]


def test_embeddings_of_another_bundle_are_refused(tmp_path: Path) -> None:
    bundle = make_labelled_bundle(tmp_path / "a", list(range(NODES)), class_names())
    other = make_labelled_bundle(tmp_path / "b", list(range(NODES)), class_names(classes=4))
    write_embeddings(tmp_path / "emb", bundle)
    with pytest.raises(UsageError, match="another bundle"):
        run(other, tmp_path / "emb")
    assert not (tmp_path / "emb" / "report.json").exists()


def test_degree_buckets() -> None:
    degrees = np.array([0, 1, 1, 2, 3, 4, 7, 8, 100])
    tested = np.array([1, 2, 2, 4, 0, 1, 1, 0, 5])
    wrong = np.array([1, 1, 0, 3, 0, 0, 1, 0, 5])
    result = ProbeResult(np.zeros(1), np.zeros(1), np.zeros(1), tested, wrong)
    assert degree_buckets(degrees, result) == [
        {"min_degree": 0, "max_degree": 0, "nodes": 1, "error_rate": 1.0},
        {"min_degree": 1, "max_degree": 1, "nodes": 2, "error_rate": 0.25},
        {"min_degree": 2, "max_degree": 3, "nodes": 1, "error_rate": 0.75},
        {"min_degree": 4, "max_degree": 7, "nodes": 2, "error_rate": 0.5},
        {"min_degree": 64, "max_degree": 127, "nodes": 1, "error_rate": 1.0},
    ]


@pytest.mark.realdata
def test_raw_features_of_cora(real_data: Path) -> None:
    """100 steps on a tenth of the words: well above the largest class (30 %), below any graph encoder (80 %)."""
    with np.load(real_data / "cora.npz", allow_pickle=False) as file:
        indptr, indices, shape = (file[f"attr_{name}"] for name in ("indptr", "indices", "shape"))
        codes = file["labels"].astype(np.int64)
    stored = SparseFeatures(
        indptr.astype(np.int64), indices.astype(np.int32), np.ones(len(indices), np.float32), tuple(shape)
    )
    settings = EvaluateSettings(splits=5)
    targets = ClassTargets(Labels(codes, [str(code) for code in range(7)]))
    store = FeatureStore(_SparseSource(stored), len(codes), FeatureSettings())
    scores = probe(store, targets, draw_splits(np.arange(len(codes)), settings), settings).summary()
    assert 0.50 < scores["test_mean"] < 0.65
    assert abs(scores["val_mean"] - scores["test_mean"]) < 0.05
