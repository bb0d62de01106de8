from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing import ingest as ingest_module
from preprocessing.artifact import read_manifest, verify
from preprocessing.bundle import BUNDLE, Bundle, DenseFeatures, SparseFeatures
from preprocessing.errors import InputError, Interrupted, UsageError
from preprocessing.ingest import ingest
from preprocessing.stage import Emitter

Edges = list[tuple[Any, Any]]


class Recorder(Emitter):
    """Keeps what is reported."""

    def __init__(self, stage: str) -> None:
        super().__init__(stage)
        self.steps: list[tuple[int, int, str]] = []
        self.warnings: list[tuple[str, str]] = []

    def progress(self, done: int, total: int, unit: str) -> None:
        self.steps.append((done, total, unit))

    def warning(self, code: str, message: str) -> None:
        self.warnings.append((code, message))


def write(path: Path, columns: dict[str, list[Any] | pa.Array]) -> str:
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    else:
        rows = zip(*(list(column) for column in columns.values()), strict=True)
        text = [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
        path.write_text("\n".join([",".join(columns), *text]) + "\n")
    return str(path)


def run(out: Path, nodes: str | None = None, edges: str = "", emitter: Emitter | None = None, **more: Any) -> Bundle:
    general = {key: more.pop(key) for key in ("direction", "feature_dtype") if key in more}
    source = {"kind": "tables", "nodes": nodes, "edges": edges, **more}
    ingest({"out": str(out), "settings": {"source": source, **general}}, emitter or Emitter("ingest"))
    return Bundle(out)


def neighbours(bundle: Bundle, symmetric: bool = False) -> dict[str, set[str]]:
    """Whom every node hears from, by external id."""
    csr = bundle.symmetric if symmetric else bundle.topology
    names = bundle.ids.external(range(len(bundle.ids)))
    for row in range(csr.num_nodes):
        assert (np.diff(csr.neighbors(row)) > 0).all()
    return {name: {names[other] for other in csr.neighbors(row)} for row, name in enumerate(names)}


def oracle(nodes: list[Any], edges: Edges, direction: str) -> dict[str, set[str]]:
    hears: dict[str, set[str]] = {str(node): set() for node in nodes}
    for source, target in edges:
        if source != target and direction != "reverse":
            hears[str(target)].add(str(source))
        if source != target and direction != "directed":
            hears[str(source)].add(str(target))
    return hears


def dense(bundle: Bundle) -> list[list[float]]:
    features = bundle.features
    assert features is not None
    if isinstance(features, DenseFeatures):
        return np.asarray(features.values, dtype=float).tolist()
    values = np.zeros(features.shape)
    for row in range(features.shape[0]):
        for e in range(features.indptr[row], features.indptr[row + 1]):
            values[row, features.indices[e]] = features.values[e]
    return values.tolist()


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Any], Edges]:
    """Nodes (some isolated) and edges among them (some repeated, some self-loops), ids of one kind."""
    integers = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 12)
    texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=4)
    nodes = draw(st.lists(draw(st.sampled_from([integers, texts])), min_size=1, max_size=12, unique=True))
    edges = draw(st.lists(st.tuples(st.sampled_from(nodes), st.sampled_from(nodes)), min_size=1, max_size=25))
    return nodes, edges


@settings(max_examples=20, deadline=None)
@given(graph=graphs(), direction=st.sampled_from(["undirected", "directed", "reverse"]), data=st.data())
def test_bundle_is_the_oracle_graph_whatever_the_order_of_rows(
    graph: tuple[list[Any], Edges], direction: str, data: st.DataObject
) -> None:
    nodes, edges = graph
    hashes = set()
    for i in range(2):
        order = nodes if i == 0 else data.draw(st.permutations(nodes))
        given_edges = edges if i == 0 else data.draw(st.permutations(edges))
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            values = [[float(nodes.index(node)), 0.5] for node in order]
            labels = [None if nodes.index(node) % 3 == 0 else f"class {nodes.index(node) % 2}" for node in order]
            bundle = run(
                home / "bundle",
                write(home / "nodes.parquet", {"id": order, "x": values, "label": pa.array(labels, pa.string())}),
                write(
                    home / "edges.parquet",
                    {"src": [edge[0] for edge in given_edges], "dst": [edge[1] for edge in given_edges]},
                ),
                direction=direction,
            )
            hashes.add(bundle.content_hash)
            names = bundle.ids.external(range(len(nodes)))
            ascending = sorted(nodes, key=lambda node: node.encode() if isinstance(node, str) else node)
            assert names == [str(node) for node in ascending]
            assert neighbours(bundle) == oracle(nodes, edges, direction)
            assert neighbours(bundle, symmetric=True) == oracle(nodes, edges, "undirected")
            assert [row[0] for row in dense(bundle)] == [nodes.index(node) for node in ascending]
            assert bundle.labels is not None
            for node, code in zip(ascending, bundle.labels.codes, strict=True):
                position = nodes.index(node)
                assert (code == -1) if position % 3 == 0 else bundle.labels.names[code] == f"class {position % 2}"
            verify(home / "bundle", BUNDLE)
    assert len(hashes) == 1


