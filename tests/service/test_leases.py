"""Files that are written to where they lie, under load: whoever writes waits a moment, no answer is wrong, and the
server lives; where the system gives no leases, the stamps tell once the answer is made.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import itertools
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from embedding_fixtures import QUICK_MAP, add_set, settings, write_bundle, write_set
from fastapi.testclient import TestClient
from service_harness import Server

from preprocessing.artifact import read_manifest
from preprocessing.errors import ArtifactError
from preprocessing.stage import Emitter
from service.api.app import create_app
from service.leases import Leases
from service.search.bulk import FORMATS, page_of
from service.search.embedding_set import EmbeddingSet
from service.search.index_settings import IndexSettings
from service.search.indexing import build_index
from service.store import Store
from service.store.graphs import graph_ready

NODES, DIM = 1200, 16
SET_FILES, GRAPH_FILES = ("vectors.npy", "ids", "index/index.faiss"), ("topology/indptr.npy", "topology/indices.npy")
# A writer whom nobody lets go on waits 45 seconds.
HELD_UP_S = 5.0


def leases_are_had(folder: Path) -> bool:
    with (folder / "any").open("wb"):
        pass
    leases = Leases()
    leases.given = True
    lease = leases.take([str(folder / "any")])
    lease.end()
    return lease.complete


class Place:
    """A set, its graph, and the requests whose answers are known."""

    def __init__(self, folder: Path, ids: list[Any]) -> None:
        folder.mkdir()
        self.graph, self.set = folder / "graph", folder / "set"
        vectors = np.random.default_rng(1).standard_normal((NODES, DIM)).astype(np.float32)
        content = write_bundle(self.graph, NODES, [(node, (node + 1) % NODES) for node in range(NODES)])
        write_set(self.set, vectors, ids, content)
        build_index(self.set, IndexSettings(kind="hnsw", threads=1, projection=QUICK_MAP), Emitter("index"))
        self.ids = ids
        self.ref, self.graph_ref = "", ""

    def register(self, store: Store) -> None:
        self.ref = add_set(store, self.set, self.graph)
        self.graph_ref = store.embedding(self.ref).graph
        with store.writing() as connection:
            graph_ready(connection, self.graph_ref, read_manifest(self.graph, "graph_bundle"))

    def file(self, name: str) -> Path:
        if name == "ids":
            return self.set / ("ids.npy" if isinstance(self.ids[0], int) else "ids.arrow")
        return (self.graph if name.startswith("topology") else self.set) / name

    def requests(self) -> list[tuple[str, str, bytes]]:
        """Method, path and body of every kind: four that search nothing, four that search, of which the last needs the
        graph's edges, and a node of the graph.
        """
        root, few = f"/v1/embeddings/{self.ref}", self.ids[100:116]
        queries = [{"id": node} for node in few]
        bodies: list[tuple[str, dict[str, Any]]] = [
            ("lookup", {"ids": few}),
            ("lookup", {"ids": self.ids[::3]}),
            ("neighbors", {"queries": queries[:1], "k": 10}),
            ("neighbors", {"queries": queries, "k": 10}),
            ("neighbors", {"queries": queries[:4], "k": 10, "search": {"exact": True}}),
            ("neighbors", {"queries": queries[:4], "k": 10, "exclude": {"connected": True}}),
        ]
        posts = [("POST", f"{root}/{verb}", json.dumps(body).encode()) for verb, body in bodies]
        return [
            ("GET", f"{root}/vectors/{few[0]}", b""),
            ("GET", f"{root}/vectors", b""),
            *posts,
            ("GET", f"/v1/graphs/{self.graph_ref}/nodes/7", b""),
        ]


def ask(client: Any, request: tuple[str, str, bytes]) -> tuple[int, Any]:
    """Status and content, less which neighbours are connected: that is null while the graph is damaged."""
    method, path, body = request
    answer = client.request(method, path, content=body, headers={"Content-Type": "application/json"})
    if path.endswith("/vectors") or answer.status_code != 200:
        return answer.status_code, answer.text
    content = answer.json()
    for result in (near for one in content.get("answers", ()) for near in one["results"]):
        result.pop("connected")
    return answer.status_code, content


class Load:
    """Clients that ask all the time, and compare."""

    def __init__(self, server: Server, place: Place, truth: list[tuple[int, Any]]) -> None:
        self.wrong: list[Any] = []
        self.served = 0
        self._stop = threading.Event()
        self._ask = (server, place.requests(), truth)
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(3)]

    def _run(self, number: int) -> None:
        server, requests, truth = self._ask
        with httpx2.Client(base_url=server.client.base_url, timeout=60) as client:
            for turn in itertools.count(number):
                if self._stop.is_set():
                    return
                place = turn % len(requests)
                try:
                    status, content = ask(client, requests[place])
                except httpx2.RemoteProtocolError:
                    # An export that broke off, as it says.
                    assert requests[place][1].endswith("/vectors")
                    continue
                self.served += status == 200
                if status not in {200, 409} or (status == 200 and (status, content) != truth[place]):
                    self.wrong.append((requests[place], status, str(content)[:300]))

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture(scope="module", params=["numbers", "names"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    ids = {"numbers": list(range(5, 2 * NODES + 5, 2)), "names": [f"node {n:04}" for n in range(NODES)]}
    return Place(tmp_path_factory.mktemp("damaged") / "place", ids[request.param])


@pytest.fixture(scope="module")
def server(place: Place) -> Iterator[Server]:
    home = settings(place.set.parent / "home")
    store = Store(home)
    place.register(store)
    store.close()
    with Server(home) as server:
        yield server


def copied_over(file: Path, whole: bytes) -> None:
    other = file.with_name("other")
    other.write_bytes(bytes(byte ^ 3 for byte in whole))
    shutil.copyfile(other, file)
    other.unlink()


def copied_over_by_less(file: Path, whole: bytes) -> None:
    other = file.with_name("other")
    other.write_bytes(whole[: len(whole) // 3])
    shutil.copyfile(other, file)
    other.unlink()


def cut_short(file: Path, whole: bytes) -> None:
    os.truncate(file, len(whole) // 5)


def flipped(file: Path, whole: bytes) -> None:
    with file.open("r+b") as handle:
        handle.seek(len(whole) // 2)
        handle.write(bytes(byte ^ 3 for byte in whole[len(whole) // 2 :]))


def opened_and_flipped_later(file: Path, whole: bytes) -> None:
    """Whoever is let in may take its time before it writes."""
    with file.open("r+b") as handle:
        time.sleep(0.5)
        handle.seek(len(whole) // 2)
        handle.write(bytes(byte ^ 3 for byte in whole[len(whole) // 2 :]))
        handle.truncate(len(whole) - 1000)


CHANGES = (copied_over, copied_over_by_less, cut_short, flipped, opened_and_flipped_later)


# Every change to one file, and to every file what takes pages away and what leaves its size; only the ids lie otherwise
# where they are numbers.
@pytest.mark.parametrize(
    ("place", "name", "change"),
    [
        *(("names", "vectors.npy", change) for change in CHANGES),
        *(("names", name, change) for name in (*SET_FILES[1:], *GRAPH_FILES) for change in (cut_short, flipped)),
        *(("numbers", "ids", change) for change in (cut_short, flipped)),
    ],
    indirect=["place"],
)
def test_damage_under_load(
    server: Server, place: Place, name: str, change: Callable[[Path, bytes], None], tmp_path: Path
) -> None:
    if not leases_are_had(tmp_path):
        pytest.skip("this file system gives no leases, without which a file cut short ends the server")
    requests, file = place.requests(), place.file(name)
    truth = [ask(server.client, request) for request in requests]
    assert {status for status, _ in truth} == {200}, truth
    whole = file.read_bytes()
    with Load(server, place, truth) as load:
        time.sleep(0.2)
        began = time.monotonic()
        change(file, whole)
        held_up = time.monotonic() - began
        damaged = [ask(server.client, request) for request in requests]
        file.write_bytes(whole)
        served = load.served
        again = [ask(server.client, request) for request in requests]
        time.sleep(0.1)
    assert server.answers()
    assert load.wrong == []
    assert load.served > served
    assert again == truth
    assert held_up < HELD_UP_S
    for number in _who_reads(name):
        status, text = damaged[number]
        assert status == 409, requests[number]
        assert file.name in text


def _who_reads(name: str) -> range:
    """Places in ``Place.requests`` of those that cannot be answered without the file."""
    if name in GRAPH_FILES:
        return range(7, 9)
    return range(4, 8) if name == "index/index.faiss" else range(8)


def small(folder: Path) -> tuple[Any, str, Path]:
    vectors = np.random.default_rng(1).standard_normal((50, 4)).astype(np.float32)
    path = write_set(folder / "set", vectors)
    app = create_app(settings(folder / "home"))
    app.state.scheduler.start = lambda: None
    return app, add_set(app.state.store, path), path / "vectors.npy"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EINVAL, errno.EAGAIN])
def test_where_the_system_gives_no_lease_the_stamps_tell(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another owner, on another file system, or open for writing before the server was there."""

    def refused(_: int, command: int, _argument: int = 0) -> None:
        if command == fcntl.F_SETLEASE:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "fcntl", refused)
    app, ref, file = small(tmp_path)
    whole = file.read_bytes()
    with TestClient(app) as client:
        for _ in range(2):
            assert client.get(f"/v1/embeddings/{ref}/vectors/3").status_code == 200
            _, embeddings = app.state.embeddings.get(ref)
            embeddings.check_unchanged()
            flipped(file, whole)
            with pytest.raises(ArtifactError, match="written to while it was read"):
                embeddings.check_unchanged()
            assert client.get(f"/v1/embeddings/{ref}/vectors/3").status_code == 409
            file.write_bytes(whole)


