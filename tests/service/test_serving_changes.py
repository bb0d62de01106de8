"""What references resolve to is held in memory: every change of it is seen by the very next request."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from embedding_fixtures import QUICK_MAP, add_set, settings, write_bundle, write_set
from fastapi.testclient import TestClient

from preprocessing.artifact import read_manifest
from preprocessing.stage import Emitter
from service.api.app import create_app
from service.search.embedding_set import EmbeddingSets
from service.search.index_settings import IndexSettings
from service.search.indexing import build_index
from service.store import Store
from service.store.embeddings import point_alias, set_part
from service.verified import LOOK_S

NODES, DIM = 30, 4


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with TestClient(create_app(settings(tmp_path / "home"))) as client:
        yield client


def store_of(client: TestClient) -> Store:
    store: Store = client.app.state.store  # type: ignore[attr-defined]
    return store


def held(client: TestClient, ref: str) -> bool:
    """Whether the next request of ``ref`` is answered from memory."""
    return client.app.state.embeddings.held(ref) is not None  # type: ignore[attr-defined]


def constant_set(client: TestClient, folder: Path, name: str, value: float) -> str:
    """A registered set whose every vector starts with ``value``, under the server's own folder."""
    vectors = np.random.default_rng(0).standard_normal((NODES, DIM)).astype(np.float32)
    vectors[:, 0] = value
    path = write_set(folder / "home" / "embeddings" / name, vectors)
    return add_set(store_of(client), path)


def first_number(client: TestClient, ref: str) -> Any:
    answer = client.get(f"/v1/embeddings/{ref}/vectors/3")
    assert answer.status_code == 200, answer.text
    return answer.json()["vector"][0], answer.json()["embedding"]


