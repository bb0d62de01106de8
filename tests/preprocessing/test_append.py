"""New nodes and edges to a bundle: the bytes that ingest makes of all tables together, whatever kills it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from killed_stage import killed_and_run_again

from preprocessing.append import append
from preprocessing.artifact import verify
from preprocessing.bundle import Bundle
from preprocessing.errors import InputError, Interrupted, UsageError
from preprocessing.ingest import ingest
from preprocessing.settings import AppendSettings
from preprocessing.stage import Emitter

OLD, NEW, EDGES = 300, 60, 1200
EVERY = OLD + NEW


def names(kind: str) -> list[Any]:
    """Ids of all nodes; old and new ones lie among each other."""
    numbers = np.random.default_rng(0).permutation(5 * EVERY)[:EVERY].tolist()
    return numbers if kind == "int64" else [f"näme-{number}" for number in numbers]


def node_table(ids: list[Any], seed: int, **columns: Any) -> pa.Table:
    rng = np.random.default_rng(seed)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.normal(size=len(ids) * 4).astype(np.float32)), 4)
    return pa.table({"key": ids, "x": rng.random(len(ids)), "vector": vectors, **columns})


def edge_table(ids: list[Any], sources: range, seed: int, *, weights: bool = False) -> pa.Table:
    """Edges from some nodes to any, repeats, reciprocals and self-loops among them."""
    rng = np.random.default_rng(seed)
    source, target = rng.choice(sources, EDGES // 2), rng.integers(0, sources.stop, EDGES // 2)
    pairs = np.concatenate([[source, target], [source[:80], target[:80]], [target[80:130], source[80:130]]], axis=1)
    columns = {"a": [ids[i] for i in pairs[0]], "b": [ids[i] for i in pairs[1]]}
    return pa.table(columns | ({"w": rng.random(pairs.shape[1])} if weights else {}))


def written(folder: Path, name: str, table: pa.Table, suffix: str = "parquet") -> str:
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / f"{name}.{suffix}"
    (pa_csv.write_csv if suffix == "csv" else pq.write_table)(table, path)
    return str(path)


def files(bundle: Path) -> dict[str, bytes]:
    verify(bundle, "graph_bundle")
    return {
        str(file.relative_to(bundle)): file.read_bytes()
        for file in bundle.rglob("*")
        if file.is_file() and file.name != "manifest.json"
    }


def made(out: Path, source: dict[str, Any], **settings: Any) -> Bundle:
    ingest({"out": out, "settings": {"source": {"kind": "tables", **source}, **settings}}, Emitter("ingest"))
    return Bundle(out)


def appended(bundle: Bundle, out: Path, source: dict[str, Any]) -> Bundle:
    append({"bundle": bundle.path, "out": out, "settings": {"source": source}}, Emitter("append"))
    return Bundle(out)


def both(
    folder: Path, old: dict[str, pa.Table], new: dict[str, pa.Table], suffix: str = "parquet", **ingested: Any
) -> tuple[Bundle, Bundle]:
    """The old tables' bundle with the new ones appended, and the bundle of all."""
    columns = ingested.pop("columns", {})
    paths = {when: {name: written(folder / when, name, table, suffix) for name, table in tables.items()}
             for when, tables in (("old", old), ("new", new))}  # fmt: skip
    for name in {*old, *new}:
        for when, tables in (("old", old), ("new", new)):
            if name in tables:
                written(folder / "all" / name, when, tables[name], suffix)
    paths["all"] = {name: str(folder / "all" / name) for name in {*old, *new}}

    def source(when: str) -> dict[str, Any]:
        relations = {name: path for name, path in paths[when].items() if name not in ("nodes", "edges")}
        named = {name: path for name, path in paths[when].items() if name in ("nodes", "edges")}
        return named | ({"relations": relations} if relations else {})

    bundle = made(folder / "old-bundle", source("old") | columns, **ingested)
    whole = made(folder / "whole", source("all") | columns, **ingested)
    return appended(bundle, folder / "appended", source("new")), whole


