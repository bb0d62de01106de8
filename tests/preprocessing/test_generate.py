"""Synthetic graphs: the counts asked for, the same bytes whatever comes between, and the shapes they are named for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from preprocessing import generate as module
from preprocessing.errors import UsageError
from preprocessing.generate import generate
from preprocessing.ingest import ingest
from preprocessing.stage import Emitter
from preprocessing.synthetic_edges import Ids


def run(out: Path, **settings: Any) -> Path:
    generate({"out": str(out), "settings": settings}, Emitter("generate"))
    return out


def ends(folder: Path) -> np.ndarray:
    table = pq.read_table(folder / "edges")
    return np.stack([table["source"].to_numpy(), table["target"].to_numpy()], axis=1)


def digests(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*.parquet")}


@pytest.mark.parametrize("nodes", [2, 3, 7, 64, 1000, 1025])
def test_ids_are_a_bijection(nodes: int) -> None:
    for seed in range(5):
        named = Ids.of(nodes, seed).named(np.arange(nodes))
        assert np.array_equal(np.sort(named), np.arange(nodes))
    orders = {tuple(Ids.of(1000, seed).named(np.arange(1000))) for seed in range(5)}
    assert len(orders) == 5


@pytest.mark.parametrize("kind", ["rmat", "blocks"])
def test_counts_and_range(tmp_path: Path, kind: str) -> None:
    pairs = ends(run(tmp_path / "g", kind=kind, nodes=3000, degree=7.0))
    assert pairs.shape == (10_500, 2)
    assert pairs.min() >= 0
    assert pairs.max() < 3000


@pytest.mark.parametrize("kind", ["rmat", "blocks"])
def test_bytes_depend_on_the_settings_alone(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 1000)
    settings = {"kind": kind, "nodes": 2000, "degree": 4.0, "seed": 3}
    whole = digests(run(tmp_path / "whole", **settings))
    assert len(whole) == (4 if kind == "rmat" else 6)
    assert digests(run(tmp_path / "again", **settings)) == whole
    assert digests(run(tmp_path / "other", **{**settings, "seed": 4})) != whole

    class Dying(Emitter):
        def progress(self, *event: Any) -> None:
            if event[0] >= 2000:
                raise KeyboardInterrupt

    spec = {"out": str(tmp_path / "killed"), "settings": settings}
    with pytest.raises(KeyboardInterrupt):
        generate(spec, Dying("generate"))
    assert not (tmp_path / "killed").exists()
    kept = tmp_path / ".killed.partial" / "edges" / "part-00000.parquet"
    inode = kept.stat().st_ino
    assert digests(run(tmp_path / "killed", **settings)) == whole
    assert (tmp_path / "killed" / "edges" / "part-00000.parquet").stat().st_ino == inode


def test_an_output_that_exists(tmp_path: Path) -> None:
    run(tmp_path / "g", kind="rmat", nodes=10)
    run(tmp_path / "g", kind="rmat", nodes=10)
    with pytest.raises(UsageError, match="exists already"):
        run(tmp_path / "g", kind="rmat", nodes=11)


def test_the_output_is_looked_at_before_kernels_are_compiled(tmp_path: Path) -> None:
    (tmp_path / "g").write_text("a file")
    (tmp_path / "spec.json").write_text(json.dumps({"out": str(tmp_path / "g"), "settings": {"kind": "rmat"}}))
    code = "import sys; from preprocessing.__main__ import STAGES, run_stage; " + (
        "code = run_stage(STAGES, ['generate', sys.argv[1]]); print(code, 'numba' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code, tmp_path / "spec.json"], capture_output=True, text=True)
    assert "the output exists already" in ran.stderr
    assert ran.stdout.split()[-2:] == ["2", "False"]


def test_rmat_has_hubs(tmp_path: Path) -> None:
    degrees = np.bincount(ends(run(tmp_path / "g", kind="rmat", nodes=1 << 14, degree=16.0)).ravel())
    assert degrees.max() > 50 * degrees.mean()


def test_rmat_quadrants(tmp_path: Path) -> None:
    """Two nodes, one bit: the four quadrants are the four pairs, up to the names of the nodes."""
    pairs = ends(run(tmp_path / "g", kind="rmat", nodes=2, degree=10_000.0, seed=1))
    counts = np.bincount(2 * pairs[:, 0] + pairs[:, 1], minlength=4) / len(pairs)
    assert np.sort(counts) == pytest.approx([0.05, 0.19, 0.19, 0.57], abs=0.02)


def test_blocks_are_communities_of_heavy_tailed_degrees(tmp_path: Path) -> None:
    folder = run(tmp_path / "g", kind="blocks", nodes=20_000, degree=20.0, community_size=1000, mixing=0.2)
    nodes = pq.read_table(folder / "nodes").to_pydict()
    label = np.empty(20_000, dtype=np.int64)
    label[nodes["id"]] = nodes["label"]
    pairs = ends(folder)
    # Twenty communities in ten classes: the edges inside a community, and a tenth of the rest by chance.
    assert np.mean(label[pairs[:, 0]] == label[pairs[:, 1]]) == pytest.approx(0.8 + 0.2 / 10, abs=0.01)
    degrees = np.sort(np.bincount(pairs.ravel(), minlength=20_000))[::-1]
    # The first of a thousand ranks is drawn with probability 1000^-1/2, the mean one with 1/1000.
    assert degrees[:20].mean() / degrees.mean() == pytest.approx(1000**0.5, rel=0.1)
    assert len(set(nodes["label"])) == 10


def test_mixing_of_one_knows_no_community(tmp_path: Path) -> None:
    folder = run(tmp_path / "g", kind="blocks", nodes=20_000, degree=20.0, mixing=1.0)
    nodes = pq.read_table(folder / "nodes").to_pydict()
    label = np.empty(20_000, dtype=np.int64)
    label[nodes["id"]] = nodes["label"]
    pairs = ends(folder)
    assert np.mean(label[pairs[:, 0]] == label[pairs[:, 1]]) == pytest.approx(0.1, abs=0.01)


def test_ingest_reads_them(tmp_path: Path) -> None:
    folder = run(tmp_path / "g", kind="blocks", nodes=2500, degree=6.0)
    source = {"kind": "tables", "nodes": str(folder / "nodes"), "edges": str(folder / "edges")}
    made = ingest({"out": str(tmp_path / "bundle"), "settings": {"source": source}}, Emitter("ingest"))
    assert made["counts"]["nodes"] == 2500
    assert made["features"]["columns"] == 8
    assert made["labels"]["classes"] == 3