@settings(max_examples=15, deadline=None)
@given(graph=graphs(), data=st.data())
def test_without_a_node_table_the_nodes_are_those_edges_name(
    graph: tuple[list[Any], Edges], data: st.DataObject
) -> None:
    _, edges = graph
    named = sorted({node for edge in edges for node in edge}, key=lambda node: str(node).encode())
    hashes = set()
    for given_edges in (edges, data.draw(st.permutations(edges))):
        with tempfile.TemporaryDirectory() as folder:
            columns = {"from": [edge[0] for edge in given_edges], "to": [edge[1] for edge in given_edges]}
            bundle = run(Path(folder) / "bundle", edges=write(Path(folder) / "e.parquet", columns))
            assert neighbours(bundle) == oracle(named, edges, "undirected")
            hashes.add(bundle.content_hash)
    assert len(hashes) == 1


def test_counts_and_notices_reach_manifest_and_events(tmp_path: Path) -> None:
    nodes = write(tmp_path / "n.csv", {"id": [1, 2, 3, 4, 5], "age": [3, 4, 5, 6, 7], "town": list("abcde")})
    edges = write(tmp_path / "e.csv", {"src": [1, 1, 2, 3, 4, 4], "dst": [2, 2, 1, 3, 1, 4], "kg": [1] * 6})
    recorder = Recorder("ingest")
    bundle = run(tmp_path / "bundle", nodes, edges, recorder)
    assert bundle.manifest["counts"] == {
        "nodes": 5,
        "given": 6,
        "self_loops": 2,
        "duplicate_edges": 1,
        "reciprocal_edges": 1,
        "edges": 2,
        "arcs": 4,
        "isolated": 2,
    }
    assert bundle.manifest["id_type"] == "int64"
    assert bundle.manifest["features"]["names"] == {"age": [0, 1]}
    messages = [warning["message"] for warning in bundle.manifest["warnings"]]
    assert messages == [
        f"{nodes}: columns not used: 'town'; name one as the label to have it read",
        f"{edges}: columns not used: 'kg'",
    ]
    assert recorder.warnings == [("columns_unread", message) for message in messages]
    last = {unit: (done, total) for done, total, unit in recorder.steps}
    assert last["edges"] == (6, 6)
    assert last["feature rows written"] == (5, 5)


@pytest.mark.parametrize(
    ("node_ids", "source_ids", "kind"),
    [
        (["1", "2", "10"], ["1", "10"], "int64"),
        (["1", "2", "b"], ["1", "2"], "string"),
        (["1", "01", "2"], ["01", "2"], "string"),
        (["1", "2", str(2**63)], ["1", str(2**63)], "string"),
    ],
)
def test_csv_ids_are_integers_when_all_are_spelled_so(
    tmp_path: Path, node_ids: list[str], source_ids: list[str], kind: str
) -> None:
    nodes = write(tmp_path / "n.csv", {"id": node_ids})
    edges = write(tmp_path / "e.csv", {"source": source_ids, "target": source_ids[::-1]})
    bundle = run(tmp_path / "bundle", nodes, edges)
    assert bundle.ids.kind == kind
    assert set(bundle.ids.external(range(3))) == set(node_ids)
    assert {name for name, others in neighbours(bundle).items() if others} == set(source_ids)


def test_csv_ids_follow_the_parquet_table_beside_them(tmp_path: Path) -> None:
    edges = write(tmp_path / "e.csv", {"source": ["1"], "target": ["2"]})
    strings = write(tmp_path / "s.parquet", {"id": ["1", "2"]})
    integers = write(tmp_path / "i.parquet", {"id": pa.array([2, 1], pa.uint8())})
    assert run(tmp_path / "a", strings, edges).ids.kind == "string"
    assert run(tmp_path / "b", integers, edges).ids.kind == "int64"
    assert neighbours(Bundle(tmp_path / "a")) == neighbours(Bundle(tmp_path / "b")) == {"1": {"2"}, "2": {"1"}}