def test_a_second_lookup_asks_no_store(client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = constant_set(client, tmp_path, "one", 1.0)
    assert not held(client, one)
    first = client.get(f"/v1/embeddings/{one}/vectors/3")
    monkeypatch.setattr(Store, "embedding", None)
    again = client.get(f"/v1/embeddings/{one}/vectors/3")
    assert (again.status_code, again.json()) == (200, first.json())
    assert again.headers["content-type"] == first.headers["content-type"] == "application/json"
    assert client.post(f"/v1/embeddings/{one}/lookup", json={"ids": [3]}).status_code == 200


def test_an_alias_switched_or_deleted_is_seen_at_once(client: TestClient, tmp_path: Path) -> None:
    one, two = (constant_set(client, tmp_path, name, value) for name, value in (("one", 1.0), ("two", 2.0)))
    for embedding, value in ((one, 1.0), (two, 2.0), (one, 1.0)):
        client.put("/v1/aliases/live", json={"embedding": embedding})
        for _ in range(2):
            assert first_number(client, "live") == (value, embedding)
    assert held(client, "live")
    client.delete("/v1/aliases/live")
    assert client.get("/v1/embeddings/live/vectors/3").status_code == 404
    assert first_number(client, one) == (1.0, one)


def test_an_alias_that_a_job_points_is_seen_at_once(client: TestClient, tmp_path: Path) -> None:
    one, two = (constant_set(client, tmp_path, name, value) for name, value in (("one", 1.0), ("two", 2.0)))
    client.put("/v1/aliases/live", json={"embedding": one})
    assert first_number(client, "live") == (1.0, one)
    with store_of(client).writing() as connection:
        point_alias(connection, "live", two)
    assert first_number(client, "live") == (2.0, two)


def test_a_deleted_set_is_gone_at_once(client: TestClient, tmp_path: Path) -> None:
    one = constant_set(client, tmp_path, "one", 1.0)
    assert first_number(client, one) == (1.0, one)
    assert client.delete(f"/v1/embeddings/{one}").status_code == 204
    assert client.get(f"/v1/embeddings/{one}/vectors/3").status_code == 404


def test_an_index_that_a_job_built_is_searched_at_once(client: TestClient, tmp_path: Path) -> None:
    one = constant_set(client, tmp_path, "one", 1.0)
    path = tmp_path / "home" / "embeddings" / "one"
    strategies = []
    for kind in (None, "hnsw", "exact"):
        if kind is not None:
            summary = build_index(path, IndexSettings(kind=kind, projection=QUICK_MAP), Emitter("index"))
            with store_of(client).writing() as connection:
                set_part(connection, one, "index", summary)
        for _ in range(2):
            answer = client.post(f"/v1/embeddings/{one}/neighbors", json={"queries": [{"id": 3}], "k": 2}).json()
            strategies.append(answer["answers"][0]["strategy"])
    assert strategies == ["exact_no_index"] * 2 + ["hnsw"] * 2 + ["exact"] * 2
    assert read_manifest(path / "index", "knn_index")["index"] == "exact"


def test_an_index_that_was_away_is_watched_once_it_is_back(client: TestClient, tmp_path: Path) -> None:
    one = constant_set(client, tmp_path, "one", 1.0)
    path = tmp_path / "home" / "embeddings" / "one"
    build_index(path, IndexSettings(kind="hnsw", projection=QUICK_MAP), Emitter("index"))
    index, away = path / "index" / "index.faiss", tmp_path / "away"
    whole = index.read_bytes()

    def asked() -> int:
        time.sleep(LOOK_S)
        answer = client.post(f"/v1/embeddings/{one}/neighbors", json={"queries": [{"id": 3}]})
        return answer.status_code

    index.rename(away)
    assert first_number(client, one) == (1.0, one)
    assert asked() == 409
    away.rename(index)
    assert asked() == 200
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 1
    index.write_bytes(changed)
    assert asked() == 409
    index.write_bytes(whole)
    assert asked() == 200


def test_other_writes_change_nothing_that_is_held(client: TestClient, tmp_path: Path) -> None:
    one = constant_set(client, tmp_path, "one", 1.0)
    first_number(client, one)
    generation = store_of(client).generation
    store_of(client).create_key("another", ["read"])
    assert store_of(client).generation == generation
    assert held(client, one)
    with pytest.raises(RuntimeError), store_of(client).writing() as connection:
        point_alias(connection, "live", one)
        raise RuntimeError
    assert store_of(client).generation > generation, "what was rolled back costs a reading, never a wrong answer"


def test_a_set_deleted_while_it_is_opened_is_not_found_and_its_alias_goes_on(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (constant_set(client, tmp_path, name, value) for name, value in (("one", 1.0), ("two", 2.0)))
    store = store_of(client)
    store.put_alias("live", one)
    resolve = EmbeddingSets._resolve

    def resolve_then_lose(sets: EmbeddingSets, ref: str, generation: int) -> Any:
        found = resolve(sets, ref, generation)
        if found.identity == one:
            store.put_alias("live", two)
            store.delete_embedding(one)
            shutil.rmtree(found.path)
        return found

    monkeypatch.setattr(EmbeddingSets, "_resolve", resolve_then_lose)
    assert first_number(client, "live") == (2.0, two)
    assert client.get(f"/v1/embeddings/{one}/vectors/3").status_code == 404


def test_an_alias_is_switched_under_readers_without_a_failed_request(client: TestClient, tmp_path: Path) -> None:
    """Each answer is whole and of one set: its vector is the one of the set that it names."""
    content = write_bundle(tmp_path / "bundle", NODES, [(0, 1)])
    values: dict[str, float] = {}

    def make(number: int) -> str:
        vectors = np.random.default_rng(number).standard_normal((NODES, DIM)).astype(np.float32)
        vectors[:, 0] = number
        path = write_set(tmp_path / "home" / "embeddings" / f"set{number}", vectors, content=content)
        build_index(path, IndexSettings(kind="hnsw", projection=QUICK_MAP), Emitter("index"))
        identity = add_set(store_of(client), path, tmp_path / "bundle")
        values[identity] = float(number)
        return identity

    present = make(0)
    client.put("/v1/aliases/live", json={"embedding": present})
    stop, faults, answers = threading.Event(), [], [0]

    def read() -> None:
        while not stop.is_set():
            one = client.get("/v1/embeddings/live/vectors/3")
            many = client.post("/v1/embeddings/live/lookup", json={"ids": [1, 2]})
            near = client.post("/v1/embeddings/live/neighbors", json={"queries": [{"id": 5}], "k": 3})
            if [one.status_code, many.status_code, near.status_code] != [200, 200, 200]:
                faults.append((one.text, many.text, near.text))
            elif {one.json()["vector"][0], values[one.json()["embedding"]]} != {values[one.json()["embedding"]]}:
                faults.append(one.text)
            elif any(item["vector"][0] != values[many.json()["embedding"]] for item in many.json()["items"]):
                faults.append(many.text)
            elif len(near.json()["answers"][0]["results"]) != 3:
                faults.append(near.text)
            answers[0] += 1

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(1, 9):
        before, present = present, make(number)
        assert client.put("/v1/aliases/live", json={"embedding": present}).status_code == 200
        assert client.get("/v1/embeddings/live").json()["id"] == present
        assert client.delete(f"/v1/embeddings/{before}").status_code == 204
        # The files lie where the set was written, not under its id: gone as if the server had removed them.
        shutil.rmtree(tmp_path / "home" / "embeddings" / f"set{number - 1}")
    stop.set()
    for reader in readers:
        reader.join()
    assert not faults
    assert answers[0] > 0


def test_the_direct_answer_lets_in_whom_the_keys_let_in(client: TestClient, tmp_path: Path) -> None:
    one = constant_set(client, tmp_path, "one", 1.0)
    first_number(client, one)
    store = store_of(client)
    key, token = store.create_key("reader", ["read"])

    def status(authorization: str | None) -> int:
        headers = {} if authorization is None else {"Authorization": authorization}
        return client.get(f"/v1/embeddings/{one}/vectors/3", headers=headers).status_code

    for _ in range(2):
        sent = (None, token, f"Basic {token}", f"Bearer {token}x", "Bearer", f"Bearer {token}", f"bearer {token}")
        assert [status(authorization) for authorization in sent] == [401] * 5 + [200] * 2
        assert held(client, one)
    store.revoke_key(key.id)
    store.create_key("another", ["read"])
    assert status(f"Bearer {token}") == 401


def test_what_is_held_and_what_is_not_is_answered_alike(client: TestClient, tmp_path: Path) -> None:
    """The routes give the first answer, the direct way those after it: to good requests and to bad ones."""
    one = constant_set(client, tmp_path, "one", 1.0)
    arrow = {"Accept": "application/vnd.apache.arrow.stream"}
    cases: list[tuple[str, bytes, dict[str, str]]] = [
        ("lookup", b'{"ids": [1, "2", "x"]}', {}),
        ("lookup", b'{"ids": [1, "2", "x"], "encoding": "base64"}', {}),
        ("lookup", b'{"ids": [1, 2]}', arrow),
        ("lookup", b'{"ids": []}', {}),
        ("lookup", b'{"ids": [1]', {}),
        ("lookup", b'{"ids": ["\\ud800"]}', {}),
        ("neighbors", b'{"queries": [{"id": 1}], "k": 3}', {}),
        ("neighbors", b'{"queries": [{"id": 1}], "k": 3}', arrow),
        ("neighbors", b'{"queries": [{"id": 1}], "k": 30000}', {}),
        ("neighbors", b'{"queries": [{"vector": [NaN, 1, 1, 1]}]}', {}),
        ("neighbors", b'{"queries": [{"id": "nobody"}]}', {}),
        ("neighbors", b'{"queries": [{"id": 1}], "exclude": {"connected": true}}', {}),
        ("neighbors", b"", {}),
    ]
    statuses = []
    for verb, body, headers in cases:
        answers = []
        for _ in range(2):
            client.app.state.embeddings.forget(one)  # type: ignore[attr-defined]
            assert not held(client, one)
            for _ in range(2):
                sent = {"Content-Type": "application/json", "X-Request-ID": "same", **headers}
                answer = client.post(f"/v1/embeddings/{one}/{verb}", content=body, headers=sent)
                answers.append((answer.status_code, answer.headers, answer.content))
                client.get(f"/v1/embeddings/{one}/vectors/1")
                assert held(client, one)
        assert all(answer == answers[0] for answer in answers), (verb, body, answers)
        statuses.append(answers[0][0])
    assert statuses == [200] * 3 + [422] * 3 + [200] * 2 + [422] * 3 + [409, 422]


def test_a_body_that_comes_in_pieces_or_not_at_all(client: TestClient, tmp_path: Path) -> None:
    one = constant_set(client, tmp_path, "one", 1.0)
    first_number(client, one)
    url, body = f"/v1/embeddings/{one}/lookup", b'{"ids": [1, 2]}'
    whole = client.post(url, content=body, headers={"Content-Type": "application/json"})

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(body), 4):
            yield body[start : start + 4]

    lengths = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    for headers in ({"Content-Type": "application/json"}, lengths):
        answer = client.post(url, content=pieces(), headers=headers)
        assert (answer.status_code, answer.content) == (200, whole.content)


def test_the_direct_answer_is_counted_as_its_route(client: TestClient, tmp_path: Path) -> None:
    one = constant_set(client, tmp_path, "one", 1.0)

    def counted() -> list[float]:
        value = client.app.state.metrics.registry.get_sample_value  # type: ignore[attr-defined]
        route = "/v1/embeddings/{ref}/vectors/{node:node}"
        labels = {"method": "GET", "route": route, "status": "200"}
        return [
            value("rgrl_http_requests_total", labels) or 0.0,
            value("rgrl_lookup_ids_total", {"outcome": "found"}) or 0.0,
        ]

    for number in range(1, 4):
        first_number(client, one)
        assert counted() == [number, number]
        assert held(client, one)
