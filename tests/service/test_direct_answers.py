"""Where an answer is made: at once what is quick, in a thread what others would wait for; the answers are the same."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from embedding_fixtures import QUICK_MAP, add_set, settings, write_bundle, write_set
from fastapi.testclient import TestClient

from preprocessing.stage import Emitter
from service.api import auth, direct
from service.api.app import create_app
from service.search.index_settings import IndexSettings
from service.search.indexing import build_index
from service.search.schemas import LookupIn
from service.verified import LOOK_S

NODES, DIM = 500, 8
ONE_QUERY = {"queries": [{"id": 3}], "k": 5}


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, str]]:
    folder = tmp_path_factory.mktemp("direct")
    vectors = np.random.default_rng(0).standard_normal((NODES, DIM)).astype(np.float32)
    content = write_bundle(folder / "graph", NODES, [(0, 1)])
    path = write_set(folder / "home" / "embeddings" / "one", vectors, content=content)
    build_index(path, IndexSettings(kind="hnsw", projection=QUICK_MAP), Emitter("index"))
    app = create_app(settings(folder / "home"))
    app.state.scheduler.start = lambda: None
    # A busy machine is no slow disk.
    with pytest.MonkeyPatch.context() as patient, TestClient(app) as client:
        patient.setattr(direct, "SLOW_S", 60.0)
        # While the keys are read again a request goes by the route.
        patient.setattr(auth, "REFRESH_S", 60.0)
        ref = add_set(app.state.store, path, folder / "graph")
        for _ in range(2):  # the first opens the set and its index by the route
            assert client.post(f"/v1/embeddings/{ref}/neighbors", json=ONE_QUERY).status_code == 200
        yield client, ref


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was handed to a thread."""
    handed: list[Any] = []
    really = direct.run_in_threadpool

    async def noting(function: Any) -> Any:
        handed.append(function)
        return await really(function)

    monkeypatch.setattr(direct, "run_in_threadpool", noting)
    return handed


def post(client: TestClient, ref: str, verb: str, body: dict[str, Any]) -> Any:
    answer = client.post(f"/v1/embeddings/{ref}/{verb}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(
    ("verb", "body", "quick"),
    [
        ("lookup", {"ids": [1, "2", "nobody"]}, True),
        ("lookup", {"ids": list(range(32))}, True),
        ("lookup", {"ids": list(range(33))}, False),
        ("neighbors", ONE_QUERY, True),
        ("neighbors", {"queries": [{"vector": [1.0] * DIM}], "k": 100}, True),
        ("neighbors", {"queries": [{"id": 3}], "k": 101}, False),
        ("neighbors", {"queries": [{"id": 3}, {"id": 4}], "k": 5}, False),
        ("neighbors", ONE_QUERY | {"search": {"exact": True}}, False),
        ("neighbors", ONE_QUERY | {"search": {"effort": 400}}, False),
        ("neighbors", ONE_QUERY | {"exclude": {"ids": [7]}}, False),
    ],
)
def test_only_what_is_quick_is_answered_at_once(
    serving: tuple[TestClient, str], threads: list[Any], verb: str, body: dict[str, Any], quick: bool
) -> None:
    client, ref = serving
    post(client, ref, verb, body)
    assert (threads == []) == quick


@pytest.mark.parametrize(("ids", "quick"), [(1000, True), (1025, False)])
def test_vectors_in_arrow_are_quick(serving: tuple[TestClient, str], threads: list[Any], ids: int, quick: bool) -> None:
    client, ref = serving
    arrow = {"Accept": "application/vnd.apache.arrow.stream"}
    answer = client.post(f"/v1/embeddings/{ref}/lookup", json={"ids": [1] * ids}, headers=arrow)
    assert pa.ipc.open_stream(answer.content).read_all().num_rows == ids
    assert (threads == []) == quick


@pytest.mark.parametrize("encoding", ["json", "base64"])
@pytest.mark.parametrize(
    "ids",
    [
        [3, 0, NODES, -1, 2**62],
        ["3", "0", "07", "-1", "+3", "3 ", "nobody", "ä", ""],
        [3, "4", 2**70, -(2**70), "5"],
    ],
)
def test_few_ids_are_answered_as_many_are(serving: tuple[TestClient, str], ids: list[int | str], encoding: str) -> None:
    client, ref = serving
    many = post(client, ref, "lookup", {"ids": ids * 40, "encoding": encoding})
    few = post(client, ref, "lookup", {"ids": ids, "encoding": encoding})
    assert many == few | {"items": few["items"] * 40}
    assert [item["id"] for item in few["items"]] == list(map(str, ids))
    assert [item["found"] for item in few["items"]] == [str(node) in map(str, range(NODES)) for node in ids]
    one_by_one = [post(client, ref, "lookup", {"ids": [node], "encoding": encoding})["items"][0] for node in ids]
    assert few["items"] == one_by_one