@pytest.mark.parametrize("direction", ["undirected", "directed", "reverse"])
@pytest.mark.parametrize("kind", ["int64", "string"])
def test_the_bytes_of_all_tables_together(tmp_path: Path, kind: str, direction: str) -> None:
    ids = names(kind)
    labels = [["a", "b", None, "c"][i % 4] for i in range(EVERY)]
    parts = [["train", "validation", "test", None][i % 4] for i in range(EVERY)]
    old = {
        "nodes": node_table(ids[:OLD], 1, label=labels[:OLD], part=parts[:OLD]),
        "edges": edge_table(ids, range(OLD), 2),
    }
    new = {
        "nodes": node_table(ids[OLD:], 3, label=labels[OLD:], part=parts[OLD:]),
        "edges": edge_table(ids, range(OLD - 20, EVERY), 4),
    }
    found, whole = both(tmp_path, old, new, direction=direction, feature_dtype="float16", columns={"split": "part"})
    assert files(found.path) == files(whole.path)
    assert {"labels.parquet", "splits.parquet", "features/dense.npy"} <= set(files(found.path))
    assert found.content_hash == whole.content_hash
    for name in ("direction", "id_type", "features", "labels", "split", "relations"):
        assert found.manifest[name] == whole.manifest[name]
    distinct = ("nodes", "edges", "arcs", "isolated") if direction != "undirected" else ("nodes", "arcs", "isolated")
    assert {name: found.manifest["counts"][name] for name in distinct} == {
        name: whole.manifest["counts"][name] for name in distinct
    }
    # And once more on top, by the same columns.
    more: list[Any] = [10**9, 10**9 + 1, 10**9 + 2] if kind == "int64" else ["x", "y", "z"]
    third = {
        "nodes": node_table(more, 5, label=["d"] * 3, part=["test"] * 3),
        "edges": pa.table({"a": more, "b": ids[:3]}),
    }
    sources = {name: written(tmp_path / "third", name, table) for name, table in third.items()}
    for name, table in third.items():
        written(tmp_path / "all" / name, "zzz", table)
    all_tables = {name: str(tmp_path / "all" / name) for name in third}
    expected = made(tmp_path / "whole-2", all_tables | {"split": "part"}, direction=direction, feature_dtype="float16")
    assert files(appended(found, tmp_path / "appended-2", sources).path) == files(expected.path)


@pytest.mark.parametrize("direction", ["undirected", "reverse"])
def test_weights_and_relations(tmp_path: Path, direction: str) -> None:
    ids = names("string")
    old = {"nodes": node_table(ids[:OLD], 1)}
    new = {"nodes": node_table(ids[OLD:], 3)}
    for seed, relation in enumerate(("likes", "knows")):
        weights = relation == "likes"
        old[relation] = edge_table(ids, range(OLD), seed, weights=weights)
        new[relation] = edge_table(ids, range(OLD, EVERY), seed + 10, weights=weights)
    del new["knows"]
    found, whole = both(tmp_path, old, new, direction=direction)
    assert files(found.path) == files(whole.path)
    assert {"topology/weights.npy", "topology/likes/weights.npy", "topology/knows/indices.npy"} <= set(
        files(found.path)
    )


