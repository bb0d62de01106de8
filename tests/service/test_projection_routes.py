"""The map of an embedding set over HTTP and through the client, against the arrays and tables it was made from."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from embedding_fixtures import add_set, settings, write_set
from fastapi.testclient import TestClient
from projection_cases import attributed, clusters

from preprocessing.stage import Emitter
from service.api.app import create_app
from service.client import Client
from service.client.models import Projection
from service.search.index_settings import IndexSettings, ProjectionSettings
from service.search.indexing import build_index

ARROW = "application/vnd.apache.arrow.stream"
NODES, POINTS = 60, 50
ROUTE = "/v1/embeddings/{}/projection"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("maps")


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    (folder / "data").mkdir()
    app = create_app(settings(folder / "home", data_roots=[folder / "data"]))
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def index(path: Path, **projection: Any) -> dict[str, Any]:
    chosen = IndexSettings(kind="exact", projection=ProjectionSettings(**projection))
    return build_index(path, chosen, Emitter("index"))


@pytest.fixture(scope="module")
def path(folder: Path) -> Path:
    made, _ = attributed(folder / "data", NODES)
    index(made, method="pca", points=POINTS)
    return made


@pytest.fixture(scope="module")
def registered(client: TestClient, path: Path) -> dict[str, Any]:
    graph = client.post("/v1/graphs", json={"bundle": "bundle"}).json()["id"]
    answer = client.post("/v1/embeddings", json={"path": "set", "graph": graph})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def columns(path: Path) -> dict[str, list[Any]]:
    """What the answer has to hold, from the node table."""
    import pyarrow.parquet as pq

    rows = np.load(path / "projection" / "rows.npy")
    table = pq.read_table(path.parent / "nodes.parquet").take(rows)
    points = np.load(path / "projection" / "points.npy")
    degrees = np.full(NODES, 2)
    degrees[[0, 10]] = 3
    held = {name: table[name].to_pylist() for name in ("label", "city", "age", "height", "member")}
    return held | {
        "id": [str(node) for node in table["id"].to_pylist()],
        "x": points[:, 0].tolist(),
        "y": points[:, 1].tolist(),
        "degree": degrees[rows].tolist(),
    }


def test_every_point_with_its_id_label_and_degree(client: TestClient, path: Path, registered: dict[str, Any]) -> None:
    assert registered["index"]["projection"]["counts"] == {"nodes": NODES, "points": POINTS}
    expected = columns(path)
    assert client.put("/v1/aliases/map", json={"embedding": registered["id"]}).status_code == 200
    for ref in (registered["id"], "map"):
        answer = client.get(ROUTE.format(ref)).json()
        assert (answer["embedding"], answer["method"], answer["nodes"]) == (registered["id"], "pca", NODES)
        assert (answer["color"], answer["graph_missing"]) == (None, None)
        for name in ("id", "label", "degree"):
            assert answer[name] == expected[name]
        assert np.allclose([answer["x"], answer["y"]], [expected["x"], expected["y"]], rtol=1e-6)


@pytest.mark.parametrize(
    ("key", "kind"), [("city", "string"), ("age", "integer"), ("height", "number"), ("member", "boolean")]
)
def test_an_attribute_of_any_type_colours_it(
    client: TestClient, path: Path, registered: dict[str, Any], key: str, kind: str
) -> None:
    expected, url = columns(path), ROUTE.format(registered["id"])
    answer = client.get(url, params={"color": key}).json()
    assert answer["color"] == {"key": key, "type": kind, "values": expected[key]}
    arrow = client.get(url, params={"color": key}, headers={"Accept": ARROW})
    assert arrow.headers["content-type"] == ARROW
    table = pa.ipc.open_stream(arrow.content).read_all()
    assert table.schema.metadata == {
        b"embedding": registered["id"].encode(),
        b"method": b"pca",
        b"nodes": str(NODES).encode(),
        b"color": key.encode(),
        b"color_type": kind.encode(),
    }
    assert table.column_names == ["id", "x", "y", "label", "degree", "color"]
    renamed = {**{name: expected[name] for name in table.column_names[:-1]}, "color": expected[key]}
    assert table.to_pydict() == renamed


def by_our_client(client: TestClient, ref: str, color: str | None) -> Projection:
    def request(_method: str, path: str, params: dict[str, Any], headers: dict[str, str]) -> Any:
        return client.get(path, params={name: value for name, value in params.items() if value}, headers=headers)

    with Client("http://testserver") as ours:
        ours._transport.request = request  # type: ignore[assignment,method-assign]
        return ours.projection(ref, color)


def test_the_client_gives_a_table(client: TestClient, path: Path, registered: dict[str, Any]) -> None:
    found = by_our_client(client, registered["id"], "city")
    assert (found.embedding, found.method, found.nodes) == (registered["id"], "pca", NODES)
    assert found.to_arrow()["color"].to_pylist() == columns(path)["city"]
    assert len(found.to_pandas()) == POINTS


@pytest.mark.parametrize("color", ["none", "label", "x"])
def test_a_colour_that_is_no_attribute_is_told_those_there_are(
    client: TestClient, registered: dict[str, Any], color: str
) -> None:
    answer = client.get(ROUTE.format(registered["id"]), params={"color": color})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "color"
    assert "city" in answer.text
    assert client.get(ROUTE.format(registered["id"]), headers={"Accept": "image/png"}).status_code == 406


def test_a_set_without_a_map_says_how_to_get_one_and_a_new_one_is_seen_at_once(
    client: TestClient, folder: Path
) -> None:
    path = write_set(folder / "home" / "embeddings" / "bare", clusters(20))
    identity = add_set(client.app.state.store, path, folder / "gone")  # type: ignore[attr-defined]
    url = ROUTE.format(identity)
    for _ in range(2):
        refused = client.get(url)
        assert refused.status_code == 409
        assert "rgrl index" in refused.json()["remedy"]
        index(path, method="none")
    index(path)
    answer = client.get(url).json()
    # Its graph is gone: what only the graph knows is not told.
    assert (len(answer["id"]), answer["label"], answer["degree"]) == (20, None, None)
    assert answer["graph_missing"] == "there is no artefact here"
    assert client.get(url, params={"color": "city"}).status_code == 409
    index(path, points=7)
    assert len(client.get(url).json()["id"]) == 7
    np.save(path / "projection" / "rows.npy", np.arange(20, 27))
    assert client.get(url).status_code == 409
    (path / "projection" / "points.npy").write_bytes(b"")
    assert client.get(url).status_code == 409


@pytest.mark.parametrize("content", [None, b"PAR1", b""])
def test_a_map_whose_labels_are_damaged_says_why_it_has_no_colours(
    client: TestClient, folder: Path, content: bytes | None
) -> None:
    made, bundle = attributed(folder / "data" / f"labels {content!r}", 40)
    index(made)
    identity = add_set(client.app.state.store, made, bundle)  # type: ignore[attr-defined]
    assert client.get(ROUTE.format(identity)).json()["graph_missing"] is None
    labels = bundle / "labels.parquet"
    labels.unlink()
    if content is not None:
        labels.write_bytes(content)
    answer = client.get(ROUTE.format(identity)).json()
    assert (len(answer["x"]), answer["label"], answer["degree"]) == (40, None, None)
    assert answer["graph_missing"] == "labels.parquet is missing or its content changed"
    found = by_our_client(client, identity, None)
    assert (found.graph_missing, found.table.column_names) == (answer["graph_missing"], ["id", "x", "y"])


def test_a_map_of_other_vectors_is_neither_served_nor_registered(client: TestClient, folder: Path) -> None:
    one, bundle = attributed(folder / "data" / "one", 40)
    other = write_set(folder / "data" / "one" / "other", clusters(40, dim=5), content="x")
    index(one)
    index(other)
    shutil.rmtree(one / "projection")
    shutil.copytree(other / "projection", one / "projection")
    identity = add_set(client.app.state.store, one, bundle)  # type: ignore[attr-defined]
    assert "other vectors" in client.get(ROUTE.format(identity)).json()["detail"]
    graph = client.post("/v1/graphs", json={"bundle": str(bundle)}).json()["id"]
    refused = client.post("/v1/embeddings", json={"path": str(one), "graph": graph})
    assert (refused.status_code, "projection" in refused.json()["detail"]) == (422, True)
