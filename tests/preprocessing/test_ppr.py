from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ppr_cases import adjacency, dense_ppr, fill, random_adjacency, topology, write_bundle

from preprocessing import artifact
from preprocessing import parts as parts_module
from preprocessing.bundle import PPR, Bundle
from preprocessing.errors import UsageError
from preprocessing.ppr import preprocess
from preprocessing.settings import PprSettings
from preprocessing.stage import Emitter

MATRIX = random_adjacency(300, 700, seed=2)


class Recorder(Emitter):
    """Keeps what a stage reports."""

    def __init__(self, stage: str) -> None:
        super().__init__(stage)
        self.counted: list[tuple[int, int, str]] = []
        self.figures: dict[int, Mapping[str, float]] = {}

    def progress(self, done: int, total: int, unit: str) -> None:
        self.counted.append((done, total, unit))

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self.figures[step] = values


def run(bundle: Bundle, ppr: dict[str, Any] | None = None, emitter: Emitter | None = None, **settings: Any) -> Any:
    spec = {"bundle": str(bundle.path), "settings": {"ppr": {"top_k": 4, **(ppr or {})}, **settings}}
    return preprocess(spec, emitter or Emitter("preprocess"))


def content_hash(bundle: Bundle) -> str:
    return str(artifact.read_manifest(bundle.path / "ppr", PPR)["content_hash"])


def parts(bundle: Bundle) -> list[Path]:
    return sorted((bundle.path / "ppr").glob("part-*.parquet"))


def test_parts_hold_the_rows_of_the_kernel_rounded_outwards(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "bundle", MATRIX)
    run(bundle, shard_rows=128, threads=2)
    artifact.verify(bundle.path / "ppr", PPR)
    table = pq.read_table(parts(bundle))
    assert [pq.read_metadata(part).num_rows for part in parts(bundle)] == [128, 128, 44]
    assert table.schema.field("node").type == pa.int64()
    assert table.schema.field("neighbors").type == pa.list_(pa.int32(), 4)
    assert table.schema.field("scores").type == pa.list_(pa.float32(), 4)
    assert table.schema.field("count").type == pa.int32()
    assert table["node"].to_pylist() == list(range(300))
    rows = fill(topology(MATRIX), PprSettings(top_k=4))
    assert [set(row) for row in table["neighbors"].to_pylist()] == [set(row) for row in rows.neighbors.tolist()]
    assert table["count"].to_pylist() == rows.counts.tolist()
    assert table["exact"].to_pylist() == rows.exact.tolist()
    scores = np.array(table["scores"].to_pylist())
    assert (scores <= rows.scores).all()
    assert scores == pytest.approx(rows.scores, rel=1e-6)
    assert (table["gap"].to_numpy() >= rows.gap).all()
    assert table["tied"].to_pylist() == rows.tied.tolist()
    assert table["capped"].to_pylist() == [False] * 300
    truth = np.take_along_axis(dense_ppr(MATRIX, 0.15, True), np.array(table["neighbors"].to_pylist()), axis=1)
    short = np.where(np.array(table["neighbors"].to_pylist()) >= 0, truth - scores, 0)
    assert (short.max(axis=1) <= table["error"].to_numpy() + 1e-13).all()


def test_equal_scores_as_stored_are_in_the_order_of_rows(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "bundle", adjacency(9, [(4, leaf) for leaf in range(9) if leaf != 4]))
    run(bundle, {"top_k": 12})
    rows = bundle.ppr()
    assert rows.neighbors[4].tolist() == [4, 0, 1, 2, 3, 5, 6, 7, 8, -1, -1, -1]
    assert rows.neighbors[0].tolist() == [0, 4, 1, 2, 3, 5, 6, 7, 8, -1, -1, -1]
    assert rows.count.tolist() == [9] * 9
    assert rows.exact.all()


def test_a_prefix_is_exact_only_where_it_is_proved(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "bundle", MATRIX)
    run(bundle, {"top_k": 8})
    S = dense_ppr(MATRIX, 0.15, True)
    whole = bundle.ppr()
    proved = []
    for k in (1, 2, 5, 7):
        rows = bundle.ppr(k)
        assert rows.neighbors.tolist() == whole.neighbors[:, :k].tolist()
        proved.append(rows.exact.mean())
        for source in np.flatnonzero(rows.exact):
            kept = rows.neighbors[source, : rows.count[source]]
            assert S[source, kept].min() >= np.delete(S[source], kept).max() - 1e-13
    assert 0.3 < min(proved) < 1


