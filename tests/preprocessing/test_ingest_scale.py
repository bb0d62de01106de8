"""Ingest beyond memory: the same bytes whatever the memory and whatever kills it, with weights and relations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from killed_stage import killed_and_run_again

from preprocessing import ingest as module
from preprocessing.bundle import Bundle
from preprocessing.errors import InputError, Interrupted
from preprocessing.ingest import ingest
from preprocessing.stage import Emitter

NODES, EDGES = 400, 3000


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, str]:
    """String ids in no order, parts, weights with repeats, features and labels."""
    rng = np.random.default_rng(0)
    names = [f"n{number}" for number in rng.permutation(NODES)]
    (tmp_path / "edges").mkdir()
    for part in range(3):
        ends = rng.integers(0, NODES, (EDGES // 3, 2))
        columns = {"source": [names[a] for a in ends[:, 0]], "target": [names[b] for b in ends[:, 1]]}
        weights = rng.integers(1, 9, EDGES // 3) / 4
        pq.write_table(pa.table({**columns, "weight": weights}), tmp_path / "edges" / f"part-{part}.parquet")
    nodes = {"id": names, "x": rng.random(NODES), "label": rng.integers(0, 3, NODES)}
    pq.write_table(pa.table(nodes), tmp_path / "nodes.parquet")
    return {"kind": "tables", "edges": str(tmp_path / "edges"), "nodes": str(tmp_path / "nodes.parquet")}


def files(bundle: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(bundle)): file.read_bytes()
        for file in bundle.rglob("*")
        if file.is_file() and file.name != "manifest.json"
    }


def run(out: Path, source: dict[str, Any], **settings: Any) -> Bundle:
    ingest({"out": str(out), "settings": {"source": source, **settings}}, Emitter("ingest"))
    return Bundle(out)


def small_blocks(patch: pytest.MonkeyPatch, memory: int) -> None:
    """Blocks of 100 rows, and ``memory`` bytes to sort in."""
    patch.setattr("preprocessing.table_graph.BATCH_ROWS", 100)
    patch.setattr("preprocessing.tables.Table.watched.__defaults__", (100,))
    patch.setattr(module, "SHARES", (2 << 30) // memory)


@pytest.mark.parametrize("direction", ["undirected", "reverse"])
def test_bytes_do_not_depend_on_the_memory(
    tmp_path: Path, tables: dict[str, str], direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = files(run(tmp_path / "whole", tables, direction=direction).path)
    for memory in (2_000, 20_000):
        small_blocks(monkeypatch, memory)
        bundle = run(tmp_path / f"small-{memory}", tables, direction=direction)
        assert files(bundle.path) == whole
    assert {"topology/weights.npy", "ids.arrow", "labels.parquet"} <= set(whole)


def test_a_finished_bundle_is_the_answer_whatever_the_memory(tmp_path: Path, tables: dict[str, str]) -> None:
    first = run(tmp_path / "bundle", tables, memory="1GiB").manifest
    assert run(tmp_path / "bundle", tables, memory="3GiB").manifest == first


STAGE = """
import sys
from preprocessing import feature_columns, features, ingest, tables
from preprocessing.stage import run_stage
ingest.SHARES = (2 << 30) // 4000
tables.Table.watched.__defaults__ = (100,)
feature_columns.BLOCK_ROWS = 100
features.JOURNAL_BLOCKS = 1
sys.exit(run_stage({"ingest": ingest.ingest}, ["ingest", sys.argv[1]]))
"""


@pytest.mark.parametrize("moment", ["ids", "checked", "arcs", "rows", "written"])
def test_a_real_kill_at_any_step_then_the_same_command(tmp_path: Path, tables: dict[str, str], moment: str) -> None:
    whole = files(run(tmp_path / "whole", tables).path)
    out = tmp_path / "bundle"
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"out": str(out), "settings": {"source": tables}}))
    killed_and_run_again(STAGE, spec, out, moment)
    assert files(out) == whole
    assert not (tmp_path / ".bundle.partial").exists()


def test_finished_steps_are_not_done_again(
    tmp_path: Path, tables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = files(run(tmp_path / "whole", tables).path)

    def stopped(*_: object) -> None:
        raise Interrupted("interrupted by SIGTERM")

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(module, "write_features", stopped)
        run(tmp_path / "bundle", tables)
    steps: list[tuple[int, int, str]] = []

    class Recorder(Emitter):
        def progress(self, done: int, total: int, unit: str) -> None:
            steps.append((done, total, unit))

    ingest({"out": str(tmp_path / "bundle"), "settings": {"source": tables}}, Recorder("ingest"))
    assert files(tmp_path / "bundle") == whole
    assert {unit for _, _, unit in steps} == {"labels", "feature rows written"}


def test_weights_of_a_csv_table(tmp_path: Path) -> None:
    edges = tmp_path / "e.csv"
    edges.write_text("source,target,strength\n1,2,0.5\n2,3,2\n1,2,1\n3,2,4\n")
    bundle = run(tmp_path / "bundle", {"kind": "tables", "edges": str(edges), "weight": "strength"})
    topology = bundle.topology
    assert topology.weights is not None
    assert [topology.neighbors(row).tolist() for row in range(3)] == [[1], [0, 2], [1]]
    # 1–2 twice, 2–3 in both directions.
    assert topology.weights.tolist() == [1.5, 1.5, 4.0, 4.0]
    assert topology.strengths().tolist() == [1.5, 5.5, 4.0]
    assert Bundle(bundle.path).manifest["counts"]["duplicate_edges"] == 1


@pytest.mark.parametrize(
    ("cell", "given", "problem"),
    [
        ("heavy", "'heavy'", "text in a column of numbers"),
        ("nan", "nan", "not a finite number"),
        ("1e60", "1e60", "not a finite number"),
        ("0", "0", "the weight is not positive"),
        ("-3", "-3", "the weight is not positive"),
        ("", "null", "missing"),
    ],
)
def test_a_bad_weight_is_one_error_with_its_place(tmp_path: Path, cell: str, given: str, problem: str) -> None:
    edges = tmp_path / "e.csv"
    edges.write_text(f"source,target,weight\n1,2,0.5\n2,3,{cell}\n")
    with pytest.raises(InputError, match=problem) as error:
        run(tmp_path / "bundle", {"kind": "tables", "edges": str(edges)})
    assert error.value.where == f"{edges}, line 3 (the header is line 1), column 'weight'"
    assert error.value.given == given
    assert [path.name for path in tmp_path.iterdir()] == ["e.csv"]


def test_relations_are_kept_apart_and_together(tmp_path: Path) -> None:
    (tmp_path / "likes.csv").write_text("source,target,weight\na,b,2\nb,c,3\n")
    (tmp_path / "knows.csv").write_text("source,target\nb,a\nc,d\n")
    relations = {name: str(tmp_path / f"{name}.csv") for name in ("likes", "knows")}
    bundle = run(tmp_path / "bundle", {"kind": "tables", "relations": relations}, direction="directed")
    assert bundle.relations == ("likes", "knows")
    rows = {name: [bundle.relation(name).neighbors(row).tolist() for row in range(4)] for name in bundle.relations}
    assert rows == {"likes": [[], [0], [1], []], "knows": [[1], [], [], [2]]}
    assert [bundle.topology.neighbors(row).tolist() for row in range(4)] == [[1], [0], [1], [2]]
    assert [bundle.symmetric.neighbors(row).tolist() for row in range(4)] == [[1], [0, 2], [1, 3], [2]]
    assert bundle.relation("likes").weights.tolist() == [2.0, 3.0]
    assert bundle.relation("knows").weights is None
    # An edge without a weight weighs 1; a pair in both relations has the larger one here.
    assert bundle.symmetric.weights.tolist() == [2.0, 2.0, 3.0, 3.0, 1.0, 1.0]
    assert bundle.manifest["relations"]["knows"]["edges"] == 2


def test_a_fault_in_a_later_relation_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id\na\nb\n")
    (tmp_path / "likes.csv").write_text("source,target\na,b\n")
    (tmp_path / "knows.csv").write_text("source,target\na,x\n")
    relations = {name: str(tmp_path / f"{name}.csv") for name in ("likes", "knows")}
    source = {"kind": "tables", "relations": relations, "nodes": str(tmp_path / "nodes.csv")}
    with pytest.raises(InputError, match="unknown node") as error:
        run(tmp_path / "bundle", source)
    assert str(tmp_path / "knows.csv") in str(error.value.where)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["knows.csv", "likes.csv", "nodes.csv"]


@pytest.mark.parametrize("source", [{}, {"edges": "e.csv", "relations": {"a": "a.csv"}}, {"relations": {"../x": "a"}}])
def test_edges_are_named_once_and_relations_sanely(tmp_path: Path, source: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"edges|relations"):
        run(tmp_path / "bundle", {"kind": "tables", **source})
