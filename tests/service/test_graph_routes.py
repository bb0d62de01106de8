"""Registering graphs, and the walls around their paths."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient
from service_harness import add_graph, running_app, settings_in, submit, tiny_bundle, wait_end

from service.settings import ServiceSettings

ROWS = {"neighbors": [[1], [1]], "scores": [[1.0], [1.0]], "count": [1, 1], "exact": [True, True]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graphs")


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    with running_app(settings_in(folder)) as client:
        yield client


def test_a_source_is_registered_with_real_paths(client: TestClient, folder: Path) -> None:
    data = folder / "data"
    (data / "edges.csv").touch()
    (data / "here").symlink_to(data)
    edges = "here/../data/here/edges.csv"
    answer = client.post(
        "/v1/graphs",
        json={
            "name": "mine",
            "source": {"kind": "tables", "edges": edges},
            "direction": "reverse",
        },
    )
    assert answer.status_code == 201
    graph = answer.json()
    assert answer.headers["location"] == f"/v1/graphs/{graph['id']}"
    assert graph["source"]["edges"] == str(data / "edges.csv")
    assert (graph["name"], graph["state"], graph["direction"]) == ("mine", "registered", "reverse")
    assert graph["counts"] is None
    assert graph["bundle"] == str(folder / "home" / "graphs" / graph["id"] / "bundle")
    assert client.get(f"/v1/graphs/{graph['id']}").json() == graph


def test_a_bundle_is_ready_at_once(client: TestClient, folder: Path) -> None:
    path = tiny_bundle(folder / "data" / "bundle")
    graph = client.post("/v1/graphs", json={"bundle": str(path)}).json()
    assert (graph["state"], graph["direction"], graph["counts"]["nodes"]) == ("ready", "directed", 4)
    assert (graph["source"], graph["features"]["layout"], graph["labels"]) == (None, "none", None)


@pytest.mark.parametrize(
    "kind", ["absolute", "dots", "link", "folder link", "link inside", "link deep inside", "link to itself"]
)
def test_paths_outside_the_roots_are_refused(client: TestClient, folder: Path, kind: str) -> None:
    data, outside = folder / "data" / kind, folder / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "edges.csv").touch()
    data.mkdir()
    match kind:
        case "absolute":
            path = str(outside / "edges.csv")
        case "dots":
            path = f"{kind}/../../outside/edges.csv"
        case "link":
            (data / "link.csv").symlink_to(outside / "edges.csv")
            path = str(data / "link.csv")
        case "folder link":
            (data / "there").symlink_to(outside)
            path = f"{kind}/there/edges.csv"
        case "link deep inside":
            (data / "a" / "b").mkdir(parents=True)
            (data / "a" / "b" / "part-0.csv").symlink_to(outside / "edges.csv")
            path = kind
        case "link to itself":
            (data / "part-0.csv").symlink_to(data / "part-0.csv")
            path = kind
        case _:
            (data / "part-0.csv").symlink_to(outside / "edges.csv")
            path = kind
    before = client.get("/v1/graphs").json()
    answer = client.post("/v1/graphs", json={"source": {"kind": "tables", "edges": path}})
    assert answer.status_code == 403
    assert answer.json()["code"] == "forbidden"
    assert answer.json()["errors"][0]["pointer"] == "/source/edges"
    assert "outside/" not in answer.text
    answer = client.post("/v1/graphs", json={"source": {"kind": "tables", "relations": {"likes": path}}})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (403, "/source/relations/likes")
    assert client.get("/v1/graphs").json() == before


@pytest.mark.parametrize(
    ("uri", "status"),
    [
        ("s3://graphs/public/edges.parquet?region=eu-north-1", 201),
        ("s3://graphs/public?region=eu-north-1", 201),
        ("s3://graphs/public/../private/edges.parquet?region=eu-north-1", 403),
        ("s3://graphs/public/%2e%2e/private/edges.parquet?region=eu-north-1", 403),
        ("s3://graphs/public-too/edges.parquet?region=eu-north-1", 403),
        ("s3://graphs/private/edges.parquet?region=eu-north-1", 403),
        ("s3://other/public/edges.parquet?region=eu-north-1", 403),
        ("gs://graphs/public/edges.parquet?region=eu-north-1", 403),
        ("s3://graphs/public/edges.parquet", 403),
        ("s3://graphs/public/edges.parquet?region=eu-north-1&endpoint_override=10.0.0.1", 403),
        ("s3://graphs/public/edges.parquet?region=eu-north-1#x", 403),
        ("s3://[graphs/public/edges.parquet", 422),
        ("s3://key:secret@graphs/public/edges.parquet?region=eu-north-1", 422),
        ("file:///etc/passwd", 403),
        ("file://{data}/e.csv", 201),
        ("file://{data}/%2e%2e/e.csv", 403),
    ],
)
def test_uris_are_those_the_server_was_told(tmp_path: Path, uri: str, status: int) -> None:
    settings = settings_in(tmp_path, data_uris="s3://graphs/public?region=eu-north-1 gs://else")
    (tmp_path / "data" / "e.csv").touch()
    named = uri.format(data=tmp_path / "data")
    with running_app(settings) as client:
        answer = client.post("/v1/graphs", json={"source": {"kind": "tables", "edges": named}})
        assert answer.status_code == status, answer.text
        if status == 201:
            local = str(tmp_path / "data" / "e.csv")
            assert answer.json()["source"]["edges"] == (local if uri.startswith("file") else uri)


def test_a_uri_setting_is_one_of_a_place() -> None:
    for uri in ("/data", "file:///data", "s3:///x"):
        with pytest.raises(ValueError, match="is no URI such as"):
            ServiceSettings(data_uris=[uri])


def test_what_is_outside_looks_the_same_whether_it_exists_or_not(client: TestClient, folder: Path) -> None:
    (folder / "secret.npz").touch()
    answers = [
        client.post("/v1/graphs", json={"source": {"kind": "npz", "path": f"../{name}"}}).json()
        for name in ("secret.npz", "nothing.npz")
    ]
    for answer in answers:
        answer.pop("request_id")
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"bundle": "b", "source": {"kind": "npz", "path": "x"}}, ""),
        ({"bundle": "b", "direction": "directed"}, ""),
        ({"source": {"kind": "zip", "path": "x"}}, "/source"),
        ({"source": {"kind": "npz"}}, "/source/path"),
        ({"source": {"kind": "npz", "path": 3}}, "/source/path"),
        ({"source": {"kind": "npz", "path": "x"}, "colour": "red"}, "/colour"),
        ({"source": {"kind": "npz", "path": "absent.npz"}}, "/source/path"),
        ({"source": {"kind": "npz", "path": "nul\0.npz"}}, ""),
        ({"source": {"kind": "npz", "path": "x" * 5000}}, "/source/path"),
        ({"bundle": "empty"}, "/bundle"),
        ({"name": "", "bundle": "b"}, "/name"),
    ],
)
def test_bad_requests_name_the_field(client: TestClient, folder: Path, body: dict[str, object], pointer: str) -> None:
    (folder / "data" / "empty").mkdir(exist_ok=True)
    answer = client.post("/v1/graphs", json=body)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_without_data_roots_nothing_can_be_named(tmp_path: Path) -> None:
    with running_app(settings_in(tmp_path, data_roots=[])) as client:
        answer = client.post("/v1/graphs", json={"source": {"kind": "npz", "path": "/etc/passwd"}})
        assert answer.status_code == 403
        assert "RGRL_DATA_ROOTS" in answer.text


def test_graphs_of_a_name_are_those_alone(client: TestClient, folder: Path) -> None:
    path = str(tiny_bundle(folder / "data" / "named"))
    first, _, last = (
        client.post("/v1/graphs", json={"bundle": path, "name": name}).json()["id"] for name in ("twin", "Twin", "twin")
    )
    page = client.get("/v1/graphs?name=twin&limit=1").json()
    assert [graph["id"] for graph in page["items"]] == [last]
    page = client.get("/v1/graphs", params={"name": "twin", "cursor": page["next_cursor"]}).json()
    assert [graph["id"] for graph in page["items"]] == [first]
    assert client.get("/v1/graphs?name=twi").json()["items"] == []
    assert client.get("/v1/graphs?name=").status_code == 422


def test_pages_hold_every_graph_once_while_more_arrive(client: TestClient, folder: Path) -> None:
    before = [add_graph(client, folder, f"g{i}") for i in range(5)]
    seen, cursor = [], None
    while True:
        params = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = client.get("/v1/graphs", params=params).json()
        seen += [graph["id"] for graph in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        add_graph(client, folder, "late")
    assert seen[: len(before)] == before[::-1]
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("cursor", ["@", "é", "A", "////"])
def test_a_cursor_that_is_none(client: TestClient, cursor: str) -> None:
    answer = client.get("/v1/graphs", params={"cursor": cursor})
    assert answer.status_code in {200, 422}
    if answer.status_code == 422:
        assert answer.json()["errors"][0]["pointer"] == "query/cursor"


def test_a_node_seen_from_the_bundle(client: TestClient, folder: Path) -> None:
    graph = client.post("/v1/graphs", json={"bundle": str(tiny_bundle(folder / "data" / "b1"))}).json()["id"]
    assert client.get(f"/v1/graphs/{graph}/nodes/20").json() == {
        "id": "20",
        "degree": 2,
        "neighbors": {"total": 1, "sample": ["10"]},
        "ppr": {"entries": [{"id": "20", "score": 0.75}, {"id": "30", "score": 0.25}], "exact": False},
        "ppr_missing": None,
    }
    third = client.get(f"/v1/graphs/{graph}/nodes/30").json()
    assert third["neighbors"] == {"total": 2, "sample": ["10", "20"]}
    assert third["ppr"]["entries"] == [{"id": "30", "score": 0.75}, {"id": "10", "score": 0.25}]
    alone = client.get(f"/v1/graphs/{graph}/nodes/40").json()
    assert (alone["degree"], alone["neighbors"], len(alone["ppr"]["entries"])) == (0, {"total": 0, "sample": []}, 1)
    assert client.get(f"/v1/graphs/{graph}/nodes/11").status_code == 404
    assert client.get(f"/v1/graphs/{graph}/nodes/x").status_code == 404
    assert client.get("/v1/graphs/none/nodes/20").status_code == 404


def test_nodes_with_string_ids_and_before_preprocessing(client: TestClient, folder: Path) -> None:
    path = tiny_bundle(folder / "data" / "b2", ids=["b", "a/1", "c", "d"], top_k=None)
    graph = client.post("/v1/graphs", json={"bundle": str(path)}).json()["id"]
    assert client.get(f"/v1/graphs/{graph}/nodes/b").json()["neighbors"] == {"total": 1, "sample": ["a/1"]}
    before = client.get(f"/v1/graphs/{graph}/nodes/b").json()
    assert (before["ppr"], before["ppr_missing"]) == (None, "the graph has no PPR rows: preprocess it")
    assert client.get(f"/v1/graphs/{graph}/nodes/a%2F1").json()["id"] == "a/1"


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("manifest.json", b"{"),
        ("manifest.json", None),
        ("part-00001.parquet", b"PAR1"),
        ("part-00001.parquet", None),
        ("part-00001.parquet", pa.table({"count": [1, 1]})),
        ("part-00001.parquet", pa.table(ROWS | {"neighbors": [[9], [9]]})),
        ("part-00001.parquet", pa.table(ROWS | {"neighbors": [None, None]})),
    ],
)
def test_a_node_whose_ppr_rows_are_damaged_says_so_and_is_told_without(
    client: TestClient, folder: Path, tmp_path: Path, file: str, content: bytes | pa.Table | None
) -> None:
    damaged = tiny_bundle(folder / "data" / tmp_path.name)
    graph = client.post("/v1/graphs", json={"bundle": str(damaged)}).json()["id"]
    if isinstance(content, pa.Table):
        pq.write_table(content, damaged / "ppr" / file)
    elif content is None:
        (damaged / "ppr" / file).unlink()
    else:
        (damaged / "ppr" / file).write_bytes(content)
    answer = client.get(f"/v1/graphs/{graph}/nodes/30")
    assert answer.status_code == 200
    found = answer.json()
    assert (found["degree"], found["neighbors"]["total"], found["ppr"]) == (2, 2, None)
    assert found["ppr_missing"].startswith("the graph's PPR rows cannot be read (")
    assert found["ppr_missing"].endswith("): preprocess it again")
    assert str(folder) not in answer.text


def test_a_graph_not_ingested_has_no_nodes(client: TestClient, folder: Path) -> None:
    answer = client.get(f"/v1/graphs/{add_graph(client, folder)}/nodes/1")
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


def test_delete_takes_what_the_server_made_and_nothing_else(client: TestClient, folder: Path) -> None:
    given = tiny_bundle(folder / "data" / "b3")
    graph = client.post("/v1/graphs", json={"bundle": str(given)}).json()["id"]
    assert client.delete(f"/v1/graphs/{graph}").status_code == 204
    assert (given / "manifest.json").exists()
    assert client.get(f"/v1/graphs/{graph}").status_code == 404
    assert client.delete(f"/v1/graphs/{graph}").status_code == 404

    made = add_graph(client, folder)
    wait_end(client, submit(client, made, ("ingest", {"make": "bundle"})))
    folder = folder / "home" / "graphs" / made
    assert (folder / "bundle" / "manifest.json").exists()
    assert client.delete(f"/v1/graphs/{made}").status_code == 204
    assert not folder.exists()


def test_delete_waits_for_jobs_and_embeddings(client: TestClient, folder: Path) -> None:
    graph = add_graph(client, folder)
    gate = folder / "gate"
    job = submit(client, graph, ("train", {"make": "embeddings", "gate": str(gate)}))
    answer = client.delete(f"/v1/graphs/{graph}")
    assert answer.status_code == 409
    assert job in answer.json()["detail"]
    gate.touch()
    embedding = wait_end(client, job)["embedding"]
    answer = client.delete(f"/v1/graphs/{graph}")
    assert answer.status_code == 409
    assert embedding in answer.json()["detail"]
    client.app.state.store.delete_embedding(embedding)
    assert not (folder / "home" / "embeddings" / embedding).exists()
    assert client.delete(f"/v1/graphs/{graph}").status_code == 204