def test_words_labels_of_new_nodes_alone_and_csv(tmp_path: Path) -> None:
    """Sparse features of which the new nodes have no late word, and nodes without labels."""
    ids, rng = names("int64"), np.random.default_rng(2)
    words = [rng.choice(50, 3, replace=False).tolist() for _ in range(EVERY)]
    words[0] = [0, 49]
    words[OLD:] = [[word % 40 for word in row] for row in words[OLD:]]
    labels = [i % 3 for i in range(OLD)]
    old = {
        "nodes": pa.table({"id": ids[:OLD], "words": words[:OLD], "y": labels}),
        "edges": edge_table(ids, range(OLD), 2),
    }
    new = {
        "nodes": pa.table({"id": ids[OLD:], "words": words[OLD:], "y": pa.nulls(NEW, pa.int64())}),
        "edges": edge_table(ids, range(OLD, EVERY), 4),
    }
    found, whole = both(tmp_path / "a", old, new)
    assert files(found.path) == files(whole.path)
    assert found.manifest["features"]["layout"] == "sparse"
    without = written(tmp_path / "without", "nodes", new["nodes"].drop_columns(["y"]))
    edges = str(tmp_path / "a" / "new" / "edges.parquet")
    bare = appended(Bundle(tmp_path / "a" / "old-bundle"), tmp_path / "bare", {"nodes": without, "edges": edges})
    assert bare.content_hash == whole.content_hash

    tables = [
        {"nodes": pa.table({"id": part, "x": rng.random(len(part)), "label": [str(i) for i in range(len(part))]})}
        for part in (ids[:OLD], ids[OLD:])
    ]
    for table, name in zip(tables, ("old", "new"), strict=True):
        table["edges"] = old["edges"] if name == "old" else new["edges"]
    found, whole = both(tmp_path / "b", *tables, suffix="csv")
    assert files(found.path) == files(whole.path)


def test_edges_alone_and_nodes_without_columns(tmp_path: Path) -> None:
    ids = names("string")
    path = pa.table({"a": ids[: OLD - 1], "b": ids[1:OLD]})
    old, new = pa.concat_tables([path, edge_table(ids, range(OLD), 2)]), edge_table(ids, range(OLD), 4)
    found, whole = both(tmp_path / "a", {"edges": old}, {"edges": new})
    assert files(found.path) == files(whole.path)
    grown = pa.table({"a": ids[OLD:], "b": ids[:NEW]})
    whole = made(tmp_path / "whole", {"edges": written(tmp_path, "all", pa.concat_tables([old, grown]))})
    tables = {"nodes": pa.table({"id": ids[OLD:]}), "edges": grown}
    source = {name: written(tmp_path / "grown", name, table) for name, table in tables.items()}
    found = appended(Bundle(tmp_path / "a" / "old-bundle"), tmp_path / "found", source)
    assert files(found.path) == files(whole.path)


def test_a_bundle_of_one_matrix_takes_the_one_column_that_can_be_it(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    np.savez(
        tmp_path / "graph.npz",
        adj_data=np.ones(3), adj_indices=[1, 2, 3], adj_indptr=[0, 1, 2, 3, 3], adj_shape=[4, 4],
        attr_data=values[:4].ravel(), attr_indices=np.tile(np.arange(3), 4), attr_indptr=np.arange(0, 13, 3),
        attr_shape=[4, 3], labels=np.array([0, 1, 0, 1]),
    )  # fmt: skip
    bundle = made(tmp_path / "bundle", {"kind": "npz", "path": str(tmp_path / "graph.npz")})
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values[4]), 3)
    tables = {"nodes": pa.table({"id": [4], "features": vectors}), "edges": pa.table({"source": [4], "target": [0]})}
    source = {name: written(tmp_path / "new", name, table) for name, table in tables.items()}
    found = appended(bundle, tmp_path / "found", source)
    np.testing.assert_array_equal(found.features.values, values)
    assert found.topology.neighbors(4).tolist() == [0]
    assert found.labels.codes.tolist() == [0, 1, 0, 1, -1]


