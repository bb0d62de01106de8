"""Vectors, neighbours, scores and aliases over HTTP, against the arrays they were written from."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest
from embedding_fixtures import QUICK_MAP, add_set, settings, write_bundle, write_set
from fastapi.testclient import TestClient

from preprocessing.stage import Emitter
from service.api.app import create_app
from service.search.index_settings import IndexSettings
from service.search.indexing import build_index

ARROW = "application/vnd.apache.arrow.stream"
NODES, DIM = 60, 6
NAMES = ["7", "a\nb/ c", "a/b", *(f"n{number:02}" for number in range(NODES - 4)), "ä"]
ZERO = "n00"
# A ring in which node 0 also knows every even node.
EDGES = [(node, (node + 1) % NODES) for node in range(NODES)] + [(0, node) for node in range(2, NODES - 1, 2)]


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return np.random.default_rng(5).standard_normal((NODES, DIM)).astype(np.float32)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def client(home: Path) -> Iterator[TestClient]:
    app = create_app(settings(home, max_k=50, max_queries=3, max_lookup_ids=4, max_lookup_ids_arrow=NODES))
    with TestClient(app) as client:
        yield client


@pytest.fixture(scope="module")
def numbered(client: TestClient, home: Path, vectors: np.ndarray) -> str:
    """A set of integer ids with its graph and an HNSW index."""
    content = write_bundle(home / "bundle", NODES, EDGES)
    path = write_set(home / "embeddings" / "numbered", vectors, content=content)
    build_index(path, IndexSettings(kind="hnsw", effort=200, projection=QUICK_MAP), Emitter("index"))
    return add_set(client.app.state.store, path, home / "bundle")


@pytest.fixture(scope="module")
def named(client: TestClient, home: Path, vectors: np.ndarray) -> str:
    """A set of string ids whose graph is gone, with a zero vector and no index."""
    changed = vectors.copy()
    changed[NAMES.index(ZERO)] = 0
    path = write_set(home / "embeddings" / "named", changed, NAMES)
    return add_set(client.app.state.store, path, home / "gone")


def cosines(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    wide, query = vectors.astype(np.float64), query.astype(np.float64)
    return wide @ query / np.linalg.norm(wide, axis=1) / np.linalg.norm(query)


def order(vectors: np.ndarray, query: np.ndarray, leave_out: set[int]) -> list[str]:
    ranked = np.argsort(-cosines(vectors, query), kind="stable").tolist()
    return [str(row) for row in ranked if row not in leave_out]


def neighbors(client: TestClient, ref: str, **body: Any) -> list[dict[str, Any]]:
    response = client.post(f"/v1/embeddings/{ref}/neighbors", json=body)
    assert response.status_code == 200, response.text
    assert response.json()["embedding"] == ref
    return response.json()["answers"]


def problem(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    return response.json()


def test_one_vector_by_either_kind_of_id(client: TestClient, numbered: str, named: str, vectors: np.ndarray) -> None:
    answer = client.get(f"/v1/embeddings/{numbered}/vectors/12").json()
    assert answer == {"id": "12", "vector": vectors[12].tolist(), "dim": DIM, "embedding": numbered}
    for row, path in ((0, "7"), (2, "a%2Fb"), (NODES - 1, "%C3%A4")):
        answer = client.get(f"/v1/embeddings/{named}/vectors/{path}").json()
        assert (answer["id"], answer["vector"]) == (NAMES[row], vectors[row].tolist())
    assert problem(client.get(f"/v1/embeddings/{numbered}/vectors/012"), 404)["code"] == "not_found"
    assert problem(client.get("/v1/embeddings/emb_none/vectors/1"), 404)["code"] == "not_found"


def test_lookup_keeps_the_order_of_the_request(client: TestClient, numbered: str, vectors: np.ndarray) -> None:
    answer = client.post(f"/v1/embeddings/{numbered}/lookup", json={"ids": [7, "3", "nobody", "7"]}).json()
    assert (answer["embedding"], answer["dim"]) == (numbered, DIM)
    assert [(item["id"], item["found"]) for item in answer["items"]] == [
        ("7", True),
        ("3", True),
        ("nobody", False),
        ("7", True),
    ]
    assert [item["vector"] for item in answer["items"]] == [
        vectors[7].tolist(),
        vectors[3].tolist(),
        None,
        vectors[7].tolist(),
    ]


def test_base64_is_little_endian_float32(client: TestClient, numbered: str, vectors: np.ndarray) -> None:
    body = {"ids": [5, -1], "encoding": "base64"}
    found, missing = client.post(f"/v1/embeddings/{numbered}/lookup", json=body).json()["items"]
    assert np.frombuffer(base64.b64decode(found["vector"]), "<f4").tolist() == vectors[5].tolist()
    assert missing == {"id": "-1", "found": False, "vector": None}


def test_arrow_holds_the_same_and_more_ids(
    client: TestClient, numbered: str, vectors: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.serving.ARROW_BATCH", 7)
    ids = [*range(20), "nobody", *range(20, 40)]
    response = client.post(f"/v1/embeddings/{numbered}/lookup", json={"ids": ids}, headers={"Accept": ARROW})
    assert response.headers["content-type"] == ARROW
    table = pa.ipc.open_stream(response.content).read_all()
    assert table.schema.metadata == {b"embedding": numbered.encode()}
    assert table["id"].to_pylist() == [str(node) for node in ids]
    assert table["found"].to_pylist() == [node != "nobody" for node in ids]
    expected = [None if node == "nobody" else vectors[node].tolist() for node in ids]
    assert table["vector"].to_pylist() == expected


def test_limits_are_named(client: TestClient, numbered: str) -> None:
    url = f"/v1/embeddings/{numbered}"
    cases = [
        ("lookup", {"ids": list(range(5))}, "/ids", "at most 4 ids a lookup"),
        ("neighbors", {"queries": [{"id": 1}], "k": 51}, "/k", "at most 50 neighbours a query"),
        ("neighbors", {"queries": [{"id": 1}] * 4}, "/queries", "at most 3 queries a call"),
        ("scores", {"pairs": [[1, 2]] * 5}, "/pairs", "at most 4 pairs a call"),
    ]
    for path, body, pointer, limit in cases:
        told = problem(client.post(f"{url}/{path}", json=body), 422)
        assert (told["code"], told["errors"][0]["pointer"]) == ("limit_exceeded", pointer)
        assert limit in told["detail"]
    many = {"ids": list(range(NODES + 1))}
    told = problem(client.post(f"{url}/lookup", json=many, headers={"Accept": ARROW}), 422)
    assert f"at most {NODES} ids" in told["detail"]


@pytest.mark.parametrize(
    ("query", "pointer", "word"),
    [
        ({"id": "nobody"}, "/queries/1/id", "no node"),
        ({"vector": [1.0] * (DIM - 1)}, "/queries/1/vector", "another length"),
        ({"vector": [0.0] * DIM}, "/queries/1/vector", "zero"),
        ({"vector": ["x"] * DIM}, "/queries/1/vector/0", "number"),
        ({"ids": [{"id": 1}, {"id": "nobody"}]}, "/queries/1/ids/1/id", "no node"),
        ({"ids": [{"id": 1, "weight": 0}]}, "/queries/1/ids", "zero"),
        ({"ids": []}, "/queries/1/ids", "at least 1"),
        ({"id": 1, "vector": [1.0] * DIM}, "/queries/1", "exactly one"),
        ({}, "/queries/1", "exactly one"),
        ({"id": True}, "/queries/1/id", "a text, or a whole number"),
        ({"id": 1, "unknown": 2}, "/queries/1/unknown", "no such field"),
    ],
)
def test_a_query_that_cannot_be_meant_is_pointed_at(
    client: TestClient, numbered: str, query: dict[str, Any], pointer: str, word: str
) -> None:
    body = {"queries": [{"id": 0}, query]}
    fault = problem(client.post(f"/v1/embeddings/{numbered}/neighbors", json=body), 422)["errors"][0]
    assert fault["pointer"] == pointer
    assert word in fault["detail"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused(client: TestClient, numbered: str, number: str) -> None:
    text = f'{{"queries": [{{"vector": [{number}{", 1" * (DIM - 1)}]}}]}}'
    response = client.post(
        f"/v1/embeddings/{numbered}/neighbors", content=text, headers={"Content-Type": "application/json"}
    )
    assert problem(response, 422)["errors"][0]["pointer"] == "/queries/0/vector/0"


def test_neighbours_by_id_vector_and_weights(client: TestClient, numbered: str, vectors: np.ndarray) -> None:
    by_id, by_vector, by_weights = neighbors(
        client,
        numbered,
        k=8,
        queries=[
            {"id": "4"},
            {"vector": (vectors[4] * 1e-3).tolist()},
            {"ids": [{"id": 4, "weight": 2.0}, {"id": 9, "weight": -0.5}]},
        ],
    )
    assert [found["id"] for found in by_id["results"]] == order(vectors, vectors[4], {4})[:8]
    assert [found["id"] for found in by_vector["results"]] == order(vectors, vectors[4], set())[:8]
    mixed = 2 * vectors[4] / np.linalg.norm(vectors[4]) - 0.5 * vectors[9] / np.linalg.norm(vectors[9])
    assert [found["id"] for found in by_weights["results"]] == order(vectors, mixed, {4, 9})[:8]
    expected = cosines(vectors, vectors[4])
    assert [found["score"] for found in by_id["results"]] == pytest.approx(
        [expected[int(found["id"])] for found in by_id["results"]], abs=1e-6
    )
    assert {name: by_id[name] for name in ("returned", "exact", "strategy", "complete")} == {
        "returned": 8,
        "exact": False,
        "strategy": "hnsw",
        "complete": True,
    }
    assert by_vector["results"][0]["connected"] is None


def test_exclusions(client: TestClient, numbered: str, vectors: np.ndarray) -> None:
    query = [{"id": 0}]
    hub = {1, NODES - 1, *range(2, NODES - 1, 2)}
    [with_self] = neighbors(client, numbered, queries=query, k=3, exclude={"self": False})
    assert with_self["results"][0] == {"id": "0", "score": 1.0, "connected": False}
    [plain] = neighbors(client, numbered, queries=query, k=20)
    assert [found["connected"] for found in plain["results"]] == [int(f["id"]) in hub for f in plain["results"]]
    [strangers] = neighbors(client, numbered, queries=query, k=20, exclude={"connected": True, "ids": ["3", 5, "no"]})
    assert [found["id"] for found in strangers["results"]] == order(vectors, vectors[0], {0, 3, 5} | hub)[:20]
    assert not any(found["connected"] for found in strangers["results"])
    [all_of_them] = neighbors(client, numbered, queries=query, k=50, exclude={"connected": True})
    assert all_of_them["returned"] == NODES - 1 - len(hub)
    assert (all_of_them["complete"], all_of_them["strategy"]) == (False, "exact_fallback")


def test_exact_search_and_effort_can_be_asked_for(client: TestClient, numbered: str, vectors: np.ndarray) -> None:
    [exact] = neighbors(client, numbered, queries=[{"id": 8}], k=5, search={"exact": True})
    assert (exact["strategy"], exact["exact"]) == ("exact", True)
    assert [found["id"] for found in exact["results"]] == order(vectors, vectors[8], {8})[:5]
    [quick] = neighbors(client, numbered, queries=[{"id": 8}], k=5, search={"effort": 1})
    assert (quick["returned"], quick["strategy"]) == (5, "hnsw")


def test_connected_needs_nodes_and_a_graph(client: TestClient, numbered: str, named: str) -> None:
    url = "/v1/embeddings/{}/neighbors"
    body = {"queries": [{"vector": [1.0] * DIM}], "exclude": {"connected": True}}
    assert problem(client.post(url.format(numbered), json=body), 422)["errors"][0]["pointer"] == "/queries/0/vector"
    body["queries"] = [{"id": "a/b"}]
    assert problem(client.post(url.format(named), json=body), 409)["code"] == "artifact_invalid"
    [answer] = neighbors(client, named, queries=[{"id": "a/b"}], k=2)
    assert answer["strategy"] == "exact_no_index"
    assert [found["connected"] for found in answer["results"]] == [None, None]


def test_a_node_without_direction_is_no_query_and_scores_nothing(client: TestClient, named: str) -> None:
    told = problem(client.post(f"/v1/embeddings/{named}/neighbors", json={"queries": [{"id": ZERO}]}), 422)
    assert told["errors"][0]["pointer"] == "/queries/0/id"
    items = client.post(f"/v1/embeddings/{named}/scores", json={"pairs": [[ZERO, "ä"]]}).json()["items"]
    assert items == [{"ids": [ZERO, "ä"], "score": 0.0, "connected": None}]


def test_scores_of_pairs(client: TestClient, numbered: str, vectors: np.ndarray) -> None:
    pairs = [[0, "2"], ["2", 0], [5, 5], [3, 9]]
    items = client.post(f"/v1/embeddings/{numbered}/scores", json={"pairs": pairs}).json()["items"]
    assert [item["ids"] for item in items] == [["0", "2"], ["2", "0"], ["5", "5"], ["3", "9"]]
    expected = [cosines(vectors, vectors[int(one)])[int(other)] for one, other in pairs]
    assert [item["score"] for item in items] == pytest.approx(expected, abs=1e-6)
    assert [item["connected"] for item in items] == [True, True, False, False]
    unknown = client.post(f"/v1/embeddings/{numbered}/scores", json={"pairs": [[0, 1], [1, "x"]]})
    assert problem(unknown, 422)["errors"][0]["pointer"] == "/pairs/1/1"


def test_a_graph_that_changed_since_is_not_trusted(client: TestClient, home: Path, vectors: np.ndarray) -> None:
    write_bundle(home / "other", NODES, EDGES[:-1], content="other")
    path = write_set(home / "embeddings" / "stale", vectors)
    stale = add_set(client.app.state.store, path, home / "other")
    body = {"queries": [{"id": 0}], "exclude": {"connected": True}}
    told = problem(client.post(f"/v1/embeddings/{stale}/neighbors", json=body), 409)
    assert "changed since" in told["detail"]
    assert neighbors(client, stale, queries=[{"id": 0}], k=1)[0]["results"][0]["connected"] is None


def test_a_new_index_is_served_without_a_restart(client: TestClient, home: Path, vectors: np.ndarray) -> None:
    path = write_set(home / "embeddings" / "fresh", vectors)
    fresh = add_set(client.app.state.store, path)
    strategies = []
    for kind in (None, "exact", "hnsw"):
        if kind is not None:
            build_index(path, IndexSettings(kind=kind, projection=QUICK_MAP), Emitter("index"))
        strategies.append(neighbors(client, fresh, queries=[{"id": 0}], k=3)[0]["strategy"])
    assert strategies == ["exact_no_index", "exact", "hnsw"]


def test_sets_are_listed_newest_first_and_deleted_with_their_files(
    client: TestClient, home: Path, vectors: np.ndarray
) -> None:
    ids = []
    for name in ("one", "two"):
        path = write_set(home / "embeddings" / name, vectors)
        ids.append(add_set(client.app.state.store, path))
    page = client.get("/v1/embeddings", params={"limit": 1}).json()
    assert [item["id"] for item in page["items"]] == [ids[1]]
    rest = client.get("/v1/embeddings", params={"cursor": page["next_cursor"]}).json()["items"]
    assert rest[0]["id"] == ids[0]
    assert rest[0]["counts"] == {"nodes": NODES, "dim": DIM}
    neighbors(client, ids[0], queries=[{"id": 0}])
    assert client.delete(f"/v1/embeddings/{ids[0]}").status_code == 204
    for response in (
        client.get(f"/v1/embeddings/{ids[0]}"),
        client.delete(f"/v1/embeddings/{ids[0]}"),
        client.post(f"/v1/embeddings/{ids[0]}/lookup", json={"ids": [1]}),
    ):
        assert problem(response, 404)["code"] == "not_found"


def test_aliases_switch_at_once_and_only_from_the_version_seen(client: TestClient, numbered: str, named: str) -> None:
    made = client.put("/v1/aliases/live", json={"embedding": numbered})
    assert (made.status_code, made.json()["version"], made.headers["ETag"]) == (200, 1, '"1"')
    assert client.get("/v1/embeddings/live").json()["id"] == numbered
    assert client.get("/v1/embeddings/live").json()["aliases"] == ["live"]
    switched = client.put("/v1/aliases/live", json={"embedding": named}, headers={"If-Match": '"1"'})
    assert (switched.json()["embedding"], switched.headers["ETag"]) == (named, '"2"')
    late = client.put("/v1/aliases/live", json={"embedding": numbered}, headers={"If-Match": '"1"'})
    assert problem(late, 412)["code"] == "precondition_failed"
    assert client.post("/v1/embeddings/live/lookup", json={"ids": ["7"]}).json()["embedding"] == named
    assert problem(client.delete(f"/v1/embeddings/{named}"), 409)["code"] == "conflict"
    assert [item["name"] for item in client.get("/v1/aliases").json()["items"]] == ["live"]
    assert problem(client.delete("/v1/aliases/live", headers={"If-Match": '"1"'}), 412)
    assert client.delete("/v1/aliases/live", headers={"If-Match": '"2"'}).status_code == 204
    assert problem(client.get("/v1/aliases/live"), 404)
    fresh = client.put("/v1/aliases/other", json={"embedding": numbered}, headers={"If-Match": "*"})
    assert problem(fresh, 412)


@pytest.mark.parametrize(("name", "embedding"), [("emb_x", None), ("-x", None), ("live", "emb_none")])
def test_aliases_that_cannot_be(client: TestClient, numbered: str, name: str, embedding: str | None) -> None:
    response = client.put(f"/v1/aliases/{name}", json={"embedding": embedding or numbered})
    problem(response, 404 if embedding else 422)


def test_lookups_and_searches_are_counted(client: TestClient, numbered: str) -> None:
    def sample(name: str, **labels: str) -> float:
        value = client.app.state.metrics.registry.get_sample_value(name, labels)
        return value or 0.0

    def counts() -> tuple[float, ...]:
        return (
            sample("rgrl_lookup_ids_total", outcome="found"),
            sample("rgrl_lookup_ids_total", outcome="missed"),
            sample("rgrl_neighbor_queries_total", strategy="hnsw"),
            sample("rgrl_neighbor_queries_total", strategy="exact"),
        )

    before = counts()
    client.post(f"/v1/embeddings/{numbered}/lookup", json={"ids": [1, 2, "nobody"]})
    client.post(f"/v1/embeddings/{numbered}/lookup", json={"ids": [1, "nobody"]}, headers={"Accept": ARROW})
    client.get(f"/v1/embeddings/{numbered}/vectors/1")
    neighbors(client, numbered, queries=[{"id": 1}, {"id": 2}], k=3)
    neighbors(client, numbered, queries=[{"id": 1}], k=3, search={"exact": True})
    assert [after - earlier for after, earlier in zip(counts(), before, strict=True)] == [4, 2, 2, 1]


def test_every_id_can_stand_in_a_path(client: TestClient, named: str) -> None:
    for name in NAMES:
        answer = client.get(f"/v1/embeddings/{named}/vectors/{quote(name, safe='')}")
        assert (answer.status_code, answer.json().get("id")) == (200, name)


def test_searches_beyond_the_places_are_told_to_come_again(
    client: TestClient, numbered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, body = client.app.state.searches, {"queries": [{"id": 1}], "k": 2}
    monkeypatch.setattr(turns, "_wait_s", 0.01)
    with ExitStack() as stack:
        for _ in range(client.app.state.settings.max_searches):
            stack.enter_context(turns.turn())
        answer = client.post(f"/v1/embeddings/{numbered}/neighbors", json=body)
        assert problem(answer, 429)["retryable"] is True
        assert "max_searches" in answer.json()["detail"]
        assert int(answer.headers["retry-after"]) > 0
    assert client.post(f"/v1/embeddings/{numbered}/neighbors", json=body).status_code == 200
    # A search that fails gives its place back.
    for _ in range(client.app.state.settings.max_searches):
        assert client.post(f"/v1/embeddings/{numbered}/neighbors", json={"queries": [{"id": 999}]}).status_code == 422
    assert client.post(f"/v1/embeddings/{numbered}/neighbors", json=body).status_code == 200