def test_a_lease_spares_the_second_look_and_is_let_go_of_for_a_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, ref, file = small(tmp_path)
    whole = file.read_bytes()
    with TestClient(app):
        _, embeddings = app.state.embeddings.get(ref)
        with monkeypatch.context() as without:
            without.setattr("service.verified.stamps", None)
            embeddings.check_unchanged()
        writer = threading.Thread(target=flipped, args=(file, whole))
        writer.start()
        # A reader that takes its time: it holds the set, and the file stays as it is.
        vectors = embeddings.vectors
        time.sleep(0.5)
        assert writer.is_alive()
        assert not embeddings.is_as_opened
        embeddings.check_unchanged()
        with pytest.raises(ArtifactError, match="is being written to"):
            app.state.embeddings.get(ref)
        assert file.read_bytes() == whole
        del embeddings, vectors
        writer.join(timeout=HELD_UP_S)
        assert not writer.is_alive()
        with pytest.raises(ArtifactError, match="content changed"):
            app.state.embeddings.get(ref)


def test_an_error_that_keeps_its_frames_keeps_no_writer(tmp_path: Path) -> None:
    app, ref, file = small(tmp_path)
    with TestClient(app):
        cycle: list[Any] = [app.state.embeddings.get(ref)]
        cycle.append(cycle)
        del cycle
        gc.disable()
        try:
            began = time.monotonic()
            flipped(file, file.read_bytes())
            assert time.monotonic() - began < HELD_UP_S
        finally:
            gc.enable()