def test_categories_are_ids_and_labels_like_strings(tmp_path: Path) -> None:
    ids = pa.array(["b", "a", "c"])
    kinds = pa.array(["x", None, "y"]).dictionary_encode()
    nodes = write(tmp_path / "n.parquet", {"id": ids.dictionary_encode(), "y": kinds})
    edges = write(tmp_path / "e.parquet", {"s": pa.array(["a"]).dictionary_encode(), "t": ["b"]})
    bundle = run(tmp_path / "bundle", nodes, edges)
    assert bundle.ids.external([0, 1, 2]) == ["a", "b", "c"]
    assert pq.read_table(tmp_path / "bundle" / "labels.parquet")["label"].to_pylist() == [None, "x", "y"]
    assert bundle.manifest["labels"] == {"classes": 2, "labelled": 2}


@pytest.mark.parametrize(
    ("given_labels", "stored"), [(["3", "", "10"], [10, None, 3]), (["3", "", "b"], ["b", None, "3"])]
)
def test_csv_labels_are_integers_when_all_are(tmp_path: Path, given_labels: list[str], stored: list[Any]) -> None:
    nodes = write(tmp_path / "n.csv", {"id": [3, 2, 1], "label": given_labels})
    edges = write(tmp_path / "e.csv", {"source": [1], "target": [2]})
    run(tmp_path / "bundle", nodes, edges)
    assert pq.read_table(tmp_path / "bundle" / "labels.parquet")["label"].to_pylist() == stored


def test_too_many_labels_to_be_classes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("preprocessing.labels.MAX_LABELS", 2)
    edges = write(tmp_path / "e.csv", {"source": [1], "target": [2]})
    two = write(tmp_path / "two.csv", {"id": [1, 2, 3], "label": ["a", "b", "a"]})
    assert run(tmp_path / "bundle", two, edges).manifest["labels"] == {"classes": 2, "labelled": 3}
    three = write(tmp_path / "three.csv", {"id": [1, 2, 3], "label": ["a", "b", "c"]})
    with pytest.raises(InputError, match="more than 2 different labels") as raised:
        run(tmp_path / "other", three, edges)
    assert raised.value.where == f"{three}, column 'label'"


def test_features_with_one_value_are_told(tmp_path: Path) -> None:
    nodes = write(tmp_path / "n.csv", {"id": [1, 2], "age": [3, 3], "height": [1, 2], "weight": [0, 0]})
    recorder = Recorder("ingest")
    run(tmp_path / "bundle", nodes, write(tmp_path / "e.csv", {"source": [1], "target": [2]}), recorder)
    assert recorder.warnings == [("features_constant", "features with one value in all nodes: 'age', 'weight'")]


def test_same_request_is_answered_again_and_another_is_refused(tmp_path: Path) -> None:
    edges = write(tmp_path / "e.parquet", {"s": [1, 2], "t": [2, 3]})
    first = run(tmp_path / "bundle", edges=edges).manifest
    assert run(tmp_path / "bundle", edges=edges).manifest == first
    with pytest.raises(UsageError, match="other settings") as raised:
        run(tmp_path / "bundle", edges=edges, direction="directed")
    assert "delete" in raised.value.text()
    write(tmp_path / "e.parquet", {"s": [1, 2, 3], "t": [2, 3, 4]})
    with pytest.raises(UsageError, match="other inputs"):
        run(tmp_path / "bundle", edges=edges)
    assert read_manifest(tmp_path / "bundle", BUNDLE) == first
    (tmp_path / "mine").mkdir()
    with pytest.raises(UsageError, match="no artefact here"):
        run(tmp_path / "mine", edges=edges)


