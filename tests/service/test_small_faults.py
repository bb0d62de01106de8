"""Small things that newcomers have met: what is silent, misspelt, or left behind."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from service_harness import Server, running_app, settings_in
from service_world import World, world

from preprocessing import artifact
from preprocessing.errors import InputError
from preprocessing.input_files import InputFile
from preprocessing.tables import open_table
from service.api.accept import ARROW_STREAM
from service.cli.graph_tables import ingest
from service.cli.options import connect
from service.jobs.feasibility import check_columns
from service.jobs.graph_size import missing_column

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "tables"
    folder.mkdir(parents=True)
    pq.write_table(
        pa.table({"id": [1, 2, 3], "x": [0.1, 0.2, 0.3], "class": ["a", "b", "a"]}), folder / "nodes.parquet"
    )
    pq.write_table(pa.table({"source": [1, 2], "target": [2, 3], "w": [1.0, 2.0]}), folder / "edges.parquet")
    return folder


def refusals(folder: Path, source: dict[str, object]) -> Iterator[dict[str, str]]:
    """What registering such tables is answered, and every job on them, where they could not be read before."""
    with running_app(settings_in(folder)) as client:
        answers = [(client.post("/v1/graphs", json={"source": source}), "/source")]
        tables = {path: path.read_bytes() for path in (folder / "data" / "tables").iterdir()}
        for path in tables:
            path.write_bytes(b"")
        graph = client.post("/v1/graphs", json={"source": source}).json()["id"]
        for path, content in tables.items():
            path.write_bytes(content)
        for dry_run in ("true", "false"):
            for kind in ("pipeline", "ingest"):
                submit = client.post(f"/v1/jobs?dry_run={dry_run}", json={"kind": kind, "graph": graph})
                answers.append((submit, "/graph"))
    for answer, pointer in answers:
        assert (answer.status_code, answer.json()["code"]) == (422, "input_invalid"), answer.text
        assert answer.json()["errors"][0]["pointer"] == pointer
        yield answer.json()


@pytest.mark.parametrize(
    ("option", "column", "told"),
    [
        ("label", "klass", "class, id, x"),
        ("features", ["x", "y"], "id, class, x"),
        ("node_id", "key", "id, class, x"),
        ("source", "from", "source, target, w"),
        ("weight", "weight", "source, target, w"),
    ],
)
def test_a_column_that_there_is_not_is_told_before_a_job_is_queued(
    tmp_path: Path, tables: Path, option: str, column: object, told: str
) -> None:
    source = {"kind": "tables", "edges": "tables/edges.parquet", "nodes": "tables/nodes.parquet", option: column}
    for answer in refusals(tmp_path, source):
        assert f"source.{option}" in answer["detail"]
        assert f"one of: {told}" in answer["detail"]
        assert f"no column {column[-1] if isinstance(column, list) else column}," in answer["detail"]


@pytest.mark.parametrize("edges", [{"edges": "tables/nodes.parquet"}, {"relations": {"a": "tables/nodes.parquet"}}])
def test_a_node_table_given_as_the_edges_is_told_in_the_words_of_ingest(
    tmp_path: Path, tables: Path, edges: dict[str, object]
) -> None:
    for answer in refusals(tmp_path, {"kind": "tables", **edges}):
        assert "this looks like a node table, not like an edge table: it has a column 'id'" in answer["detail"]
    # Whoever names the ends is believed.
    check_columns({"kind": "tables", "edges": str(tables / "nodes.parquet"), "source": "id", "target": "x"}, "/source")


def test_columns_that_there_are_or_that_nobody_can_look_at_are_no_fault(tables: Path) -> None:
    whole = {"kind": "tables", "edges": str(tables / "edges.parquet"), "nodes": str(tables / "nodes.parquet")}
    named = {
        "label": "class",
        "features": ["x"],
        "node_id": "id",
        "source": "source",
        "target": "target",
        "weight": "w",
    }
    assert missing_column(whole) is None
    assert missing_column(whole | named) is None
    assert missing_column({"kind": "tables", "edges": "s3://bucket/edges", "source": "from"}) is None
    assert missing_column({"kind": "npz", "path": "g.npz"}) is None
    (tables / "nodes.csv").write_text("id,x,class\n1,0.5,a\n")
    assert missing_column(whole | {"nodes": str(tables / "nodes.csv"), "label": "klass"}) == (
        "label",
        "klass",
        ["class", "id", "x"],
    )


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_the_columns_that_can_be_meant_come_before_the_features(tmp_path: Path, suffix: str) -> None:
    """Of a wide table no more than twenty are told; ingest tells the same."""
    features = {f"f{number}": [0.5, 1.0] for number in range(30)}
    columns = {"f": [[1.0], [2.0]]} if suffix == "parquet" else {}
    table = pa.table({**columns, **features, "nodeid": [1, 2], "topic": ["a", "b"]})
    path, edges = tmp_path / f"nodes.{suffix}", tmp_path / "edges.parquet"
    pq.write_table(pa.table({"source": [1], "target": [2]}), edges)
    pq.write_table(table, path) if suffix == "parquet" else pa_csv.write_csv(table, path)
    source = {"kind": "tables", "edges": str(edges), "nodes": str(path), "node_id": "key", "label": "klass"}
    told, more = ["nodeid", "topic", *columns, *features][:20], f", … and {len(columns) + 12} more"
    with pytest.raises(InputError) as refused:
        check_columns(source, "/source")
    assert refused.value.expected == f"one of: {', '.join(told)}{more}"
    with pytest.raises(InputError) as refused:
        open_table(InputFile.at(path)).require("key", "node id")
    assert refused.value.given == f"columns {', '.join(map(repr, told))}{more}"


def test_columns_have_one_name_in_every_command() -> None:
    """What `graphs register` and `jobs submit` call a column, `ingest` understands."""
    import typer

    app = typer.Typer()
    app.command()(ingest)
    known = {name for parameter in typer.main.get_command(app).params for name in parameter.opts}
    from service.cli import graph_sources

    assert {f"--{word}-column" for word in graph_sources._SPOKEN.values()} <= known


ACCEPT = [("text/csv", 406), ("image/*;q=0.5", 406), ("application/json;q=0", 406), ("application/json", 200)]


@pytest.mark.parametrize(
    ("accept", "status"), [*ACCEPT, (ARROW_STREAM, 200), ("*/*", 200), ("text/csv, */*;q=0.1", 200)]
)
@pytest.mark.parametrize("verb", ["lookup", "neighbors"])
def test_an_answer_comes_as_what_was_asked_for_or_not_at_all(made: World, verb: str, accept: str, status: int) -> None:
    body = {"ids": [1]} if verb == "lookup" else {"queries": [{"id": 1}]}
    for _ in range(2):  # the second may be answered where it arrives
        answer = made.client.post(f"/v1/embeddings/now/{verb}", json=body, headers={"Accept": accept})
        assert answer.status_code == status, answer.text
        if status == 200:
            wanted = ARROW_STREAM if accept == ARROW_STREAM else "application/json"
            assert answer.headers["content-type"] == wanted


def test_new_nodes_are_embedded_as_what_was_asked_for_or_not_at_all(made: World) -> None:
    body = {"nodes": [{"id": "new"}]}
    answer = made.client.post("/v1/embeddings/now/embed", json=body, headers={"Accept": "text/csv"})
    assert answer.status_code == 406


def test_a_refused_start_leaves_no_home(tmp_path: Path, rgrl: Run) -> None:
    home = tmp_path / "new-home"
    code, _, err = rgrl("serve", "--home", home, "--host", "0.0.0.0", "--port", "18999")
    assert (code, "without an API key" in err, home.exists()) == (2, True, False)
    with Server(settings_in(tmp_path)) as server:
        code, _, err = rgrl("serve", "--home", home, "--port", server.settings.port)
        assert (code, "cannot listen" in err, home.exists()) == (2, True, False)


def test_articles() -> None:
    assert {artifact._a(kind) for kind in ("embedding_set", "graph_bundle", "knn_index")} == {
        "an embedding set",
        "a graph bundle",
        "a knn index",
    }
    for kind in artifact._MADE_BY:
        assert re.search(r"makes an? \w+", artifact._how_made(Path("x"), kind))


def test_what_is_deleted_is_told_and_an_edit_of_nothing_is_refused(tmp_path: Path, rgrl: Run) -> None:
    with Server(settings_in(tmp_path)) as server:
        url = str(server.client.base_url)
        (tmp_path / "data" / "g.npz").touch()
        with connect(url, None) as client:
            graph = client.register_graph({"kind": "npz", "path": "g.npz"}).id
        assert rgrl("jobs", "edit", "job_x", "--server", url)[0] == 2
        assert rgrl("graphs", "delete", graph, "--server", url)[:2] == (0, f"deleted {graph}\n")


def test_the_last_key_is_not_revoked_in_silence(tmp_path: Path, rgrl: Run) -> None:
    home = tmp_path / "home"
    for name in ("one", "two"):
        rgrl("keys", "create", name, "--home", home)
    code, out, err = rgrl("keys", "revoke", "one", "--home", home)
    assert (code, out.startswith("revoked key_"), "no key is left" in err) == (0, True, False)
    code, out, err = rgrl("keys", "revoke", "two", "--home", home, "--json")
    assert (code, "revoked" in json.loads(out), "no key is left" in err) == (0, True, True)
