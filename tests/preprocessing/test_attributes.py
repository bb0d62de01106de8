"""Attributes of nodes, from the node table to the bundle, against the columns they were read from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from killed_stage import SIGNS, killed_and_run_again
from pydantic import ValidationError

from preprocessing import attribute_columns, attributes
from preprocessing.append import append
from preprocessing.artifact import verify
from preprocessing.attributes import is_none
from preprocessing.bundle import BUNDLE, Bundle
from preprocessing.edge_split import split_edges
from preprocessing.errors import InputError
from preprocessing.induced import induce
from preprocessing.ingest import ingest
from preprocessing.settings import IngestSettings
from preprocessing.stage import Emitter

NODES = 60
KEPT = {"city": "string", "age": "integer", "height": "number", "member": "boolean"}


def node_table(first: int = 0, last: int = NODES) -> pa.Table:
    """Nodes in no order, every column with nulls."""
    rng = np.random.default_rng(3)
    ids = rng.permutation(NODES)
    cities = ["Zürich", "Ankara", "", "Łódź", "北京"]
    columns = {
        "id": ids.tolist(),
        "city": [None if i % 11 == 0 else cities[i % 5] for i in range(NODES)],
        "age": [None if i % 7 == 0 else int(rng.integers(-(2**62), 2**62)) for i in range(NODES)],
        "height": [None if i % 5 == 0 else float(rng.normal()) for i in range(NODES)],
        "member": [None if i % 3 == 0 else bool(i % 2) for i in range(NODES)],
        "split": [("train", "test")[i % 2] for i in range(NODES)],
        "x": rng.random(NODES).tolist(),
    }
    return pa.table(columns).slice(first, last - first)


def sources(folder: Path, nodes: pa.Table, suffix: str = "parquet") -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    write = pa_csv.write_csv if suffix == "csv" else pq.write_table
    write(nodes, folder / f"nodes.{suffix}")
    ids = nodes["id"].to_pylist()
    write(pa.table({"source": ids, "target": [*ids[1:], ids[0]]}), folder / f"edges.{suffix}")
    named = {part: str(folder / f"{part}.{suffix}") for part in ("nodes", "edges")}
    return {"kind": "tables", **named}


def ingested(out: Path, source: dict[str, Any], **more: Any) -> Bundle:
    chosen = {"attributes": list(KEPT), "features": ["x"], "split": "split", **more}
    ingest({"out": str(out), "settings": {"source": {**source, **chosen}}}, Emitter("ingest"))
    verify(out, BUNDLE)
    return Bundle(out)


def values(bundle: Bundle, name: str) -> dict[str, Any]:
    """What the bundle holds, by id."""
    attribute = bundle.attribute(name)
    plain = [
        None if none else attribute.strings[value].as_py() if attribute.type == "string" else value
        for value, none in zip(attribute.values.tolist(), is_none(attribute.values, attribute.type), strict=True)
    ]
    return dict(zip(bundle.ids.external(range(bundle.num_nodes)), plain, strict=True))


def column(table: pa.Table, name: str) -> dict[str, Any]:
    return dict(zip(map(str, table["id"].to_pylist()), table[name].to_pylist(), strict=True))


@pytest.mark.parametrize("block", [7, 1 << 20])
def test_values_are_those_of_the_table_whatever_the_order_of_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(attributes, "_BLOCK_ROWS", block)
    table = node_table()
    bundle = ingested(tmp_path / "bundle", sources(tmp_path / "one", table))
    assert bundle.attributes == tuple(KEPT)
    for name, kind in KEPT.items():
        assert bundle.attribute(name).type == kind
        assert values(bundle, name) == column(table, name)
        assert bundle.manifest["attributes"][name]["nulls"] == table[name].null_count
    cities = bundle.attribute("city").strings.to_pylist()
    assert cities == sorted(cities)
    assert bundle.manifest["attributes"]["city"]["distinct"] == len(cities)
    shuffled = table.take(np.random.default_rng(9).permutation(NODES))
    other = ingested(
        tmp_path / "other", {**sources(tmp_path / "two", shuffled), "edges": str(tmp_path / "one" / "edges.parquet")}
    )
    assert other.content_hash == bundle.content_hash


def test_a_csv_column_is_of_the_type_its_cells_spell(tmp_path: Path) -> None:
    table = node_table().drop_columns(["city"])
    texts = ["01234" if i % 2 else None for i in range(NODES)]
    table = table.append_column("city", pa.array(texts))
    bundle = ingested(tmp_path / "bundle", sources(tmp_path / "csv", table, "csv"))
    for name, kind in KEPT.items():
        assert bundle.attribute(name).type == kind, name
        assert values(bundle, name) == column(table, name)


def test_categories_decimals_and_a_bundle_without(tmp_path: Path) -> None:
    table = node_table()
    table = table.set_column(1, "city", table["city"].dictionary_encode())
    table = table.set_column(3, "height", pa.array([None, *(i / 4 for i in range(1, NODES))]).cast(pa.decimal128(9, 2)))
    bundle = ingested(tmp_path / "bundle", sources(tmp_path / "in", table))
    assert values(bundle, "city") == column(table, "city")
    assert values(bundle, "height") == column(
        table.set_column(3, "height", table["height"].cast(pa.float64())), "height"
    )
    bare = ingested(tmp_path / "bare", sources(tmp_path / "in", table), attributes=[])
    assert (bare.attributes, bare.manifest["attributes"]) == ((), {})


def test_an_attribute_is_a_feature_only_where_it_is_named_as_one(tmp_path: Path) -> None:
    table = node_table().select(["id", "x", "age", "split"])
    source = sources(tmp_path / "in", table)
    # A default feature could hold no null.
    chosen = ingested(tmp_path / "chosen", source, attributes=["age"], features=None)
    assert list(chosen.manifest["features"]["names"]) == ["x"]
    both = ingested(tmp_path / "both", source, attributes=["x"], features=["x"])
    assert (list(both.manifest["features"]["names"]), both.attributes) == (["x"], ("x",))


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_append_makes_the_bytes_of_all_tables_together(tmp_path: Path, suffix: str) -> None:
    table, half = node_table(), NODES // 2
    one, two = sources(tmp_path / "a", table.slice(0, half), suffix), sources(tmp_path / "b", table.slice(half), suffix)
    ingested(tmp_path / "old", one)
    spec = {"bundle": str(tmp_path / "old"), "out": str(tmp_path / "grown"), "settings": {"source": two}}
    append(spec, Emitter("append"))
    grown = Bundle(tmp_path / "grown")
    for name in KEPT:
        expected = column(table, name)
        if suffix == "csv":
            expected = {node: None if value == "" else value for node, value in expected.items()}
        assert values(grown, name) == expected
    for part in ("nodes", "edges"):
        (tmp_path / "all" / part).mkdir(parents=True)
        for number, source in enumerate((one, two)):
            (tmp_path / "all" / part / f"{number}.{suffix}").write_bytes(Path(source[part]).read_bytes())
    whole = ingested(
        tmp_path / "whole", {"kind": "tables", **{p: str(tmp_path / "all" / p) for p in ("nodes", "edges")}}
    )
    assert grown.content_hash == whole.content_hash


def test_new_nodes_without_a_column_or_with_another_type_are_refused(tmp_path: Path) -> None:
    table, half = node_table(), NODES // 2
    ingested(tmp_path / "old", sources(tmp_path / "a", table.slice(0, half)))
    new = table.slice(half)
    cases = {
        "there is no column 'age'": new.drop_columns(["age"]),
        "of another type": new.set_column(2, "age", new["age"].cast(pa.string())),
    }
    for number, (problem, nodes) in enumerate(cases.items()):
        source = sources(tmp_path / f"b{number}", nodes)
        spec = {"bundle": str(tmp_path / "old"), "out": str(tmp_path / "grown"), "settings": {"source": source}}
        with pytest.raises(InputError, match=problem):
            append(spec, Emitter("append"))
        assert not (tmp_path / "grown").exists()
    named = {"source": {**sources(tmp_path / "c", new), "attributes": ["age"]}}
    with pytest.raises(InputError, match="other attributes"):
        append({**spec, "settings": named}, Emitter("append"))


def test_induced_and_split_bundles_keep_them(tmp_path: Path) -> None:
    table = node_table()
    bundle = ingested(tmp_path / "bundle", sources(tmp_path / "in", table))
    spec = {"bundle": str(bundle.path), "out": str(tmp_path / "links"), "settings": {}}
    split_edges(spec, Emitter("split-edges"))
    # A ring has every other node in a part: an edge between two of them is needed to induce a graph.
    pq.write_table(
        pa.table({"source": table["id"][::2], "target": table["id"][::2].take(pa.array([*range(1, 30), 0]))}),
        tmp_path / "in" / "edges.parquet",
    )
    linked = ingested(
        tmp_path / "linked",
        {
            "kind": "tables",
            "nodes": str(tmp_path / "in" / "nodes.parquet"),
            "edges": str(tmp_path / "in" / "edges.parquet"),
        },
    )
    induce(
        {"bundle": str(linked.path), "out": str(tmp_path / "part"), "settings": {"parts": ["train"]}}, Emitter("induce")
    )
    part = Bundle(tmp_path / "part")
    for name in KEPT:
        assert values(Bundle(tmp_path / "links"), name) == column(table, name)
        expected = column(table, name)
        assert values(part, name) == {node: expected[node] for node in part.ids.external(range(part.num_nodes))}


def test_names_that_every_graph_has_and_names_given_twice_are_refused(tmp_path: Path) -> None:
    source = sources(tmp_path / "in", node_table())
    for names, problem in ((["degree"], "cannot be called"), (["label"], "cannot be called"), (["age"] * 2, "twice")):
        with pytest.raises(ValidationError, match=problem):
            IngestSettings.model_validate({"source": {**source, "attributes": names}})
    with pytest.raises(ValidationError, match="of the node table"):
        IngestSettings.model_validate({"source": {"kind": "tables", "edges": "e.csv", "attributes": ["age"]}})


@pytest.mark.parametrize(
    ("cells", "problem", "place"),
    [
        (pa.array([[1]] * NODES), "can be no attribute", "column 'age'"),
        (pa.array([1] * 3 + [2**63] + [1] * (NODES - 4), pa.uint64()), "no 64-bit integer", "row 4 "),
        (pa.array([-(2**63)] + [1] * (NODES - 1)), "no 64-bit integer", "row 1 "),
    ],
)
def test_a_bad_column_is_named_and_nothing_is_left(tmp_path: Path, cells: Any, problem: str, place: str) -> None:
    source = sources(tmp_path / "in", node_table().set_column(2, "age", cells))
    with pytest.raises(InputError, match=problem) as raised:
        ingested(tmp_path / "bundle", source)
    assert place in str(raised.value.where)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_names_of_nodes_are_no_attribute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attribute_columns, "MAX_STRINGS", 3)
    with pytest.raises(InputError, match="more than 3 different strings"):
        ingested(tmp_path / "bundle", sources(tmp_path / "in", node_table()))


STAGE = """
import json, sys
from pathlib import Path
import preprocessing.tables
from preprocessing.ingest import ingest
from preprocessing.stage import Emitter
preprocessing.tables.Table.watched.__defaults__ = (2,)
ingest(json.loads(Path(sys.argv[1]).read_text()), Emitter("ingest"))
"""

HOLD = """
import time
import preprocessing.ingest
write = preprocessing.ingest.write_attributes
def written(*arguments):
    told = write(*arguments)
    time.sleep(60)
    return told
preprocessing.ingest.write_attributes = written
"""


@pytest.mark.parametrize("moment", ["read", "written"])
def test_killed_it_goes_on_and_makes_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    monkeypatch.setitem(SIGNS, "read", "*/attribute-1.npy")
    monkeypatch.setitem(SIGNS, "written", "../attributes/1.npy")
    source = sources(tmp_path / "in", node_table())
    expected = ingested(tmp_path / "expected", source)
    settings = {"source": {**source, "attributes": list(KEPT), "features": ["x"], "split": "split"}}
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"out": str(tmp_path / "out"), "settings": settings}))
    killed_and_run_again(STAGE, spec, tmp_path / "out", moment, HOLD if moment == "written" else "")
    verify(tmp_path / "out", BUNDLE)
    assert Bundle(tmp_path / "out").content_hash == expected.content_hash
