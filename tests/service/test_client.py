"""The client against a real server process with fake stages, and its retries against a server that misbehaves."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
from embedding_fixtures import add_set, write_bundle, write_set
from service_harness import Server, settings_in, wait_for

from preprocessing.errors import ResourceError, UsageError
from service.client import Answers, Client, Event, transport
from service.client.transport import (
    ApiError,
    AuthError,
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    RejectedError,
    ServerBusyError,
    UnreachableError,
)
from service.store import Store


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(settings_in(tmp_path_factory.mktemp("client"), max_lookup_ids_arrow=50)) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Client]:
    with Client(str(server.client.base_url)) as client:
        yield client


@pytest.fixture(scope="module")
def embedding(server: Server) -> tuple[str, np.ndarray]:
    vectors = np.random.default_rng(2).standard_normal((120, 5)).astype(np.float32)
    path = write_set(server.settings.embeddings / "set", vectors)
    store = Store(server.settings)
    try:
        return add_set(store, path), vectors
    finally:
        store.close()


def graph(client: Client, server: Server) -> str:
    (server.settings.data_roots[0] / "g.npz").touch()
    return client.register_graph({"kind": "npz", "path": "g.npz"}, name="g").id


def fake(*stages: str) -> dict[str, str]:
    return {"fake": "[" + ", ".join(stages) + "]"}


def test_a_job_from_submit_to_end(client: Client, server: Server) -> None:
    graph_id = graph(client, server)
    assert graph_id in [found.id for found in client.graphs()]
    labels = fake('["one", {"steps": 3}]', '["two", {}]')
    job = client.submit("pipeline", graph=graph_id, name="mine", labels=labels)
    assert (job.status, job.name, job.ended) == ("queued", "mine", False)
    events: list[Event] = []
    ended = client.wait(job.id, events.append)
    assert ended.status == "succeeded"
    assert [event.id for event in events] == sorted({event.id for event in events})
    assert {event.stage for event in events} >= {"one", "two"}
    assert [event.event for event in events].count("result") == 2
    assert list(client.events(job.id, after=events[-2].id)) == events[-1:]
    assert next(client.jobs(status="succeeded", kind="pipeline")).id == job.id
    assert isinstance(client.logs(job.id, 5), list)


@pytest.mark.parametrize(
    ("progress", "terminal", "listening", "drawn"),
    [
        (True, False, False, True),
        (True, False, True, True),
        (None, True, False, True),
        (None, True, True, False),
        (None, False, False, False),
        (False, True, False, False),
    ],
)
def test_a_wait_draws_bars_where_they_are_seen_or_wished_for(
    client: Client,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    progress: bool | None,
    terminal: bool,
    listening: bool,
    drawn: bool,
) -> None:
    job = client.submit("pipeline", graph=graph(client, server), labels=fake('["one", {"steps": 3}]'))
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    events: list[Event] = []
    assert client.wait(job.id, events.append if listening else None, progress=progress).status == "succeeded"
    assert ("one: " in capsys.readouterr().err) == drawn
    assert bool(events) == listening


def test_a_set_of_the_command_line_is_registered(
    client: Client, server: Server, embedding: tuple[str, np.ndarray]
) -> None:
    data, vectors = server.settings.data_roots[0], embedding[1]
    content = write_bundle(data / "bundle", len(vectors), [(0, 1)])
    path = write_set(data / "set", vectors, content=content)
    graph_id = client.register_graph(bundle="bundle").id
    made = client.register_embedding(str(path), graph_id, name="mine")
    assert (made.name, made.graph, made.job) == ("mine", graph_id, None)
    assert client.register_embedding("set", graph_id).id == made.id
    assert np.array_equal(client.lookup(made.id, [5]).vectors[0], vectors[5])
    wanted = {"must": [{"key": "degree", "range": {"gte": 1}}]}
    answers = client.neighbors(made.id, [{"id": 0}, {"id": 5}], filter=wanted)
    assert [{found.id for found in answer.results} for answer in answers] == [{"1"}, {"0", "1"}]


def test_the_same_key_submits_once(client: Client, server: Server) -> None:
    graph_id = graph(client, server)
    jobs = [
        client.submit("pipeline", graph=graph_id, labels=fake('["one", {}]'), idempotency_key="k1") for _ in range(2)
    ]
    assert jobs[0].id == jobs[1].id
    assert client.submit("pipeline", graph=graph_id, labels=fake('["one", {}]')).id != jobs[0].id


def test_a_cancelled_job_ends_as_such(client: Client, server: Server, tmp_path: Path) -> None:
    job = client.submit(
        "pipeline", graph=graph(client, server), labels=fake(f'["one", {{"gate": "{tmp_path / "never"}"}}]')
    )
    client.cancel(job.id)
    assert client.wait(job.id).status == "cancelled"
    with pytest.raises(ConflictError):
        client.cancel(job.id)


def test_lookup_asks_in_parts_and_keeps_the_order(
    client: Client, embedding: tuple[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.client.LOOKUP_IDS", 50)
    ref, vectors = embedding
    order = np.random.default_rng(0).permutation(120)
    answer = client.lookup(ref, [*order.tolist(), "nobody"])
    assert answer.embedding == ref
    assert answer.vectors.dtype == np.float32
    assert np.array_equal(answer.vectors[:-1], vectors[order])
    assert answer.found.tolist() == [True] * 120 + [False]
    assert not answer.vectors[-1].any()


def test_neighbours_and_scores(client: Client, embedding: tuple[str, np.ndarray]) -> None:
    ref, vectors = embedding
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    answers = client.neighbors(ref, [{"id": node} for node in range(120)] * 3, k=4, exclude_ids=[1, "2"])
    assert len(answers) == 360
    for node in (0, 7, 119):
        scores = unit @ unit[node]
        scores[[node, 1, 2]] = -2
        assert [int(found.id) for found in answers[node].results] == np.argsort(-scores)[:4].tolist()
        assert answers[node] == answers[node + 120]
    assert client.neighbors(ref, [{"id": 0}], k=1, exclude_self=False)[0].results[0].id == "0"
    [pair] = client.scores(ref, [(3, "4")])
    assert pair.score == pytest.approx(float(unit[3] @ unit[4]), abs=1e-6)


def test_answers_become_frames(client: Client, embedding: tuple[str, np.ndarray]) -> None:
    ref, vectors = embedding
    answer = client.lookup(ref, [7, "nobody", "3"])
    assert answer.ids == ["7", "nobody", "3"]
    expected = [vectors[7].tolist(), None, vectors[3].tolist()]
    assert answer.to_arrow().to_pydict() == {"id": answer.ids, "found": [True, False, True], "vector": expected}
    frame = answer.to_pandas()
    assert list(frame["id"]) == answer.ids
    assert np.array_equal(frame["vector"][2], vectors[3])
    assert answer.to_polars()["vector"].to_list() == expected
    answers = client.neighbors(ref, [{"id": 3}, {"id": 4}], k=2)
    for rows in (
        answers.to_arrow().to_pylist(),
        answers.to_polars().to_dicts(),
        answers.to_pandas().to_dict("records"),
    ):
        assert [(row["query"], row["rank"]) for row in rows] == [(0, 1), (0, 2), (1, 1), (1, 2)]
        assert [row["id"] for row in rows] == [found.id for each in answers for found in each.results]
        assert [row["score"] for row in rows] == [found.score for each in answers for found in each.results]
    assert client.neighbors(ref, []).to_arrow().num_rows == 0


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_frame_whose_package_is_missing_names_it(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ResourceError, match=f"pip install {package}"):
        getattr(Answers(), f"to_{package}")()


def test_aliases(client: Client, embedding: tuple[str, np.ndarray]) -> None:
    ref, _ = embedding
    assert client.put_alias("now", ref).version == 1
    assert client.put_alias("now", ref, if_version=1).version == 2
    with pytest.raises(ConflictError) as raised:
        client.put_alias("now", ref, if_version=1)
    assert raised.value.code == "precondition_failed"
    assert [alias.name for alias in client.aliases()] == ["now"]
    assert client.embedding("now").id == ref
    assert ref in [found.id for found in client.embeddings()]
    client.delete_alias("now", if_version=2)
    with pytest.raises(NotFoundError):
        client.alias("now")


def test_problems_are_typed(client: Client, embedding: tuple[str, np.ndarray]) -> None:
    ref, _ = embedding
    with pytest.raises(NotFoundError) as missing:
        client.job("job_none")
    assert (missing.value.code, missing.value.status, missing.value.exit_code) == ("not_found", 404, 3)
    with pytest.raises(InvalidRequestError) as wrong:
        client.submit("pipeline", graph="graph_none", train={"optimizer": {"lr": -1}})
    assert wrong.value.errors[0]["pointer"] == "/train/optimizer/lr"
    assert "train.optimizer.lr: " in str(wrong.value.text())
    assert wrong.value.request_id
    with pytest.raises(RejectedError) as rejected:
        client.neighbors(ref, [{"id": "nobody"}])
    assert (rejected.value.pointer, rejected.value.exit_code) == ("/queries/0/id", 3)
    with pytest.raises(RejectedError) as second:
        client.neighbors(ref, [{"id": 1}, {"ids": [{"id": "2"}, {"id": "nobody"}]}])
    for error in (rejected.value, second.value):
        assert error.given == "nobody", "the server names no value; the client knows what it sent"
        assert "given: nobody" in error.text()


def test_keys(server: Server, client: Client) -> None:
    store = Store(server.settings)
    key, token = store.create_key("reader", ["read"])
    try:
        with Client(client._transport.url, token) as reader:
            # A server reads its keys once a second.
            wait_for(lambda: raises(AuthError, client.aliases))
            assert reader.aliases() == []
            with pytest.raises(AuthError):
                reader.put_alias("x", "y")
    finally:
        store.revoke_key(key.id)
        store.close()
    wait_for(lambda: not raises(AuthError, client.aliases))


def raises(kind: type[Exception], call: Callable[[], object]) -> bool:
    try:
        call()
    except kind:
        return True
    return False


@contextmanager
def answering(*answers: tuple[int, dict[str, str], bytes] | None) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server that gives these answers in turn, None being a connection cut; and the headers it was sent."""
    left = list(answers)
    seen: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            seen.append(dict(self.headers))
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = left.pop(0)
            if answer is None:
                self.close_connection = True
                return
            status, headers, body = answer
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


