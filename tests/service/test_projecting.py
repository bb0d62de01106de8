"""The map that the index stage draws: which method, what is kept, redone or lost, and whether neighbours stay near."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from embedding_fixtures import write_set
from projection_cases import clusters
from sklearn.manifold import trustworthiness

from preprocessing.artifact import read_manifest, verify
from preprocessing.errors import Interrupted
from preprocessing.stage import Emitter
from service.search import projecting
from service.search.index_settings import IndexSettings, ProjectionSettings
from service.search.indexing import build_index

EMIT = Emitter("index")


def settings(**projection: Any) -> IndexSettings:
    return IndexSettings(kind="exact", recall_queries=5, projection=ProjectionSettings(**projection))


def drawn(path: Path) -> tuple[np.ndarray, np.ndarray]:
    verify(path / "projection", "projection")
    return np.load(path / "projection" / "rows.npy"), np.load(path / "projection" / "points.npy")


@pytest.mark.parametrize(
    ("points", "method"),
    [(1, "pca"), (46, "pca"), (47, "tsne"), (5000, "tsne"), (5001, "umap"), (50_000, "umap"), (50_001, "pca")],
)
def test_the_method_follows_the_number_of_points_unless_forced(points: int, method: str) -> None:
    assert ProjectionSettings().method_for(points) == method
    assert ProjectionSettings(method="pca").method_for(points) == "pca"
    assert ProjectionSettings(method="umap", neighbors=2).method_for(points) == ("umap" if points > 7 else "pca")


# UMAP's kernels compile first.
@pytest.mark.parametrize(
    "method", ["tsne", pytest.param("umap", marks=[pytest.mark.slow, pytest.mark.timeout(900)]), "pca"]
)
def test_neighbours_stay_near_and_a_seed_has_one_map(tmp_path: Path, method: str) -> None:
    vectors = clusters(300)
    maps = []
    for name in ("one", "other"):
        path = write_set(tmp_path / name, vectors)
        summary = build_index(path, settings(method=method), EMIT)["projection"]
        assert (summary["method"], summary["counts"]) == (method, {"nodes": 300, "points": 300})
        rows, points = drawn(path)
        assert rows.tolist() == list(range(300))
        assert (points.shape, points.dtype) == ((300, 2), np.float32)
        maps.append(points)
    assert np.array_equal(*maps)
    # 0.5 is chance.
    assert trustworthiness(vectors, maps[0], n_neighbors=10, metric="cosine") > 0.8
    assert 0.4 < trustworthiness(vectors, np.random.default_rng(0).random((300, 2)), metric="cosine") < 0.6


def test_pca_is_that_of_the_directions(tmp_path: Path) -> None:
    vectors = clusters(90) * np.random.default_rng(1).uniform(0.1, 9, (90, 1)).astype(np.float32)
    path = write_set(tmp_path / "set", vectors)
    build_index(path, settings(method="pca"), EMIT)
    unit = vectors / np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    left, sizes, _ = np.linalg.svd(unit - unit.mean(axis=0), full_matrices=False)
    expected = left[:, :2] * sizes[:2]
    points = drawn(path)[1]
    signs = np.sign((points * expected).sum(axis=0))
    assert points == pytest.approx(expected * signs, abs=1e-5)


def test_more_nodes_than_points_are_sampled_by_the_seed(tmp_path: Path) -> None:
    path = write_set(tmp_path / "set", clusters(80))
    seen = []
    for seed in (1, 2):
        summary = build_index(path, settings(points=30, seed=seed, method="pca"), EMIT)["projection"]
        assert summary["counts"] == {"nodes": 80, "points": 30}
        rows, points = drawn(path)
        assert (np.diff(rows) > 0).all()
        assert len(points) == 30
        seen.append(rows.tolist())
    assert seen[0] != seen[1]


def test_the_same_settings_keep_the_map_and_others_redo_it_alone(tmp_path: Path) -> None:
    path = write_set(tmp_path / "set", clusters(60))
    first = build_index(path, settings(method="pca"), EMIT)
    inodes = [(path / part).stat().st_ino for part in ("index", "projection")]
    assert build_index(path, settings(method="pca"), EMIT) == first
    assert [(path / part).stat().st_ino for part in ("index", "projection")] == inodes
    other = build_index(path, settings(method="pca", points=20), EMIT)
    assert (path / "index").stat().st_ino == inodes[0]
    assert (path / "projection").stat().st_ino != inodes[1]
    assert read_manifest(path / "projection", "projection")["counts"]["points"] == 20
    assert {**other, "projection": None} == {**first, "projection": None}
    assert build_index(path, settings(method="none"), EMIT)["projection"] is None
    assert not (path / "projection").exists()


@pytest.mark.parametrize("vectors", [np.ones((80, 3)), np.zeros((80, 2)), np.arange(1.0, 81)[:, None], np.eye(1)])
def test_sets_without_spread_or_of_one_number_or_node_get_a_map(tmp_path: Path, vectors: np.ndarray) -> None:
    path = write_set(tmp_path / "set", vectors.astype(np.float32))
    summary = build_index(path, settings(), EMIT)["projection"]
    assert "error" not in summary
    assert np.isfinite(drawn(path)[1]).all()


def test_a_map_that_fails_leaves_the_index_and_the_next_run_draws_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_set(tmp_path / "set", clusters(60))

    def fail(*_: object) -> None:
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(projecting, "_pca", fail)
        summary = build_index(path, settings(), EMIT)
    assert summary["projection"] == {"error": "no room"}
    assert "no room" in capsys.readouterr().err
    verify(path / "index", "knn_index")
    assert not (path / "projection").exists()
    assert build_index(path, settings(), EMIT)["projection"]["method"] == "tsne"

    def interrupt(*_: object) -> None:
        raise Interrupted("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(projecting, "_pca", interrupt)
        with pytest.raises(Interrupted):
            build_index(path, settings(seed=5), EMIT)
    assert drawn(path)[0].tolist() == list(range(60))


KILLED = """
import os, sys, signal
from service.search import indexing, projecting
real = projecting.np.save
def save(file, array):
    real(file, array)
    os.kill(os.getpid(), signal.SIGKILL)
projecting.np = type("np", (), {**vars(projecting.np), "save": staticmethod(save)})
sys.exit(indexing.run_stage({"index": indexing.index}, ["index", sys.argv[1]]))
"""


def test_killed_half_way_it_has_its_index_and_no_map_until_it_is_run_again(tmp_path: Path) -> None:
    path, spec = write_set(tmp_path / "set", clusters(60)), tmp_path / "spec.json"
    chosen = settings(method="pca")
    spec.write_text(json.dumps({"embeddings": str(path), "settings": chosen.model_dump()}))
    done = subprocess.run([sys.executable, "-c", KILLED, str(spec)], capture_output=True, text=True, env=os.environ)
    assert done.returncode == -signal.SIGKILL, done.stderr
    verify(path / "index", "knn_index")
    inode = (path / "index").stat().st_ino
    assert not (path / "projection").exists()
    events = tmp_path / "events"
    command = [sys.executable, "-m", "service.search.indexing", "index", str(spec)]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "RGRL_EVENTS": str(events)})
    assert (path / "index").stat().st_ino == inode
    assert len(drawn(path)[0]) == 60
    told = [json.loads(line) for line in events.read_text().splitlines()]
    assert told[-1]["summary"]["projection"]["counts"] == {"nodes": 60, "points": 60}
    assert [(event["done"], event["total"]) for event in told if event.get("unit") == "steps of the map"] == [
        (0, 1),
        (1, 1),
    ]
