"""``rgrl reproduce`` through its real stages, on a small graph in the place of Cora."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

NODES, CLASSES = 90, 3
EPOCHS = 400


def write_graph(file: Path) -> None:
    """A ring with chords whose features tell the classes apart, in the layout of gnn-benchmark."""
    rng = np.random.default_rng(0)
    labels = np.arange(NODES) % CLASSES
    adjacency = np.zeros((NODES, NODES), bool)
    for step in (CLASSES, 2 * CLASSES, 1):
        adjacency[np.arange(NODES), (np.arange(NODES) + step) % NODES] = True
    features = (rng.random((NODES, 12)) < 0.2) | (np.arange(12) % CLASSES == labels[:, None])
    arrays = {}
    for name, matrix in (("adj", adjacency), ("attr", features)):
        counts = matrix.sum(axis=1)
        arrays |= {
            f"{name}_data": np.ones(counts.sum(), np.float32),
            f"{name}_indices": np.nonzero(matrix)[1],
            f"{name}_indptr": np.concatenate([[0], np.cumsum(counts)]),
            f"{name}_shape": np.array(matrix.shape),
        }
    np.savez(file, **arrays, labels=labels)


def test_a_table_is_interrupted_goes_on_and_reports(
    tmp_path: Path, spawn: Callable[..., subprocess.Popen[Any]]
) -> None:
    write_graph(tmp_path / "cora.npz")
    out = tmp_path / "out"
    given = ["--data", str(tmp_path), "--out", str(out), "--threads", "1", "--seeds", "1", "--epochs", str(EPOCHS)]
    small = ["--set", "encoder.layers=[16,8]", "--set", "run.checkpoint_every=10"]
    command = [sys.executable, "-m", "service.cli", "reproduce", "nodes", "--datasets", "cora", "--methods", "rgrl"]
    command += [*given, *small, "--json"]

    process = spawn(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list(out.glob("runs/*/work/checkpoints/step-*/state.json")):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    begun = [json.loads(file.read_text())["epoch"] for file in out.glob("runs/*/work/checkpoints/step-*/state.json")]
    assert 0 < max(begun) < EPOCHS
    assert not list(out.glob("runs/*/embeddings"))

    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    told = json.loads(finished.stdout)
    assert told["deviations"] == [
        f"run.epochs: {EPOCHS} for every run",
        "encoder.layers: [16, 8] for every run",
        "run.checkpoint_every: 10 for every run",
    ]
    rows = {row["variant"]: row for row in told["rows"]}
    assert set(rows) == {"RGRL", "Raw features", "PPR-smoothed features", "Random encoder"}
    ours = rows["RGRL"]
    assert (ours["missing"], ours["seeds"], ours["epochs"]) == (None, 1, EPOCHS)
    (run,) = out.glob("runs/*")
    report = json.loads((run / "embeddings" / "report.json").read_text())["probe"]["trained"]
    for choice in ("best_validation", "last", "label_free"):
        accuracy = ours["scores"]["accuracy"][choice]
        assert accuracy["mean"] == 100 * report[choice]["test_mean"]
        assert accuracy["over_splits"] == 100 * report[choice]["test_std"]
    # Chance is a third.
    assert ours["scores"]["accuracy"]["best_validation"]["mean"] > 60
    assert not (run / "work").exists()
    markdown = (out / "nodes.md").read_text()
    assert (
        f"| Cora | RGRL | Accuracy | 83.98 (0.78) | {ours['scores']['accuracy']['best_validation']['mean']:.2f}"
        in markdown
    )