JOB = (
    b'{"id": "job_1", "kind": "train", "name": null, "labels": {}, "status": "queued", "phase": null, "attempt": 0,'
    b' "graph": "g", "embedding": null, "alias": null, "progress": null, "error": null,'
    b' "created_at": "2026-01-01T00:00:00Z", "started_at": null, "ended_at": null, "new_field": 1}'
)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(transport.time, "sleep", slept.append)
    return slept


def test_a_submit_is_tried_again_with_its_key(waits: list[float]) -> None:
    busy = (429, {"Retry-After": "3"}, b"{}")
    with answering(None, busy, (503, {}, b""), (201, {}, JOB)) as (url, seen), Client(url) as client:
        assert client.submit("train", graph="g").id == "job_1"
    assert len({headers["Idempotency-Key"] for headers in seen}) == 1
    assert len(seen) == 4
    assert waits[1] >= 3
    assert waits[0] <= transport.FIRST_WAIT_S


def test_a_request_that_may_have_been_done_is_not_sent_twice(waits: list[float]) -> None:
    with answering(None, (201, {}, b"{}")) as (url, seen), Client(url) as client:
        with pytest.raises(UnreachableError):
            client.register_graph({"kind": "npz", "path": "g.npz"})
        assert len(seen) == 1
    assert waits == []