def interrupt(out: Path, edges: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ingest ended by a signal in the middle; its unfinished directory."""

    def interrupted(*_: object) -> None:
        raise Interrupted("interrupted by SIGTERM")

    with monkeypatch.context() as patch:
        patch.setattr(ingest_module, "write_features", interrupted)
        with pytest.raises(Interrupted):
            run(out, edges=edges)
    assert not out.exists()
    return out.parent / f".{out.name}.partial"


def test_interrupted_ingest_is_done_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edges = write(tmp_path / "e.parquet", {"s": [1, 2], "t": [2, 3]})
    whole = run(tmp_path / "whole", edges=edges)
    partial = interrupt(tmp_path / "bundle", edges, monkeypatch)
    assert (partial / "ids.npy").exists()
    assert run(tmp_path / "bundle", edges=edges).content_hash == whole.content_hash
    assert not partial.exists()


def test_changed_inputs_discard_what_an_interrupted_ingest_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edges = write(tmp_path / "e.parquet", {"s": [1, 2], "t": [2, 3]})
    partial = interrupt(tmp_path / "bundle", edges, monkeypatch)
    (partial / "of the old input").touch()
    os.utime(edges, ns=(1, 1))
    assert "of the old input" not in run(tmp_path / "bundle", edges=edges).manifest["files"]


@pytest.mark.parametrize("stem", ["good", "bad"])
def test_stage_process_ends_with_its_exit_code(tmp_path: Path, stem: str) -> None:
    edges = write(tmp_path / "e.csv", {"source": [1, 2], "target": [2, 3 if stem == "good" else 9]})
    nodes = write(tmp_path / "n.csv", {"id": [1, 2, 3]})
    spec = tmp_path / "spec.json"
    source = {"kind": "tables", "edges": edges, "nodes": nodes}
    spec.write_text(json.dumps({"out": str(tmp_path / "out" / "bundle"), "settings": {"source": source}}))
    ended = subprocess.run(
        [sys.executable, "-m", "preprocessing", "ingest", str(spec)],
        env={**os.environ, "RGRL_EVENTS": str(tmp_path / "events")},
        capture_output=True,
        text=True,
        check=False,
    )
    last = json.loads((tmp_path / "events").read_text().splitlines()[-1])
    if stem == "good":
        assert (ended.returncode, last["event"]) == (0, "result")
        assert last["summary"]["counts"]["edges"] == 2
    else:
        assert (ended.returncode, last["event"]) == (3, "error")
        assert last["error"]["where"] == f"{edges}, line 3 (the header is line 1), column 'target'"
        assert ended.stderr == (
            f"{edges}, line 3 (the header is line 1), column 'target': the edge names an unknown node\n"
            f"  given: 9\n  expected: an id of {nodes}\n"
            "  remedy: add the node, drop the edge, or ingest without the node table\n"
        )
        assert [file.name for file in (tmp_path / "out").iterdir()] == []


def test_settings_that_need_a_node_table_are_refused_without_one(tmp_path: Path) -> None:
    edges = write(tmp_path / "e.csv", {"source": [1], "target": [2]})
    with pytest.raises(ValueError, match="`label` names a column of the node table"):
        run(tmp_path / "bundle", edges=edges, label="y")
    with pytest.raises(ValueError, match="label cannot be a feature"):
        run(tmp_path / "bundle", edges, edges, label="y", features=["y"])


def test_an_edge_file_without_a_header_is_noticed(tmp_path: Path) -> None:
    edges = write(tmp_path / "e.csv", {"7": [1, 2], "8": [2, 3]})
    with pytest.raises(InputError, match="looks like data"):
        run(tmp_path / "bundle", edges=edges)
    assert run(tmp_path / "bundle", edges=edges, source="7", target="8").num_nodes == 3


def test_sparse_layout_has_ascending_columns_and_no_zeros(tmp_path: Path) -> None:
    words = [[5, 1, 5], [], [0], [9, 2]]
    nodes = write(tmp_path / "n.parquet", {"id": [4, 3, 2, 1], "words": words, "flag": [True, False, True, False]})
    edges = write(tmp_path / "e.parquet", {"s": [1], "t": [2]})
    bundle = run(tmp_path / "bundle", nodes, edges)
    features = bundle.features
    assert isinstance(features, SparseFeatures)
    assert features.indptr.tolist() == [0, 2, 4, 4, 7]
    assert features.indices.tolist() == [2, 9, 0, 10, 1, 5, 10]
    assert features.values.tolist() == [1.0] * 7
    assert bundle.manifest["features"] == {
        "layout": "sparse",
        "columns": 11,
        "dtype": "float32",
        "density": 7 / 44,
        "names": {"words": [0, 10], "flag": [10, 11]},
    }


def test_a_column_taken_by_its_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("citing,cited\n1,2\n")
    bundle = run(tmp_path / "bundle", edges=str(tmp_path / "e.csv"))
    told = [warning["message"] for warning in bundle.manifest["warnings"] if warning["code"] == "column_guessed"]
    assert [message.split("; ")[1] for message in told] == [
        "'citing' is taken as the source, by its place",
        "'cited' is taken as the target, by its place",
    ]
