"""Every fault of the input: one error that names file, row, column, value and remedy, and nothing left on disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preprocessing.bundle import Bundle
from preprocessing.errors import InputError
from preprocessing.ingest import ingest
from preprocessing.input_files import InputFile
from preprocessing.stage import Emitter

NODES = {"id": [10, 20, 30], "x": [0.5, 1.5, 2.5]}
EDGES = {"src": [10, 20], "dst": [20, 30]}


def parquet(path: Path, columns: dict[str, Any]) -> str:
    pq.write_table(pa.table(columns), path)
    return str(path)


def csv(path: Path, columns: dict[str, Any]) -> str:
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return str(path)


def fault(tmp_path: Path, source: dict[str, Any], **general: Any) -> InputError:
    """The error of an ingest, which must leave nothing behind."""
    inputs = set(tmp_path.rglob("*"))
    spec = {"out": str(tmp_path / "bundle"), "settings": {"source": {"kind": "tables", **source}, **general}}
    with pytest.raises(InputError) as raised:
        ingest(spec, Emitter("ingest"))
    assert set(tmp_path.rglob("*")) <= inputs
    error = raised.value
    assert error.exit_code == 3
    assert error.expected
    assert error.remedy
    return error


# name: (node columns, edge columns, is it the node table's fault, row from 0, column, value, words of the problem)
CELLS: dict[str, tuple[dict[str, Any], dict[str, Any], str, int, str, str, str]] = {
    "edge to an unknown node": (NODES, {**EDGES, "dst": [20, 40]}, "edges", 1, "dst", "40", "unknown node"),
    "edge from an unknown node": (NODES, {**EDGES, "src": [11, 20]}, "edges", 0, "src", "11", "unknown node"),
    "node id twice": ({**NODES, "id": [10, 20, 10]}, EDGES, "nodes", 2, "id", "10", "comes twice"),
    "not a number": ({**NODES, "x": [0.5, float("nan"), 2.5]}, EDGES, "nodes", 1, "x", "nan", "not a finite"),
    "infinite": ({**NODES, "x": [0.5, 1.5, float("-inf")]}, EDGES, "nodes", 2, "x", "-inf", "not a finite"),
    "too large": ({**NODES, "x": [0.5, 1e39, 2.5]}, EDGES, "nodes", 1, "x", "1e+39", "not a finite"),
    "text among numbers": (
        {**NODES, "x": ["0.5", "1.5", "tall"]},
        EDGES,
        "nodes",
        2,
        "x",
        "'tall'",
        "text in a column",
    ),
}


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("name", CELLS)
def test_a_bad_cell_is_named(tmp_path: Path, name: str, suffix: str) -> None:
    nodes, edges, table, row, column, value, problem = CELLS[name]
    write = parquet if suffix == "parquet" else csv
    paths = {part: write(tmp_path / f"{part}.{suffix}", c) for part, c in (("nodes", nodes), ("edges", edges))}
    error = fault(tmp_path, paths)
    position = (
        f"row {row + 1} (the first row is 1)" if suffix == "parquet" else f"line {row + 2} (the header is line 1)"
    )
    assert error.where == f"{paths[table]}, {position}, column '{column}'"
    assert str(error.given).replace("1e39", "1e+39") == value
    assert problem in error.problem


PARQUET_CELLS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "missing id": ({"id": [10, None, 30]}, EDGES, "row 2 (the first row is 1), column 'id': an id is missing"),
    "id of no text": (
        {**NODES, "id": pa.array([b"a", b"\xff\xfe", b"c"]).view(pa.string())},
        {**EDGES, "src": ["a", "a"], "dst": ["c", "c"]},
        "row 2 (the first row is 1), column 'id': the id is no text",
    ),
    "missing end": (NODES, {**EDGES, "dst": [20, None]}, "row 2 (the first row is 1), column 'dst': an id is missing"),
    "missing feature": (
        {**NODES, "x": [None, 1.5, 2.5]},
        EDGES,
        "row 1 (the first row is 1), column 'x': the value is m",
    ),
    "missing vector": (
        {**NODES, "x": [[1.0], None, [2.0]]},
        EDGES,
        "row 2 (the first row is 1), column 'x': the value is",
    ),
    "hole in a vector": ({**NODES, "x": [[1.0, 2.0], [3.0, 4.0], [5.0, None]]}, EDGES, "(number 2 of the list)"),
    "ragged vectors": (
        {**NODES, "x": [[1.0, 2.0], [3.0], [5.0, 6.0]]},
        EDGES,
        "row 2 (the first row is 1), column 'x': the feature vectors are ragged\n  given: 1 numbers here, 2 in",
    ),
    "empty vectors": (
        {**NODES, "x": pa.array([[], [], []], pa.list_(pa.float32()))},
        EDGES,
        "row 1 (the first row is 1)",
    ),
    "infinity in a vector": (
        {**NODES, "x": [[1.0, 2.0], [3.0, 4.0], [float("inf"), 6.0]]},
        EDGES,
        "row 3 (the first row is 1), column 'x': a feature is not a finite number (number 1 of the list)\n  given: inf",
    ),
    "negative word": (
        {**NODES, "x": [[0], [1, -2], []]},
        EDGES,
        "row 2 (the first row is 1), column 'x': a word number is",
    ),
    "huge word": (
        {**NODES, "x": [[], [], [7, 2**40]]},
        EDGES,
        "row 3 (the first row is 1), column 'x': a word number is",
    ),
    "missing word": (
        {**NODES, "x": [[0], [1, None], []]},
        EDGES,
        "row 2 (the first row is 1), column 'x': a word number",
    ),
    "id past int64": (
        {"id": pa.array([10, 20, 2**63], pa.uint64())},
        EDGES,
        "row 3 (the first row is 1), column 'id': the id is no 64-bit integer\n  given: 9223372036854775808",
    ),
    "ids of two types": (
        {"id": ["10", "20", "30"]},
        EDGES,
        "column 'src': the ids of two columns are of different types\n  given: a column of type int64",
    ),
    "empty id": (
        {"id": ["a", ""]},
        {"src": ["a"], "dst": ["a"]},
        "row 2 (the first row is 1), column 'id': the id is empty, or holds a NUL character\n  given: ''",
    ),
    "NUL in an id": (
        {"id": ["a", "b"]},
        {"src": ["a", "b"], "dst": ["a", "b\0"]},
        "row 2 (the first row is 1), column 'dst': the id is empty, or holds a NUL character\n  given: 'b\\x00'",
    ),
    "decimal ids": (
        {"id": [1.0, 2.0]},
        EDGES,
        "column 'id': this column can hold no ids\n  given: a column of type double",
    ),
    "labels of floats": ({**NODES, "y": [0.5, 1.0, 2.0]}, EDGES, "column 'y': this column can be no label"),
    "labels of lists of floats": (
        {**NODES, "y": [[0.5], [1.0], [2.0]]},
        EDGES,
        "column 'y': this column can be no label",
    ),
    "no node": ({"id": pa.array([], pa.int64())}, EDGES, "nodes.parquet: the table is empty"),
    "no edge": (
        NODES,
        {"src": pa.array([], pa.int64()), "dst": pa.array([], pa.int64())},
        "edges.parquet: the table is em",
    ),
    "one edge column": (NODES, {"src": [10]}, "there is no column 'target' for the target\n  given: columns 'src'"),
    "one column for both ends": (
        {"id": [10, 20, 30]},
        {"to": [10], "seen": [20]},
        "there is no column 'source' for the source\n  given: columns 'to', 'seen'",
    ),
}


@pytest.mark.parametrize("name", PARQUET_CELLS)
def test_a_fault_only_a_typed_table_can_have(tmp_path: Path, name: str) -> None:
    nodes, edges, message = PARQUET_CELLS[name]
    paths = {"nodes": parquet(tmp_path / "nodes.parquet", nodes), "edges": parquet(tmp_path / "edges.parquet", edges)}
    assert message in fault(tmp_path, paths).text()


CSV_FILES: dict[str, tuple[str, str, str]] = {
    "missing id": (
        "id,x\n10,1\n,2\n",
        "src,dst\n10,10\n",
        "nodes.csv, line 3 (the header is line 1), column 'id': an id is",
    ),
    "missing feature": (
        "id,x\n10,1\n20,\n",
        "src,dst\n10,20\n",
        "line 3 (the header is line 1), column 'x': the value is m",
    ),
    "decimal id": (
        "id\n10\n20.0\n",
        "src,dst\n10,20\n",
        "line 3 (the header is line 1), column 'id': the id is a decimal",
    ),
    "semicolons": (
        "id;x\n10;1\n",
        "src,dst\n10,10\n",
        "nodes.csv, line 1 (the header is line 1): the fields are not separated by commas\n  given: 'id;x', which",
    ),
    "tabs": (
        "id,x\n10,1\n",
        "src\tdst\n10\t10\n",
        "edges.csv, line 1 (the header is line 1): the fields are not separated by commas",
    ),
    "text before the numbers": (
        "id,x\n10,tall\n20,1.5\n30,2\n",
        "src,dst\n10,20\n",
        "nodes.csv, line 2 (the header is line 1), column 'x': there is text in a column of numbers\n  given: 'tall'",
    ),
    "text for an integer id": (
        "id\n10\n20\n",
        "src,dst\n10,20\n20,ten\n",
        "edges.csv, line 3 (the header is line 1), column 'dst': the id is no 64-bit integer\n  given: ten",
    ),
    "too few fields": (
        "id,x\n10,1\n20\n",
        "src,dst\n10,20\n",
        "nodes.csv, line 3 (the header is line 1): a row has the",
    ),
    "no node": ("id,x\n", "src,dst\n10,20\n", "nodes.csv: the table is empty"),
    "no content": ("", "src,dst\n10,20\n", "nodes.csv: the CSV cannot be read"),
}


@pytest.mark.parametrize("name", CSV_FILES)
def test_a_fault_of_a_csv(tmp_path: Path, name: str) -> None:
    nodes, edges, message = CSV_FILES[name]
    (tmp_path / "nodes.csv").write_text(nodes)
    (tmp_path / "edges.csv").write_text(edges)
    source = {"nodes": str(tmp_path / "nodes.csv"), "edges": str(tmp_path / "edges.csv")}
    assert message in fault(tmp_path, source).text()


@pytest.mark.parametrize(
    ("setting", "meaning"), [("source", "source"), ("target", "target"), ("node_id", "node id"), ("label", "label")]
)
def test_a_missing_column_lists_those_there_are(tmp_path: Path, setting: str, meaning: str) -> None:
    paths = {"nodes": parquet(tmp_path / "n.parquet", NODES), "edges": parquet(tmp_path / "e.parquet", EDGES)}
    error = fault(tmp_path, {**paths, setting: "shoe"})
    assert error.problem == f"there is no column 'shoe' for the {meaning}"
    assert error.given == "columns " + ("'src', 'dst'" if setting in ("source", "target") else "'id', 'x'")
    error = fault(tmp_path, {**paths, "features": ["x", "shoe"]})
    assert error.problem == "there is no column 'shoe' for the feature"


def test_a_column_that_can_be_no_feature(tmp_path: Path) -> None:
    nodes = parquet(tmp_path / "n.parquet", {**NODES, "day": pa.array([1, 2, 3], pa.date32()), "town": ["a", "b", "c"]})
    edges = parquet(tmp_path / "e.parquet", EDGES)
    error = fault(tmp_path, {"nodes": nodes, "edges": edges, "features": ["day"]})
    assert (error.where, error.given) == (f"{nodes}, column 'day'", "a column of type date32[day]")
    error = fault(tmp_path, {"nodes": nodes, "edges": edges, "features": ["town"]})
    assert (error.where, error.given) == (f"{nodes}, row 1 (the first row is 1), column 'town'", "'a'")


def test_the_id_is_no_feature(tmp_path: Path) -> None:
    paths = {"nodes": parquet(tmp_path / "n.parquet", NODES), "edges": parquet(tmp_path / "e.parquet", EDGES)}
    error = fault(tmp_path, {**paths, "features": ["x", "id"]})
    assert error.where == f"{paths['nodes']}, column 'id'"
    assert error.problem == "the node id cannot be a feature"


def test_a_value_too_large_for_float16(tmp_path: Path) -> None:
    nodes = parquet(tmp_path / "n.parquet", {**NODES, "x": [1.0, 70000.0, 1.0]})
    error = fault(tmp_path, {"nodes": nodes, "edges": parquet(tmp_path / "e.parquet", EDGES)}, feature_dtype="float16")
    assert (error.given, error.expected) == ("70000.0", "a finite number in every row that float16 holds")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:-1],
        lambda _: b"PAR1",
        lambda _: b"id,x\n1,2\n",
    ],
)
@pytest.mark.parametrize("table", ["nodes", "edges"])
def test_a_truncated_parquet_file(tmp_path: Path, table: str, spoil: Callable[[bytes], bytes]) -> None:
    paths = {"nodes": parquet(tmp_path / "n.parquet", NODES), "edges": parquet(tmp_path / "e.parquet", EDGES)}
    Path(paths[table]).write_bytes(spoil(Path(paths[table]).read_bytes()))
    error = fault(tmp_path, paths)
    assert error.where == paths[table]
    assert "no Parquet, or it is truncated or damaged" in error.problem


@pytest.mark.parametrize("table", ["nodes", "edges"])
def test_a_missing_file(tmp_path: Path, table: str) -> None:
    paths = {"nodes": parquet(tmp_path / "n.parquet", NODES), "edges": parquet(tmp_path / "e.parquet", EDGES)}
    Path(paths[table]).unlink()
    assert fault(tmp_path, paths).text().startswith(f"{paths[table]}: there is no such file")


def test_what_is_no_file_is_told_as_that(tmp_path: Path) -> None:
    paths = {"nodes": parquet(tmp_path / "n.parquet", NODES), "edges": str(tmp_path / "e.parquet")}
    os.mkfifo(paths["edges"])
    told = "this is no regular file or folder, but a pipe, a socket or a device"
    assert fault(tmp_path, paths).text().startswith(f"{paths['edges']}: {told}\n  expected: a file\n")
    assert fault(tmp_path, paths | {"edges": "/dev/null"}).text().startswith(f"/dev/null: {told}")
    with pytest.raises(InputError, match="this is a folder"):
        InputFile.at(tmp_path).existing()


def test_a_fault_in_a_late_part_and_batch(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    for part, first in (("part-9", 0), ("part-10", 6000)):
        values = np.arange(6000, dtype=float)
        values[5500] = np.nan if part == "part-10" else 0
        parquet(tmp_path / "nodes" / f"{part}.parquet", {"id": np.arange(first, first + 6000), "x": values})
    source = {"nodes": str(tmp_path / "nodes"), "edges": parquet(tmp_path / "e.parquet", {"src": [0], "dst": [1]})}
    late = tmp_path / "nodes" / "part-10.parquet"
    assert fault(tmp_path, source).where == f"{late}, row 5501 (the first row is 1), column 'x'"


@pytest.mark.parametrize("columns", [["weight", "target"], ["target", "weight"], ["source", "weight"]])
def test_a_column_of_another_meaning_is_not_taken_for_a_missing_end(tmp_path: Path, columns: list[str]) -> None:
    edges = parquet(tmp_path / "e.parquet", {name: [1, 2] for name in columns})
    missing = "target" if "source" in columns else "source"
    error = fault(tmp_path, {"edges": edges})
    assert error.problem == f"there is no column '{missing}' for the {missing}"
    assert error.given == f"columns '{columns[0]}', '{columns[1]}'"


@pytest.mark.parametrize(
    "columns", [["id", "x"], ["x", "id", "y"], ["node_id", "label", "x"], ["citing", "cited", "id"], ["id"]]
)
@pytest.mark.parametrize("relations", [False, True])
def test_a_node_table_is_not_taken_for_edges(tmp_path: Path, columns: list[str], relations: bool) -> None:
    table = parquet(tmp_path / "n.parquet", {name: [1, 2] for name in columns})
    error = fault(tmp_path, {"relations": {"likes": table}} if relations else {"edges": table})
    assert error.problem.startswith("this looks like a node table, not like an edge table")
    assert error.given == "columns " + ", ".join(f"'{name}'" for name in columns)


def test_an_edge_table_with_ids_of_its_own_is_one_where_an_end_is_known(tmp_path: Path) -> None:
    for named in ({"src": [0], "dst": [1]}, {"citing": [0], "cited": [1]}):
        edges = parquet(tmp_path / "e.parquet", {"id": [7], **named})
        given = {} if "src" in named else {"source": "citing", "target": "cited"}
        ingest(
            {"out": str(tmp_path / "out"), "settings": {"source": {"kind": "tables", "edges": edges, **given}}},
            Emitter("ingest"),
        )
        assert Bundle(tmp_path / "out").ids.external([0, 1]) == ["0", "1"]
        shutil.rmtree(tmp_path / "out")


def test_source_and_target_are_two_columns(tmp_path: Path) -> None:
    edges = parquet(tmp_path / "e.parquet", EDGES)
    assert fault(tmp_path, {"edges": edges, "target": "src"}).problem == "source and target are the same column"
