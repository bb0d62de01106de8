"""The index stage: its artefact, its measured recall, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from embedding_fixtures import write_set

from preprocessing.artifact import read_manifest, verify
from preprocessing.errors import InputError
from preprocessing.stage import Emitter
from service.search.embedding_set import EmbeddingSet
from service.search.index_settings import IndexSettings, ProjectionSettings
from service.search.indexing import build_index
from service.search.knn_index import choose_kind
from service.search.recall import measured_recall, true_scores

EMIT = Emitter("index")
NO_MAP = ProjectionSettings(method="none")


def vectors(nodes: int, dim: int = 8) -> np.ndarray:
    return np.random.default_rng(3).standard_normal((nodes, dim)).astype(np.float32)


@pytest.mark.parametrize(
    ("nodes", "kind"),
    [(1, "exact"), (200_000, "exact"), (200_001, "hnsw"), (20_000_000, "hnsw"), (20_000_001, "ivf")],
)
def test_the_kind_follows_the_number_of_nodes_unless_forced(nodes: int, kind: str) -> None:
    assert choose_kind(IndexSettings(), nodes) == kind
    assert choose_kind(IndexSettings(kind="ivf"), nodes) == "ivf"


def test_true_scores_are_the_largest_cosines_of_the_others() -> None:
    given = vectors(30)
    wide = given.astype(np.float64)
    cosines = (wide @ wide.T) / np.outer(np.linalg.norm(wide, axis=1), np.linalg.norm(wide, axis=1))
    np.fill_diagonal(cosines, -np.inf)
    found = true_scores(given, np.array([4, 17]), 6, lambda _: None)
    assert found == pytest.approx(-np.sort(-cosines[[4, 17]], axis=1)[:, :6])


def test_recall_counts_what_a_search_misses() -> None:
    given = vectors(50)
    order = np.argsort(-(given / np.linalg.norm(given, axis=1, keepdims=True)) @ (given[0] / np.linalg.norm(given[0])))
    nearest, farthest = order[1:11], order[-10:]
    half_right = np.concatenate((nearest[:5], farthest[:5]))
    assert measured_recall(given, lambda *_: [nearest], np.array([0]), 10, lambda _: None) == 1.0
    assert measured_recall(given, lambda *_: [half_right], np.array([0]), 10, lambda _: None) == 0.5
    assert measured_recall(given, lambda *_: [farthest], np.array([0]), 10, lambda _: None) == 0.0


def test_the_manifest_publishes_the_measured_recall(tmp_path: Path) -> None:
    path = write_set(tmp_path / "set", vectors(3000))
    summary = build_index(path, IndexSettings(kind="hnsw", recall_queries=100, projection=NO_MAP), EMIT)
    verify(path / "index", "knn_index")
    assert summary["index"] == "hnsw"
    assert summary["recall"]["k"] == 10
    assert summary["recall"]["queries"] == 100
    assert 0.9 < summary["recall"]["value"] <= 1.0
    poor = build_index(path, IndexSettings(kind="ivf", cells=40, effort=1, recall_queries=100, projection=NO_MAP), EMIT)
    assert poor["recall"]["value"] < 0.7
    assert read_manifest(path / "index", "knn_index")["recall"] == poor["recall"]


def test_the_same_settings_keep_the_index_and_others_replace_it(tmp_path: Path) -> None:
    path = write_set(tmp_path / "set", vectors(100))
    first = build_index(path, IndexSettings(kind="hnsw"), EMIT)
    inode = (path / "index").stat().st_ino
    assert build_index(path, IndexSettings(kind="hnsw"), EMIT) == first
    assert (path / "index").stat().st_ino == inode
    assert build_index(path, IndexSettings(kind="exact"), EMIT)["index"] == "exact"
    assert EmbeddingSet(path).space().index is None


@pytest.mark.parametrize("nodes", [1, 2])
def test_tiny_sets_get_an_index(tmp_path: Path, nodes: int) -> None:
    for kind in ("exact", "hnsw", "ivf"):
        path = write_set(tmp_path / kind, vectors(nodes))
        assert build_index(path, IndexSettings(kind=kind), EMIT)["recall"]["k"] == nodes - 1


def test_vectors_that_are_not_finite_are_refused_and_nothing_is_left(tmp_path: Path) -> None:
    broken = vectors(20)
    broken[7, 2] = np.nan
    broken[3] = 0
    path = write_set(tmp_path / "set", broken)
    with pytest.raises(InputError, match="not finite") as raised:
        build_index(path, IndexSettings(), EMIT)
    assert raised.value.given == "row 7 and 0 more"
    assert not [file for file in path.iterdir() if "index" in file.name and file.is_dir()]


def test_the_stage_runs_as_a_process_and_reports(tmp_path: Path) -> None:
    path = write_set(tmp_path / "set", vectors(200))
    spec, events = tmp_path / "spec.json", tmp_path / "events.jsonl"
    spec.write_text(json.dumps({"embeddings": str(path), "settings": {"kind": "hnsw"}}))
    command = [sys.executable, "-m", "service.search.indexing", "index", str(spec)]
    done = subprocess.run(command, env={"RGRL_EVENTS": str(events), "PATH": ""}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in events.read_text().splitlines()]
    assert told[-1]["event"] == "result"
    assert told[-1]["summary"]["counts"] == {"nodes": 200, "dim": 8}
    assert {"nodes", "vectors compared"} <= {event["unit"] for event in told if event["event"] == "progress"}

    spec.write_text(json.dumps({"embeddings": str(tmp_path / "none"), "settings": {}}))
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 3
    assert "there is no artefact here" in done.stderr