NODES, LINKS = {"id": [1, 2, 3], "x": [0.5, 1.5, 2.5]}, {"source": [1, 2], "target": [2, 3]}
WEIGHTED = LINKS | {"weight": [1.0, 2.0]}
# The old edges, what is otherwise about the new tables, and what the error says.
FAULTS: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "a node that is there": (
        LINKS,
        {"nodes": {"id": [7, 2], "x": [1.0, 2.0]}},
        ["nodes.parquet, row 2", "'id'", "given: 2"],
    ),
    "a node twice": (
        LINKS,
        {"nodes": {"id": [7, 7], "x": [1.0, 2.0]}},
        ["nodes.parquet, row 2", "comes twice", "row 1"],
    ),
    "an unknown node": (
        LINKS,
        {"edges": {"source": [7, 1], "target": [1, 9]}},
        ["edges.parquet, row 2", "'target'", "given: 9"],
    ),
    "ids of another type": (LINKS, {"nodes": {"id": ["7"], "x": [1.0]}}, ["nodes.parquet", "'id'", "int64 ids"]),
    "no feature column": (LINKS, {"nodes": {"id": [7]}}, ["nodes.parquet", "no column 'x' for the feature"]),
    "a wider feature": (
        LINKS,
        {"nodes": {"id": [7], "x": [[1.0, 2.0]]}},
        ["nodes.parquet, column 'x'", "2 numbers", "1 numbers"],
    ),
    "a feature that is no number": (
        LINKS,
        {"nodes": {"id": [7], "x": [float("nan")]}},
        ["nodes.parquet, row 1", "'x'", "nan"],
    ),
    "weights for none": (LINKS, {"edges": WEIGHTED}, ["edges.parquet", "the graph's have none"]),
    "no weights": (WEIGHTED, {"edges": LINKS}, ["edges.parquet", "the new ones have none"]),
    "a weighted edge that is there": (
        WEIGHTED,
        {"edges": {"source": [7, 3], "target": [3, 2], "weight": [1.0, 1.0]}},
        ["edges.parquet, row 2", "'target'", "from 3 to 2", "ingest the old tables and the new ones"],
    ),
    "another relation": (LINKS, {"likes": LINKS}, ["other relations", "given: likes"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_say_where_and_what_to_do_and_leave_nothing(tmp_path: Path, fault: str) -> None:
    links, changed, words = FAULTS[fault]
    old = {"nodes": written(tmp_path / "old", "nodes", pa.table(NODES))}
    bundle = made(tmp_path / "bundle", old | {"edges": written(tmp_path / "old", "edges", pa.table(links))})
    weights = {"weight": [1.0]} if "weight" in links else {}
    tables = {"nodes": {"id": [7], "x": [1.0]}, "edges": {"source": [7], "target": [1], **weights}} | changed
    if "likes" in tables:
        del tables["edges"]
    source = {name: written(tmp_path / "new", name, pa.table(table)) for name, table in tables.items()}
    if "likes" in source:
        source["relations"] = {"likes": source.pop("likes")}
    with pytest.raises(InputError) as refused:
        appended(bundle, tmp_path / "out", source)
    text = refused.value.text()
    assert [word for word in [*words, "remedy"] if word not in text] == [], text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "new", "old"]


def test_labels_of_another_type_are_refused(tmp_path: Path) -> None:
    tables = {"nodes": pa.table(NODES | {"label": [1, 2, 3]}), "edges": pa.table(LINKS)}
    bundle = made(tmp_path / "b", {name: written(tmp_path / "old", name, table) for name, table in tables.items()})
    new = {
        "nodes": pa.table({"id": [7], "x": [1.0], "label": ["one"]}),
        "edges": pa.table({"source": [7], "target": [1]}),
    }
    source = {name: written(tmp_path / "new", name, table) for name, table in new.items()}
    with pytest.raises(InputError, match=r"'label': the labels are of another type(.|\n)*labels of type int64"):
        appended(bundle, tmp_path / "out", source)
    with pytest.raises(InputError, match="no column 'class' for the label"):
        appended(bundle, tmp_path / "out", source | {"label": "class"})
    with pytest.raises(InputError, match="another number of feature columns"):
        appended(bundle, tmp_path / "out", source | {"features": ["x", "label"]})


def test_words_past_the_graphs_are_refused(tmp_path: Path) -> None:
    tables = {"nodes": pa.table({"id": [1, 2], "words": [[0], [4]]}), "edges": pa.table({"source": [1], "target": [2]})}
    bundle = made(tmp_path / "b", {name: written(tmp_path / "old", name, table) for name, table in tables.items()})
    new = {"nodes": pa.table({"id": [7], "words": [[5]]}), "edges": pa.table({"source": [7], "target": [1]})}
    source = {name: written(tmp_path / "new", name, table) for name, table in new.items()}
    with pytest.raises(InputError, match=r"given: word number 5\n  expected: word numbers from 0 to 4"):
        appended(bundle, tmp_path / "out", source)


def test_asked_again_and_for_something_else(tmp_path: Path) -> None:
    source = {name: written(tmp_path / "old", name, pa.table(t)) for name, t in (("nodes", NODES), ("edges", LINKS))}
    bundle = made(tmp_path / "b", source)
    tables = {"nodes": {"id": [7], "x": [1.0]}, "edges": {"source": [7], "target": [1]}}
    new = {name: written(tmp_path / "new", name, pa.table(table)) for name, table in tables.items()}
    first = appended(bundle, tmp_path / "out", new).manifest
    assert appended(bundle, tmp_path / "out", new).manifest == first
    other = {"edges": written(tmp_path / "other", "edges", pa.table({"source": [1], "target": [3]}))}
    for name in ("out", "b"):
        with pytest.raises(UsageError, match="exists already"):
            appended(bundle, tmp_path / name, other)


STAGE = """
import json, sys
from pathlib import Path
import preprocessing.tables, preprocessing.append, preprocessing.table_graph, preprocessing.stored_graph
from preprocessing.stage import Emitter
preprocessing.append.BATCH_ROWS = preprocessing.stored_graph.BLOCK_ARCS = 50
preprocessing.tables.Table.watched.__defaults__ = (50,)
preprocessing.append.SHARES = preprocessing.ingest.SHARES = (2 << 30) // 2_000
preprocessing.append.append(json.loads(Path(sys.argv[1]).read_text()), Emitter("append"))
"""


@pytest.mark.parametrize("moment", ["ids", "counted", "arcs", "rows"])
def test_killed_it_goes_on_and_makes_the_same_bytes(tmp_path: Path, moment: str) -> None:
    ids = names("string")
    old = {"nodes": node_table(ids[:OLD], 1), "edges": edge_table(ids, range(OLD), 2, weights=True)}
    new = {"nodes": node_table(ids[OLD:], 3), "edges": edge_table(ids, range(OLD, EVERY), 4, weights=True)}
    whole, expected = both(tmp_path, old, new)
    assert whole.content_hash == expected.content_hash
    source = {name: str(tmp_path / "new" / f"{name}.parquet") for name in new}
    settings = AppendSettings.model_validate({"source": source}).model_dump()
    spec = tmp_path / "spec.json"
    spec.write_text(
        json.dumps({"bundle": str(tmp_path / "old-bundle"), "out": str(tmp_path / "out"), "settings": settings})
    )
    killed_and_run_again(STAGE, spec, tmp_path / "out", moment)
    assert files(tmp_path / "out") == files(expected.path)
    assert not (tmp_path / ".out.partial").exists()


def test_killed_while_it_clears_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it was worked in may be half gone."""
    ids = names("int64")
    old = {"nodes": node_table(ids[:OLD], 1), "edges": edge_table(ids, range(OLD), 2)}
    new = {"nodes": node_table(ids[OLD:], 3), "edges": edge_table(ids, range(OLD, EVERY), 4)}
    expected, _ = both(tmp_path, old, new)

    def half(folder: Path, **_: object) -> None:
        for file in Path(folder).rglob("*.npy"):
            file.unlink()
            raise Interrupted("interrupted by SIGTERM")

    source = {name: str(tmp_path / "new" / f"{name}.parquet") for name in new}
    bundle = Bundle(tmp_path / "old-bundle")
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr("preprocessing.ingest.shutil.rmtree", half)
        appended(bundle, tmp_path / "out", source)
    assert files(appended(bundle, tmp_path / "out", source).path) == files(expected.path)
