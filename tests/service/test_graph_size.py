"""Sizes that files tell before an ingest, against the bundle that the ingest then makes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from preprocessing.artifact import read_manifest
from preprocessing.bundle import BUNDLE
from preprocessing.ingest import ingest
from preprocessing.stage import Emitter
from service.jobs.graph_size import GraphSize, graph_size, missing_column, table_bytes, table_columns
from service.store import Graph

NODES, EDGES, COLUMNS = 3000, 20_000, 12
NOTHING: dict[str, Any] = dict.fromkeys(Graph.__dataclass_fields__)


def asked(source: dict[str, Any], direction: str = "undirected", **fields: Any) -> GraphSize | None:
    row = NOTHING | {"source": source, "direction": direction, "feature_dtype": "float32"} | fields
    return graph_size(Graph(**row))


def both(folder: Path, source: dict[str, Any], direction: str = "undirected") -> tuple[GraphSize, GraphSize]:
    """What the source's files tell, and what the bundle then holds."""
    before = asked(source, direction)
    ingest({"out": folder / "bundle", "settings": {"source": source, "direction": direction}}, Emitter("ingest"))
    manifest = read_manifest(folder / "bundle", BUNDLE)
    after = asked(source, direction, counts=manifest["counts"], features=manifest["features"])
    assert before is not None
    assert after is not None
    assert (before.guessed, after.guessed) == (True, False)
    return before, after


@pytest.fixture
def edges() -> pa.Table:
    ends = np.random.default_rng(1).integers(0, NODES, (EDGES, 2))
    return pa.table({"source": ends[:, 0], "target": ends[:, 1]})


@pytest.fixture
def nodes() -> dict[str, Any]:
    """Ids, labels, a text that is no feature, and COLUMNS numbers in a vector and two columns of their own."""
    random = np.random.default_rng(2)
    vectors = pa.FixedSizeListArray.from_arrays(random.random(NODES * (COLUMNS - 2)).astype(np.float32), COLUMNS - 2)
    return {
        "name": [f"node {number}" for number in range(NODES)],
        "id": np.arange(NODES),
        "label": random.integers(0, 5, NODES),
        "vector": vectors,
        "age": random.integers(1, 90, NODES),
        "height": random.random(NODES),
    }


def parts(table: pa.Table, folder: Path, suffix: str) -> str:
    """Three parts of unlike sizes, and a file that is none."""
    folder.mkdir()
    write = {"parquet": pq.write_table, "csv": pa_csv.write_csv}[suffix]
    for number, (first, last) in enumerate(((0, 100), (100, 1500), (1500, len(table)))):
        write(table.slice(first, last - first), folder / f"part-{number}.{suffix}")
    (folder / "_SUCCESS").touch()
    return str(folder)


def test_parquet_footers_tell_rows_and_numbers(tmp_path: Path, edges: pa.Table, nodes: dict[str, Any]) -> None:
    source = {
        "kind": "tables",
        "edges": parts(edges, tmp_path / "edges", "parquet"),
        "nodes": parts(pa.table(nodes), tmp_path / "nodes", "parquet"),
    }
    before, after = both(tmp_path, source)
    assert (before.nodes, before.columns, before.values) == (NODES, COLUMNS, NODES * COLUMNS)
    assert (after.nodes, after.columns, after.values) == (NODES, COLUMNS, NODES * COLUMNS)
    assert before.arcs == 2 * EDGES
    assert after.arcs <= before.arcs <= 1.05 * after.arcs
    assert after.bytes <= before.bytes <= 1.05 * after.bytes


def test_only_features_that_are_named_count(tmp_path: Path, edges: pa.Table, nodes: dict[str, Any]) -> None:
    pq.write_table(edges, tmp_path / "edges.parquet")
    pq.write_table(pa.table(nodes), tmp_path / "nodes.parquet")
    tables = {"edges": str(tmp_path / "edges.parquet"), "nodes": str(tmp_path / "nodes.parquet")}
    before, after = both(tmp_path, {"kind": "tables", **tables, "features": ["age", "vector"], "label": "label"})
    assert before.columns == after.columns == COLUMNS - 1


def test_bags_of_words_are_stored_sparse(tmp_path: Path, edges: pa.Table) -> None:
    random = np.random.default_rng(3)
    words = [sorted(set(random.integers(0, 2000, 15).tolist())) for _ in range(NODES)]
    pq.write_table(edges, tmp_path / "edges.parquet")
    pq.write_table(pa.table({"id": np.arange(NODES), "words": words}), tmp_path / "nodes.parquet")
    tables = {"edges": str(tmp_path / "edges.parquet"), "nodes": str(tmp_path / "nodes.parquet")}
    before, after = both(tmp_path, {"kind": "tables", **tables}, "directed")
    assert before.arcs == EDGES
    assert before.dense is after.dense is False
    assert before.values == sum(map(len, words)) == after.values