def test_rows_are_those_of_the_undirected_graph(tmp_path: Path) -> None:
    heard = MATRIX.copy()
    heard.data[::2] = 0
    heard.eliminate_zeros()
    directed, undirected = write_bundle(tmp_path / "a", MATRIX, heard), write_bundle(tmp_path / "b", MATRIX)
    run(directed)
    run(undirected)
    assert directed.ppr().neighbors.tolist() == undirected.ppr().neighbors.tolist()


def test_the_bytes_do_not_depend_on_threads(tmp_path: Path) -> None:
    bundles = [write_bundle(tmp_path / str(threads), MATRIX) for threads in (1, 3)]
    for bundle, threads in zip(bundles, (1, 3), strict=True):
        run(bundle, shard_rows=200, threads=threads)
    assert content_hash(bundles[0]) == content_hash(bundles[1])


def test_the_same_settings_keep_what_is_there_and_others_replace_it(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "bundle", MATRIX)
    first = run(bundle)
    inode = parts(bundle)[0].stat().st_ino
    assert run(bundle) == first
    assert parts(bundle)[0].stat().st_ino == inode
    second = run(bundle, {"self_loops": False})
    assert second["ppr"]["settings"]["self_loops"] is False
    assert second["ppr"]["content_hash"] != first["ppr"]["content_hash"]
    assert bundle.ppr().settings["self_loops"] is False


def test_progress_counts_nodes(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "bundle", MATRIX)
    emitter = Recorder("preprocess")
    summary = run(bundle, emitter=emitter, shard_rows=100)
    counted = [(done, total) for done, total, unit in emitter.counted if unit == "nodes"]
    assert counted[0] == (0, 300)
    assert counted[-1] == (300, 300)
    assert counted == sorted(counted)
    assert sorted(emitter.figures) == [0, 1, 2]
    exact = 100 * sum(values["exact_share"] for values in emitter.figures.values())
    assert exact == pytest.approx(summary["ppr"]["counts"]["exact"])


def test_a_graph_of_isolated_nodes_has_rows(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "bundle", adjacency(3, []))
    assert run(bundle)["ppr"]["counts"] == {"nodes": 3, "exact": 3}
    assert bundle.ppr().neighbors[:, 0].tolist() == [0, 1, 2]


def test_too_many_shards_are_refused(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "bundle", adjacency(100_001, [(0, 1)]))
    with pytest.raises(UsageError, match="set shard_rows to 2 or more"):
        run(bundle, shard_rows=1)
    assert not (bundle.path / "ppr").exists()


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, "the stage ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_killed_run_goes_on_from_its_shards(tmp_path: Path) -> None:
    matrix = random_adjacency(2000, 6000, seed=4)
    killed, whole = write_bundle(tmp_path / "killed", matrix), write_bundle(tmp_path / "whole", matrix)
    spec = {"settings": {"ppr": {"top_k": 8, "epsilon_floor": 1e-4}, "threads": 1, "shard_rows": 20}}
    preprocess({"bundle": str(whole.path), **spec}, Emitter("preprocess"))
    file = tmp_path / "spec.json"
    file.write_text(json.dumps({"bundle": str(killed.path), **spec}))
    process = subprocess.Popen([sys.executable, "-m", "preprocessing", "preprocess", str(file)], start_new_session=True)
    partial = killed.path / ".ppr.partial"
    try:
        wait_for(lambda: len(list(partial.glob("part-*.parquet"))) >= 3, process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    finished = {part.name: part.stat().st_ino for part in partial.glob("part-*.parquet")}
    assert 3 <= len(finished) < 100
    assert not (killed.path / "ppr").exists()
    preprocess({"bundle": str(killed.path), **spec}, Emitter("preprocess"))
    assert content_hash(killed) == content_hash(whole)
    assert {part.name: part.stat().st_ino for part in parts(killed) if part.name in finished} == finished


def test_an_unfinished_run_of_other_settings_is_not_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle, fresh = write_bundle(tmp_path / "bundle", MATRIX), write_bundle(tmp_path / "fresh", MATRIX)

    def fail_in_the_third(directory: Path, number: int, table: pa.Table) -> None:
        if number == 2 and "neighbors" in table.column_names:
            raise OSError("disk full")
        parts_module.write_part(directory, number, table)

    with monkeypatch.context() as patch:
        patch.setattr("preprocessing.row_shards.write_part", fail_in_the_third)
        with pytest.raises(OSError, match="disk full"):
            run(bundle, {"self_loops": False}, shard_rows=100)
    assert len(list((bundle.path / ".ppr.partial").glob("part-*.parquet"))) == 2
    run(bundle, shard_rows=100)
    run(fresh, shard_rows=100)
    assert content_hash(bundle) == content_hash(fresh)