def test_one_vector_is_looked_up_at_once_whatever_the_last_waited_for(
    serving: tuple[TestClient, str], threads: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, ref = serving
    monkeypatch.setattr(direct, "PAUSE_S", 0.5)
    with monkeypatch.context() as slow:
        slow.setattr(direct, "SLOW_S", -1.0)
        slow.setattr(direct, "SLOW_TOGETHER_S", 0.0)
        post(client, ref, "lookup", {"ids": [1, 2]})
    post(client, ref, "lookup", {"ids": [1]})
    assert threads == []
    post(client, ref, "lookup", {"ids": [1, 2]})
    assert len(threads) == 1
    time.sleep(0.6)


def test_a_search_is_made_at_once_only_for_who_asks_alone(serving: tuple[TestClient, str], threads: list[Any]) -> None:
    client, ref = serving
    other = TestClient(client.app, client=("other", 2))
    whole = post(client, ref, "neighbors", ONE_QUERY)
    assert threads == []
    for asking in (other, client, other):
        assert post(asking, ref, "neighbors", ONE_QUERY) == whole
    assert len(threads) == 3
    assert post(other, ref, "neighbors", ONE_QUERY) == whole
    assert len(threads) == 3
    post(client, ref, "neighbors", ONE_QUERY)


def test_no_turn_at_once_is_a_turn_in_a_thread(
    serving: tuple[TestClient, str], threads: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, ref = serving
    searches = client.app.state.searches  # type: ignore[attr-defined]
    whole = post(client, ref, "neighbors", ONE_QUERY)
    waits: list[bool] = []
    really = searches.turn

    def turn(*, wait: bool = True) -> Any:
        waits.append(wait)
        if not wait:
            raise direct.BusyError("not now")
        return really()

    monkeypatch.setattr(searches, "turn", turn)
    assert post(client, ref, "neighbors", ONE_QUERY) == whole
    assert (waits, len(threads)) == ([False, True], 1)


@pytest.mark.parametrize(
    ("searches", "sent_to_threads"),
    [
        (["late", "late"], True),
        (["late", "in time", "late"], False),
        (["very late"], True),
        (["late"], False),
    ],
)
def test_searches_that_waited_for_the_disk_send_the_next_to_threads_for_a_while(
    serving: tuple[TestClient, str],
    threads: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    searches: list[str],
    sent_to_threads: bool,
) -> None:
    client, ref = serving
    post(client, ref, "neighbors", ONE_QUERY)  # in time, whatever was before
    monkeypatch.setattr(direct, "PAUSE_S", 0.5)
    monkeypatch.setattr(direct, "SLOW_S", 0.2)
    monkeypatch.setattr(direct, "SLOW_TOGETHER_S", 0.6)
    index = client.app.state.embeddings.get(ref)[1].space().index  # type: ignore[attr-defined]
    really = index.search
    seconds = {"in time": 0.0, "late": 0.4, "very late": 0.8}

    for which in searches:

        def search(*given: Any, wait: float = seconds[which]) -> Any:
            time.sleep(wait)
            return really(*given)

        with monkeypatch.context() as slow:
            slow.setattr(index, "search", search)
            post(client, ref, "neighbors", ONE_QUERY)
    assert threads == []
    post(client, ref, "neighbors", ONE_QUERY)
    assert len(threads) == sent_to_threads
    time.sleep(0.6)
    post(client, ref, "neighbors", ONE_QUERY)
    assert len(threads) == sent_to_threads


def test_a_graph_that_is_to_be_read_is_read_in_a_thread(serving: tuple[TestClient, str], threads: list[Any]) -> None:
    """Hashing its edges takes seconds a gigabyte, and the first search of a set does so."""
    client, ref = serving
    embeddings = client.app.state.embeddings.get(ref)[1]  # type: ignore[attr-defined]
    indices = embeddings.graph().path / "topology" / "indices.npy"
    post(client, ref, "neighbors", ONE_QUERY)
    assert threads == []
    os.utime(indices)
    time.sleep(LOOK_S)
    post(client, ref, "neighbors", ONE_QUERY)
    assert len(threads) == 1
    post(client, ref, "neighbors", ONE_QUERY)
    assert len(threads) == 1


def test_an_error_at_once_is_the_error_of_the_route(serving: tuple[TestClient, str], threads: list[Any]) -> None:
    client, ref = serving
    answer = client.post(f"/v1/embeddings/{ref}/neighbors", json={"queries": [{"id": "nobody"}], "k": 5})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/queries/0/id"
    assert threads == []


@pytest.mark.parametrize("text", ["a\\u0000b", "\\ud800", "\\uDC00x", "\\\\\\u0000"])
def test_text_that_cannot_be_sent_is_refused_however_it_is_spelt(serving: tuple[TestClient, str], text: str) -> None:
    client, ref = serving
    for verb, body in (("lookup", '{"ids": ["%s"]}'), ("neighbors", '{"queries": [{"id": "%s"}]}')):
        content = (body % text).encode()
        answer = client.post(
            f"/v1/embeddings/{ref}/{verb}", content=content, headers={"Content-Type": "application/json"}
        )
        assert (answer.status_code, answer.json()["code"]) == (422, "validation_failed"), answer.text


def test_text_that_can_be_sent_is_read_escaped_and_not() -> None:
    for spelt in (b"\xc3\xa9", b"\\u00e9"):
        assert LookupIn.of_json(b'{"ids": ["' + spelt + b'", 1]}').ids == ["é", 1]


def test_a_query_parameter_that_there_is_not_is_told(serving: tuple[TestClient, str]) -> None:
    client, ref = serving
    for method, path, meant in (
        ("GET", f"/v1/embeddings/{ref}/vectors/1?dim=3", None),
        ("GET", f"/v1/embeddings/{ref}/vectors?shards=0/2", "shard"),
        ("GET", "/v1/jobs?staus=failed", "status"),
        ("POST", "/v1/jobs?dry-run=true", "dry_run"),
        ("POST", f"/v1/embeddings/{ref}/neighbors?k=3", None),
    ):
        body = ONE_QUERY if "neighbors" in path else {"kind": "preprocess", "graph": "g"}
        answer = client.request(method, path, json=body if method == "POST" else None)
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (422, "input_invalid"), answer.text
        assert problem["errors"][0]["pointer"] == f"query/{path.partition('?')[2].partition('=')[0]}"
        assert problem["remedy"] == (meant and f"did you mean `{meant}`?")
    assert client.get("/livez?whoever=probes").status_code == 200