def test_retries_end(waits: list[float]) -> None:
    busy = (429, {}, b'{"code": "busy", "detail": "full", "retryable": true}')
    with (
        answering(*[busy] * transport.ATTEMPTS) as (url, _),
        Client(url) as client,
        pytest.raises(ServerBusyError) as raised,
    ):
        client.submit("train", graph="g")
    assert (raised.value.code, raised.value.retryable) == ("busy", True)
    assert waits == sorted(waits)
    with pytest.raises(UnreachableError), Client(url) as client:
        client.info()


@pytest.mark.parametrize(
    ("status", "body", "retryable"),
    [
        (422, b'{"code": "resources_unavailable", "detail": "full", "retryable": true}', True),
        (422, b'{"code": "resources_unavailable", "detail": "too large", "retryable": false}', False),
        (429, b"a proxy's", True),
        (500, b"a proxy's", False),
    ],
)
def test_whether_it_may_go_better_later_is_as_the_server_says(
    waits: list[float], status: int, body: bytes, retryable: bool
) -> None:
    with answering(*[(status, {}, body)] * transport.ATTEMPTS) as (url, _), Client(url) as client:
        with pytest.raises(ApiError) as raised:
            client.submit("train", graph="g")
        assert (raised.value.status, raised.value.retryable) == (status, retryable)


def test_waiting_outlasts_a_server_that_comes_back(waits: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten looks in vain are no end; patience is, and then the word is that the job goes on."""
    monkeypatch.setattr("service.client.PATIENCE_S", 1e9)
    done = JOB.replace(b"queued", b"succeeded")
    data = b'{"id": 1, "stage": "x", "attempt": 1, "at": "2026-01-01T00:00:00Z", "data": {}}'
    body = b"id: 1\nevent: result\ndata: " + data + b"\n\nevent: end\ndata: {}\n\n"
    stream = (200, {"Content-Type": "text/event-stream"}, body)
    with answering(*[None] * 10, stream, (200, {}, done)) as (url, _), Client(url) as client:
        assert client.wait("job_1").status == "succeeded"
    monkeypatch.setattr("service.client.PATIENCE_S", 0)
    with pytest.raises(UnreachableError) as error, Client(url) as client:
        client.wait("job_1")
    assert "jobs watch job_1" in str(error.value.remedy)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x", "http://"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(UsageError):
        Client(url)


def test_address_and_key_come_from_the_environment_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = (200, {"Content-Type": "application/json"}, b"{}")
    monkeypatch.setenv("RGRL_KEY", "of the environment")
    with answering(answer, answer) as (url, seen):
        monkeypatch.setenv("RGRL_SERVER", url)
        for given in (None, "given"):
            with Client(key=given) as client:
                client.info()
        assert [headers["Authorization"] for headers in seen] == ["Bearer of the environment", "Bearer given"]
    monkeypatch.setenv("RGRL_SERVER", "http://127.0.0.1:9")
    monkeypatch.delenv("RGRL_KEY")
    with answering(answer) as (url, seen), Client(url) as client:
        client.info()
    assert "Authorization" not in seen[0]
