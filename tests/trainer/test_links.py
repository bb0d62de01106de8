"""Link prediction: scores of pairs against dense algebra, the classifier against autograd, and the report."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from labelled_bundles import make_labelled_bundle, new_encoder, write_embeddings
from safetensors.torch import save_file
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from training_bundles import dense, diffusion, every_row, make_bundle

from preprocessing.bundle import Bundle
from preprocessing.edge_split import split_edges
from preprocessing.errors import ArtifactError
from preprocessing.ingest import ingest
from preprocessing.link_table import NEGATIVES, PARTS, read_links
from preprocessing.ppr import preprocess
from preprocessing.stage import Emitter
from trainer.evaluation import link_heuristics, pair_classifier
from trainer.evaluation.evaluate import evaluate
from trainer.evaluation.link_heuristics import adamic_adar, common_neighbors, feature_cosines
from trainer.evaluation.pair_classifier import PairClassifier, pair_features
from trainer.evaluation.probe import ArrayRows
from trainer.features import load_features
from trainer.settings import FeatureSettings, LinkSettings
from trainer.train import train

PAIRS = np.array([[0, 1], [3, 7], [2, 39], [5, 6], [4, 9]])


def split(whole: Bundle, out: Path) -> Bundle:
    split_edges({"bundle": whole.path, "out": out}, Emitter("split-edges"))
    return Bundle(out)


def test_common_neighbours_and_adamic_adar(tmp_path: Path) -> None:
    graph = make_bundle(tmp_path, edges=200).symmetric
    adjacency = dense(graph)
    degree = adjacency.sum(axis=1)
    pairs = np.argwhere(np.triu(np.ones_like(adjacency), 1))
    common = (adjacency @ adjacency)[pairs[:, 0], pairs[:, 1]]
    assert common.max() >= 3
    np.testing.assert_array_equal(common_neighbors(graph, pairs), common)
    weights = np.diag(np.where(degree > 1, 1 / np.log(np.maximum(degree, 2)), 0))
    expected = (adjacency @ weights @ adjacency)[pairs[:, 0], pairs[:, 1]]
    np.testing.assert_allclose(adamic_adar(graph, pairs), expected, atol=1e-12)


@pytest.mark.parametrize("transform", ["none", "binarize", "standardize"])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_feature_cosines(tmp_path: Path, layout: str, transform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_heuristics, "CHUNK_ENTRIES", 24)
    rng = np.random.default_rng(4)
    values = rng.normal(size=(40, 12)) * (rng.random((40, 12)) < (0.1 if layout == "sparse" else 2))
    values[3] = 0
    bundle = make_bundle(tmp_path, features=values.astype(np.float32))
    assert bundle.manifest["features"]["layout"] == layout
    store = load_features(bundle, FeatureSettings(transform=transform))
    seen = (every_row(store) @ torch.eye(12)).numpy().astype(np.float64)
    length = np.linalg.norm(seen, axis=1)
    expected = [
        seen[u] @ seen[v] / (length[u] * length[v]) if length[u] * length[v] > 0 else 0 for u, v in PAIRS.tolist()
    ]
    np.testing.assert_allclose(feature_cosines(store, PAIRS), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("features", "expected"),
    [("hadamard", [3, -8]), ("concat", [1, 2, 3, -4]), ("l1", [2, 6]), ("l2", [4, 36]), ("hadamard_l1", [3, -8, 2, 6])],
)
def test_pair_features(features: Any, expected: list[float]) -> None:
    vectors = ArrayRows(np.array([[9, 9], [1, 2], [3, -4]]))
    settings = LinkSettings(features=features, normalize=False)
    assert pair_features(vectors, np.array([[1, 2]]), settings).tolist() == [expected]


def test_pair_features_of_normalised_vectors() -> None:
    vectors = ArrayRows(np.array([[3, 4], [0, 2]]))
    assert pair_features(vectors, np.array([[0, 1]]), LinkSettings()).numpy() == pytest.approx(np.array([[0, 0.8]]))


@pytest.mark.parametrize("held_bytes", [0, 1 << 20])
@pytest.mark.parametrize("features", ["hadamard", "concat", "l1", "l2", "hadamard_l1"])
def test_classifier_against_scikit_learn(features: Any, held_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_classifier, "CHUNK_BYTES", 100)
    monkeypatch.setattr(pair_classifier, "HELD_BYTES", held_bytes)
    rng = np.random.default_rng(0)
    vectors = ArrayRows(np.column_stack([rng.normal(size=(30, 5)), np.ones(30)]))
    edges, negatives = rng.integers(30, size=(25, 2)), rng.integers(30, size=(18, 2))
    settings = LinkSettings(features=features, normalize=False)
    classifier = PairClassifier(vectors, settings, "cpu")
    classifier.fit(edges, negatives)

    seen = pair_features(vectors, np.concatenate([edges, negatives]), settings).numpy()
    reference = make_pipeline(StandardScaler(), LogisticRegression(tol=1e-10)).fit(seen, np.repeat([1, 0], [25, 18]))
    expected = reference.decision_function(seen)
    assert expected.std() > 0.1
    np.testing.assert_allclose(classifier.scores(edges), expected[:25], atol=2e-3)


def test_classifier_of_a_tiny_signal_is_trained_to_its_end() -> None:
    """What tells edges apart may be a thousandth of what all pairs share."""
    rng = np.random.default_rng(1)
    telling = 1e-3 * np.repeat([1, -1], 200)[:, None] + 1e-4 * rng.normal(size=(400, 1))
    vectors = ArrayRows(np.column_stack([np.ones(400), telling, rng.normal(size=400)]))
    anchor = np.column_stack([np.arange(400), np.zeros(400, np.int64)])
    classifier = PairClassifier(vectors, LinkSettings(features="concat", normalize=False), "cpu")
    classifier.fit(anchor[:200:2], anchor[200::2])
    assert classifier.scores(anchor[1:200:2]).min() > 2
    assert classifier.scores(anchor[201::2]).max() < -2


def auc_and_ap(labels: np.ndarray, scores: np.ndarray) -> tuple[float, float]:
    """By their definitions: the share of pairs in the right order, ties half; precision where recall rises."""
    above = scores[labels][:, None] - scores[~labels][None, :]
    auc = float((above > 0).mean() + (above == 0).mean() / 2)
    recall = [0.0]
    precision = []
    for threshold in np.unique(scores)[::-1]:
        taken = scores >= threshold
        recall.append(float(labels[taken].sum() / labels.sum()))
        precision.append(float(labels[taken].mean()))
    return auc, sum((after - before) * p for (before, after), p in zip(pairwise(recall), precision, strict=True))


def run(bundle: Bundle, embeddings: Path, **settings: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    spec = {"bundle": str(bundle.path), "embeddings": str(embeddings), "settings": {"steps": 20} | settings}
    summary = dict(evaluate(spec, Emitter("evaluate")))
    return json.loads((embeddings / "report.json").read_text()), summary


def test_report(tmp_path: Path) -> None:
    nodes = 120
    bundle = split(make_labelled_bundle(tmp_path, list(range(nodes)), ["a", "b"] * 60), tmp_path / "split")
    (tmp_path / "snapshots").mkdir()
    for epoch in (2, 3):
        save_file(
            new_encoder(bundle, seed=epoch).state_dict(), tmp_path / "snapshots" / f"epoch-{epoch:05d}.safetensors"
        )
    write_embeddings(tmp_path / "emb", bundle, snapshots_dir=tmp_path / "snapshots")
    run(bundle, tmp_path / "emb", splits=2)
    report, summary = run(bundle, tmp_path / "emb", task="links")
    # What the other task had found stays.
    assert report["probe"]["protocol"]["splits"] == 2
    assert len(report["degree_buckets"]) > 0
    again, _ = run(bundle, tmp_path / "emb", splits=3)
    assert (again["probe"]["protocol"]["splits"], again["links"]) == (3, report["links"])

    links = report["links"]
    pairs = read_links(bundle)
    assert links["notes"] == []
    assert links["protocol"]["pairs"]["test"] == {
        "edges": len(pairs["test", None]),
        "random": len(pairs["test", "random"]),
        "hard": len(pairs["test", "hard"]),
    }
    assert [scores["epoch"] for scores in links["snapshots"]] == [2, 3, 4]
    assert links["snapshots"][-1] == links["trained"]["last"]
    best = links["trained"]["best_validation"]
    assert "reads held-out edges" in best["note"]
    for kind in NEGATIVES:
        assert best[kind]["val_auc"] == max(scores[kind]["val_auc"] for scores in links["snapshots"])

    adjacency = dense(bundle.symmetric)
    common = adjacency @ adjacency
    for kind in NEGATIVES:
        for part, short in (("validation", "val"), ("test", "test")):
            asked = np.concatenate([pairs[part, None], pairs[part, kind]])
            labels = np.arange(len(asked)) < len(pairs[part, None])
            auc, ap = auc_and_ap(labels, common[asked[:, 0], asked[:, 1]])
            found = links["baselines"]["common_neighbors"][kind]
            assert (found[f"{short}_auc"], found[f"{short}_ap"]) == pytest.approx((auc, ap))
        assert summary["test_auc"][kind] == {
            "rgrl": links["trained"]["last"][kind]["test_auc"],
            **{name: scores[kind]["test_auc"] for name, scores in links["baselines"].items()},
        }
    assert set(links["baselines"]) == {"raw_features", "common_neighbors", "adamic_adar", "random_encoder"}


def test_a_bundle_that_was_not_split_is_refused(tmp_path: Path) -> None:
    bundle = make_labelled_bundle(tmp_path, list(range(50)))
    write_embeddings(tmp_path / "emb", bundle)
    with pytest.raises(ArtifactError, match="no pairs for link prediction"):
        run(bundle, tmp_path / "emb", task="links")
    assert not (tmp_path / "emb" / "report.json").exists()


def test_no_negatives_and_no_features_are_told(tmp_path: Path) -> None:
    complete = np.array([(a, b) for a in range(12) for b in range(a)])
    adjacency = {"indices": complete[:, 1], "indptr": np.concatenate([[0], np.cumsum(np.arange(12))])}
    arrays = {f"adj_{name}": part for name, part in adjacency.items()} | {"adj_data": np.ones(len(complete))}
    np.savez(tmp_path / "graph.npz", **arrays, adj_shape=np.array([12, 12]))
    source = {"kind": "npz", "path": str(tmp_path / "graph.npz")}
    ingest({"out": tmp_path / "bundle", "settings": {"source": source}}, Emitter("ingest"))
    bundle = split(Bundle(tmp_path / "bundle"), tmp_path / "split")
    preprocess({"bundle": bundle.path, "settings": {"threads": 1}}, Emitter("preprocess"))
    write_embeddings(tmp_path / "emb", bundle)
    report, summary = run(bundle, tmp_path / "emb", task="links")
    assert (report["probe"], report["notes"]) == (None, [])
    assert report["links"]["trained"]["last"] == {"epoch": 4, "random": None, "hard": None}
    assert report["links"]["baselines"]["raw_features"] is None
    assert [note.split(":")[0] for note in summary["notes"]] == [
        "no figures for random negatives",
        "no figures for hard negatives",
        "no feature baseline",
    ]
    assert summary["test_auc"]["hard"]["rgrl"] is None


def test_training_never_sees_a_held_out_edge(tmp_path: Path) -> None:
    bundle = split(make_bundle(tmp_path, nodes=50, edges=80), tmp_path / "split")
    preprocess({"bundle": bundle.path, "settings": {"threads": 1, "ppr": {"top_k": 5}}}, Emitter("preprocess"))
    pairs = read_links(bundle)
    # A graph of the training edges alone, made from the table of pairs.
    training = np.zeros((50, 50))
    training[pairs["train", None][:, 0], pairs["train", None][:, 1]] = 1
    training += training.T
    np.testing.assert_array_equal(dense(bundle.topology), training)
    for part in PARTS[1:]:
        assert training[pairs[part, None][:, 0], pairs[part, None][:, 1]].sum() == 0
    rows, scores = bundle.ppr(), diffusion(training)
    assert rows.exact.mean() > 0.8
    present = np.arange(5) < rows.count[:, None]
    found = np.where(present, np.take_along_axis(scores, rows.neighbors, axis=1), 0)
    best = np.where(present, -np.sort(-scores, axis=1)[:, :5], 0)
    np.testing.assert_allclose(found[rows.exact], best[rows.exact], atol=1e-12)
    np.testing.assert_array_equal(bundle.degree_weights().degree, training.sum(axis=1))


@pytest.mark.realdata
def test_links_of_cora(tmp_path: Path, real_data: Path) -> None:
    """A few epochs rank held-out citations far above chance, and above counting the cited in common."""
    source = {"kind": "npz", "path": str(real_data / "cora.npz")}
    ingest({"out": tmp_path / "bundle", "settings": {"source": source}}, Emitter("ingest"))
    bundle = split(Bundle(tmp_path / "bundle"), tmp_path / "split")
    preprocess({"bundle": bundle.path, "settings": {"threads": 1, "ppr": {"top_k": 2}}}, Emitter("preprocess"))
    settings = {"preset": "cora", "encoder": {"layers": [128, 64], "predictor_hidden": 64}, "run": {"epochs": 30}}
    train({"bundle": bundle.path, "out": tmp_path / "emb", "work": tmp_path / "w", "settings": settings}, Emitter("t"))
    report, _ = run(bundle, tmp_path / "emb", task="links", steps=100)
    last, common = report["links"]["trained"]["last"], report["links"]["baselines"]["common_neighbors"]
    assert last["random"]["test_auc"] > 0.8
    assert 0.5 < last["hard"]["test_auc"] < last["random"]["test_auc"]
    assert last["random"]["test_ap"] > common["random"]["test_ap"]