@pytest.mark.parametrize("leased", [False, True])
def test_an_export_breaks_off_before_the_chunk_that_would_be_wrong(tmp_path: Path, leased: bool) -> None:
    """Its reader may take all day; whoever writes does not wait for it."""
    app, ref, file = small(tmp_path)
    with TestClient(app) if leased else contextlib.nullcontext():
        identity, embeddings = app.state.embeddings.get(ref)
        lines = FORMATS["application/x-ndjson"](embeddings, page_of(identity, embeddings.nodes, "0/1", None, None))
        assert len(list(lines)) == 1
        lines = FORMATS["application/x-ndjson"](embeddings, page_of(identity, embeddings.nodes, "0/1", None, None))
        writer = threading.Thread(target=flipped, args=(file, file.read_bytes()))
        writer.start()
        while embeddings.is_as_opened:
            time.sleep(0.02)
        with pytest.raises(ArtifactError, match="written to while it was read"):
            next(lines)
        del embeddings, lines
        writer.join(timeout=HELD_UP_S)
        assert not writer.is_alive()


def test_a_rename_and_a_removal_wait_for_nobody(tmp_path: Path) -> None:
    app, ref, file = small(tmp_path)
    with TestClient(app):
        _, embeddings = app.state.embeddings.get(ref)
        other = file.with_name("other")
        shutil.copyfile(file, other)
        began = time.monotonic()
        other.replace(file)
        file.unlink()
        assert time.monotonic() - began < 1
        assert not embeddings.is_as_opened


def test_nobody_waits_for_a_reader_that_is_no_server(tmp_path: Path) -> None:
    app, _, file = small(tmp_path)
    embeddings = EmbeddingSet(file.parent, verified=app.state.verified)
    flipped(file, file.read_bytes())
    with pytest.raises(ArtifactError, match="written to while it was read"):
        embeddings.check_unchanged()
    app.state.store.close()


def test_nobody_waits_for_a_set_that_is_no_longer_open_or_a_server_that_has_stopped(tmp_path: Path) -> None:
    app, ref, file = small(tmp_path)

    def held() -> bool:
        return any(os.path.realpath(open_one) == str(file.resolve()) for open_one in Path("/proc/self/fd").iterdir())

    with TestClient(app):
        app.state.embeddings.get(ref)
        assert held()
        app.state.embeddings.forget(ref)
        assert not held()
        app.state.embeddings.get(ref)
        assert held()
    assert not held()
    assert not app.state.verified.leases.take([str(file)]).complete


def test_a_file_that_had_a_lease_is_not_served_while_somebody_has_it_open_for_writing(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x")
    leases = Leases()
    leases.given = True
    leases.take([str(file)]).end()
    with file.open("r+b"), pytest.raises(ArtifactError, match="is being written to"):
        leases.take([str(file)])
    again = leases.take([str(file)])
    assert again.complete
    again.end()


def test_a_file_that_was_open_for_writing_at_first_gets_its_lease_once_it_is_not(tmp_path: Path) -> None:
    """A server that was started beside a copy in place is not without leases for good."""
    app, ref, file = small(tmp_path)
    with TestClient(app):
        with file.open("r+b"):
            _, embeddings = app.state.embeddings.get(ref)
            embeddings.is_wanted()
            assert not embeddings._lease.complete
            assert embeddings.is_as_opened
        embeddings.is_wanted()
        assert embeddings._lease.complete
        assert app.state.embeddings.get(ref)[1] is embeddings