def test_csv_is_sampled_from_beginning_to_end(tmp_path: Path, edges: pa.Table, nodes: dict[str, Any]) -> None:
    del nodes["vector"]
    source = {
        "kind": "tables",
        "edges": parts(edges, tmp_path / "edges", "csv"),
        "nodes": parts(pa.table(nodes), tmp_path / "nodes", "csv"),
    }
    before, after = both(tmp_path, source)
    assert before.columns == after.columns == 2
    assert before.nodes == pytest.approx(NODES, rel=0.05)
    assert before.arcs == pytest.approx(2 * EDGES, rel=0.05)


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_bytes(b"\xef\xbb\xbfhead,tail\r\n1,2\r\n")
    source = {"kind": "tables", "edges": str(tmp_path / "edges.csv"), "source": "head", "target": "tail"}
    assert table_columns(source["edges"]) == ["head", "tail"]
    assert missing_column(source) is None


def test_long_lines_at_the_end_count(tmp_path: Path) -> None:
    """By the first lines alone there would be 600,000 rows."""
    lines = ["source,target"] + [f"{n},{n + 1}" for n in range(20_000)] + [f"{n},{n}{'0' * 300}" for n in range(20_000)]
    (tmp_path / "edges.csv").write_text("\n".join(lines) + "\n")
    size = asked({"kind": "tables", "edges": str(tmp_path / "edges.csv")}, "directed")
    assert size is not None
    assert 20_000 < size.arcs < 2 * 40_000


def test_without_a_node_table_ids_tell_how_many_nodes_there_are_at_most(tmp_path: Path, edges: pa.Table) -> None:
    pq.write_table(edges, tmp_path / "edges.parquet")
    before, after = both(tmp_path, {"kind": "tables", "relations": {"knows": str(tmp_path / "edges.parquet")}})
    assert before.nodes == pytest.approx(after.nodes, rel=0.01)
    assert before.values == after.values == 0


def test_headers_of_an_npz_tell_all(tmp_path: Path, edges: pa.Table) -> None:
    ends = np.stack([edges["source"].to_numpy(), edges["target"].to_numpy()], axis=1)
    ends = np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0)
    arrays: dict[str, Any] = {
        "adj_indptr": np.searchsorted(ends[:, 0], np.arange(NODES + 1)),
        "adj_indices": ends[:, 1],
        "adj_data": np.ones(len(ends)),
        "adj_shape": [NODES, NODES],
        "attr_indptr": np.arange(NODES + 1) * 2,
        "attr_indices": np.tile([3, 70], NODES),
        "attr_data": np.ones(2 * NODES),
        "attr_shape": [NODES, 100],
        "labels": np.arange(NODES) % 3,
    }
    np.savez_compressed(tmp_path / "graph.npz", **arrays)
    before, after = both(tmp_path, {"kind": "npz", "path": str(tmp_path / "graph.npz"), "relation": None}, "directed")
    assert (before.nodes, before.arcs) == (after.nodes, after.arcs) == (NODES, len(ends))
    assert (before.columns, before.values, before.dense) == (after.columns, after.values, after.dense)
    assert (before.columns, before.values) == (100, 2 * NODES)


def test_nothing_is_told_of_what_is_not_here(tmp_path: Path) -> None:
    (tmp_path / "empty.npz").touch()
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    (tmp_path / "empty.csv").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    tables = ["gone.parquet", "bad.parquet", "empty.csv", "folder", "pipe.csv"]
    sources: list[dict[str, Any]] = [
        {"kind": "pyg", "name": "WikiCS", "root": str(tmp_path)},
        {"kind": "npz", "path": str(tmp_path / "empty.npz")},
        {"kind": "npz", "path": str(tmp_path / "gone.npz")},
        {"kind": "tables", "edges": "s3://bucket/edges.parquet"},
        *({"kind": "tables", "edges": str(tmp_path / name)} for name in tables),
    ]
    assert [asked(source) for source in sources] == [None] * len(sources)


def test_packed_tables_count_three_times(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"x" * 10)
    (tmp_path / "a.csv").write_bytes(b"x" * 10)
    assert [table_bytes(str(tmp_path / name)) for name in ("a.parquet", "a.csv", "gone")] == [30, 10, 0]
    assert table_bytes(str(tmp_path)) == 40
