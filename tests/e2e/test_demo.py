"""The demo on a user's own tables, as `make demo` starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx2
import numpy as np
import pytest

NODES = 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two rings, joined once; the class is the ring, under a name that no one looks for."""
    tables = tmp_path / "rings"
    tables.mkdir()
    half = NODES // 2
    ring = np.arange(NODES) // half
    noise = np.random.default_rng(0).normal(size=(NODES, 3))
    rows = [f"n{i},{'north' if ring[i] else 'south'},{a},{b},{c}" for i, (a, b, c) in enumerate(noise)]
    (tables / "nodes.csv").write_text("\n".join(["id,hemisphere,a,b,c", *rows]) + "\n")
    around = [f"n{i},n{ring[i] * half + (i + step) % half}" for i in range(NODES) for step in (1, 2)]
    (tables / "edges.csv").write_text("\n".join(["source,target", *around, f"n0,n{half}"]) + "\n")
    return tables


def demo(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "service.cli", "demo", "--no-keep", "--json", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240)


def test_own_tables_with_a_label_column(tmp_path: Path, folder: Path) -> None:
    done = demo(tmp_path, "--graph", str(folder), "--label", "hemisphere")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["graph"]["counts"]["nodes"] == NODES
    assert set(report["accuracy"]) == {"raw_features", "ppr_smoothed", "random_encoder", "rgrl"}
    # The features are noise; only the edges know the ring.
    assert report["accuracy"]["rgrl"]["mean"] > report["accuracy"]["raw_features"]["mean"]
    assert report["index"]["recall"]["value"] == 1.0
    *near, strangers = report["queries"]
    assert all(query["label"] in ("north", "south") for query in near)
    assert strangers["exclude_connected"] is True
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{report['page']}/healthz", trust_env=False)


def test_a_label_column_needs_a_node_table(tmp_path: Path, folder: Path) -> None:
    done = demo(tmp_path, "--graph", str(folder / "edges.csv"), "--label", "hemisphere")
    assert done.returncode == 3
    assert "there is no node table" in json.loads(done.stdout)["error"]["message"]
