"""What an attacker would try: secrets in files, paths swapped after their check, pickles, slow and many bodies."""

from __future__ import annotations

import ast
import hmac
import os
import pickle
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from embedding_fixtures import add_set, write_bundle, write_set
from fastapi.testclient import TestClient
from service_harness import Server, running_app, settings_in, tiny_bundle, wait_for

from service.api import auth
from service.errors import ForbiddenError
from service.jobs.plan import plan_job
from service.store import Store
from service.store.keys import hash_token

PACKAGES = ("preprocessing", "trainer", "service")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    limits = {"max_body_bytes": 2000, "max_bodies_bytes": 3000, "body_timeout_s": 2.0}
    with Server(settings_in(tmp_path_factory.mktemp("security"), log_level="debug", **limits)) as server:
        yield server


def files_with(folder: Path, secret: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


def test_no_key_is_in_a_file_or_a_log(tmp_path: Path) -> None:
    """Made over HTTP, used, refused and revoked, on a server that logs all it can."""
    with Server(settings_in(tmp_path, log_level="debug")) as server:
        made = server.client.post("/v1/keys", json={"name": "root", "scopes": ["admin"]}).json()
        token, headers = made["token"], {"Authorization": f"Bearer {made['token']}"}
        assert server.client.get("/v1/jobs").status_code == 401
        misplaced = server.client.get("/v1/jobs?token=" + token, headers=headers)
        assert misplaced.status_code == 422
        assert token not in misplaced.text
        assert server.client.get("/v1/jobs", headers={"Authorization": "Bearer wrong-7c2"}).status_code == 401
        assert server.client.post("/v1/keys", content=token, headers=headers).status_code == 422
        assert token not in server.client.get("/v1/keys", headers=headers).text
        assert token not in server.client.get("/metrics").text
        assert server.client.delete(f"/v1/keys/{made['id']}", headers=headers).status_code == 204
    assert "answered" in (tmp_path / "server.log").read_text()
    assert files_with(tmp_path, token) == []
    assert files_with(tmp_path, "wrong-7c2") == []
    assert files_with(tmp_path / "home", hash_token(token)), "it is kept as a hash"


@pytest.mark.parametrize(
    "url", ["postgresql://u:secret-81@127.0.0.1:1/x", "postgresql//u:secret-81@h/x", "nope://u:secret-81@h/x"]
)
def test_a_database_password_is_not_told(tmp_path: Path, url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "service.cli", "serve", "--home", str(tmp_path / "home")],
        env=os.environ | {"RGRL_DATABASE_URL": url, "RGRL_LOG_LEVEL": "debug"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "secret-81" not in done.stdout + done.stderr
    assert files_with(tmp_path, "secret-81") == []


def test_no_key_and_a_wrong_key_are_told_apart_and_nothing_more(tmp_path: Path) -> None:
    with running_app(settings_in(tmp_path)) as client:
        store: Store = client.app.state.store  # type: ignore[attr-defined]
        _, token = store.create_key("mine", ["read"])
        revoked, old = store.create_key("old", ["read"])
        store.revoke_key(revoked.id)

        def told(header: str | None) -> str:
            answer = client.get("/v1/jobs", headers={} if header is None else {"Authorization": header})
            problem = answer.json()
            assert (answer.status_code, problem["code"]) == (401, "unauthorized")
            return str({name: problem[name] for name in ("detail", "remedy", "errors")})

        nothing = {told(header) for header in (None, "Bearer ", f"Basic {token}")}
        wrong = {told(f"Bearer {key}") for key in ("guess", old, token[:-1], token + "x")}
        assert (len(nothing), len(wrong), nothing & wrong) == (1, 1, set())
        assert "no API key was sent" in nothing.pop()
        assert "does not know" in wrong.pop()


def test_every_key_is_compared_in_constant_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, str]] = []
    really = hmac.compare_digest

    def compare(one: str, other: str) -> bool:
        compared.append((one, other))
        return really(one, other)

    with running_app(settings_in(tmp_path)) as client:
        store: Store = client.app.state.store  # type: ignore[attr-defined]
        keys = [store.create_key(str(number), ["read"]) for number in range(3)]
        assert client.get("/v1/jobs").status_code == 401
        monkeypatch.setattr(auth.hmac, "compare_digest", compare)
        for token in (keys[0][1], keys[2][1], "none of them"):
            compared.clear()
            client.get("/v1/jobs", headers={"Authorization": f"Bearer {token}"})
            all_of_them = [(key.hash, hash_token(token)) for key, _ in keys]
            # An unknown one also with the keys as they are by now.
            assert compared in (all_of_them, 2 * all_of_them), "not only up to the first that fits"


def test_a_path_that_became_a_link_is_not_read(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    (tmp_path / "outside").mkdir()
    for folder in ("data", "outside"):
        (tmp_path / folder / "e.csv").write_text("source,target\n1,2\n")
    with running_app(settings) as client:
        store: Store = client.app.state.store  # type: ignore[attr-defined]
        source = {"kind": "tables", "edges": "e.csv"}
        graph = client.post("/v1/graphs", json={"source": source}).json()["id"]
        job = client.post("/v1/jobs", json={"kind": "ingest", "graph": graph}).json()["id"]
        assert plan_job(store.job(job), store, settings)[0].spec["settings"]["source"]["edges"].endswith("data/e.csv")
        (tmp_path / "data" / "e.csv").unlink()
        (tmp_path / "data" / "e.csv").symlink_to(tmp_path / "outside" / "e.csv")
        with pytest.raises(ForbiddenError):
            plan_job(store.job(job), store, settings)
        (tmp_path / "data" / "e.csv").unlink()
        (tmp_path / "data" / "other.csv").touch()
        (tmp_path / "data" / "e.csv").symlink_to("other.csv")
        with pytest.raises(ForbiddenError, match="elsewhere"):
            plan_job(store.job(job), store, settings)


class Trap:
    """Unpickled, it makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.folder,)


def test_the_trap_works(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([Trap(tmp_path / "sprung")], dtype=object))
    np.load(tmp_path / "a.npy", allow_pickle=True)
    assert (tmp_path / "sprung").is_dir()


@contextmanager
def trapped(path: Path, sprung: Path, *, plain: bool) -> Iterator[None]:
    """``path`` holds the trap while inside, as an array of objects or as a plain pickle."""
    kept = path.with_name(path.name + ".kept")
    shutil.move(path, kept)
    if plain:
        path.write_bytes(pickle.dumps(Trap(sprung)))
    else:
        with path.open("wb") as file:
            np.save(file, np.array([Trap(sprung)] * 3, dtype=object))
    yield
    path.unlink()
    shutil.move(kept, path)


def test_nothing_that_is_served_is_unpickled(tmp_path: Path) -> None:
    """Every file of a bundle and of an embedding set, one after the other, is a pickle for once."""
    sprung = tmp_path / "sprung"
    vectors = np.random.default_rng(1).standard_normal((40, 4)).astype(np.float32)
    tried = 0
    with running_app(settings_in(tmp_path)) as client:
        bundle, ring, path = tmp_path / "data" / "bundle", tmp_path / "ring", tmp_path / "set"
        tiny_bundle(bundle)
        content = write_bundle(ring, 40, [(0, 1)])
        write_set(path, vectors, content=content)
        places = [file for folder in (bundle, ring, path) for file in sorted(folder.rglob("*")) if file.is_file()]
        for file in places:
            for plain in (False, True):
                with trapped(file, sprung, plain=plain):
                    statuses = asked(client, bundle, path, ring)
                assert not sprung.exists(), file
                assert 500 not in statuses, (file, statuses)
                tried += any(status >= 400 for status in statuses)
    assert tried >= 2 * 6, "what is not even opened tests nothing"


def asked(client: TestClient, bundle: Path, path: Path, ring: Path) -> list[int]:
    """Everything that reads the three artefacts, with nothing held open from before."""
    from service.graphs import open_bundles

    open_bundles._open.cache_clear()
    store: Store = client.app.state.store  # type: ignore[attr-defined]
    answers = [client.post("/v1/graphs", json={"bundle": str(bundle)})]
    if answers[0].status_code == 201:
        answers += [client.get(f"/v1/graphs/{answers[0].json()['id']}/{part}") for part in ("nodes/10", "degrees")]
    try:
        ref = add_set(store, path, ring)
    except ValueError:
        # The fixture reads the vectors itself, and refuses pickles.
        return [409]
    body = {"queries": [{"id": 1}], "k": 2, "exclude": {"connected": True}}
    answers.append(client.post(f"/v1/embeddings/{ref}/lookup", json={"ids": [1]}))
    answers.append(client.post(f"/v1/embeddings/{ref}/neighbors", json=body))
    return [answer.status_code for answer in answers]


def test_no_code_unpickles() -> None:
    """No pickle-like module is imported, and every np.load says that it takes no pickles."""
    forbidden = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
    loads = 0
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Import):
                    assert not forbidden & {alias.name.partition(".")[0] for alias in node.names}, file
                elif isinstance(node, ast.ImportFrom):
                    assert (node.module or "").partition(".")[0] not in forbidden, file
                elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("np.load", "numpy.load"):
                    loads += 1
                    told = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                    assert told.get("allow_pickle") == "False", (file, node.lineno)
                elif isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
                    told = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                    assert told.get("weights_only") == "True", (file, node.lineno)
    assert loads > 5


def head(length: int | None) -> bytes:
    size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    lines = ("POST /v1/jobs HTTP/1.1", "Host: x", "Content-Type: application/json", size, "", "")
    return "\r\n".join(lines).encode()


@contextmanager
def connection(server: Server) -> Iterator[socket.socket]:
    url = server.client.base_url
    with socket.create_connection((url.host, url.port), timeout=30) as made:
        yield made


def answer_of(made: socket.socket) -> str:
    data = b""
    while part := made.recv(65536):
        data += part
    return data.decode()


@pytest.mark.parametrize("sent", [b"", b'{"kind": '])
def test_a_body_that_does_not_come_ends_the_request(server: Server, sent: bytes) -> None:
    with connection(server) as made:
        made.sendall(head(1000) + sent)
        answer = answer_of(made)
    assert answer.startswith("HTTP/1.1 408 ")
    assert "application/problem+json" in answer
    assert "body_timeout_s" in answer


def test_a_body_that_trickles_ends_too(server: Server) -> None:
    """Every piece comes in time, the whole does not."""
    with connection(server) as made:
        made.sendall(head(None))

        def trickle() -> None:
            for _ in range(100):
                try:
                    made.sendall(b"1\r\n \r\n")
                except OSError:
                    return
                time.sleep(0.1)

        thread = threading.Thread(target=trickle)
        thread.start()
        answer = made.recv(65536).decode()
        made.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert answer.startswith("HTTP/1.1 408 ")


def test_chunks_without_a_length_are_counted(server: Server) -> None:
    with connection(server) as made:
        made.sendall(head(None))
        for _ in range(5):
            made.sendall(b"1f4\r\n" + b" " * 500 + b"\r\n")
        answer = answer_of(made)
    assert answer.startswith("HTTP/1.1 413 ")
    assert "max_body_bytes" in answer


def test_bodies_together_are_bounded(server: Server) -> None:
    body = b" " * 1800 + b"{}"
    headers = {"Content-Type": "application/json"}

    def refused() -> Any:
        """While another body is held, for as long as it may take to arrive: a busy machine may need another try."""
        with connection(server) as holding:
            holding.sendall(head(1900) + b" " * 1800)
            answer = server.client.post("/v1/jobs", content=body, headers=headers)
            alone = server.client.get("/v1/jobs")
            answer_of(holding)
        return (answer, alone) if answer.status_code == 429 else None

    answer, alone = wait_for(refused, "for a body beside another to be refused")
    assert (answer.json()["code"], answer.json()["retryable"]) == ("busy", True)
    assert "max_bodies_bytes" in answer.json()["detail"]
    assert answer.headers["retry-after"] == "5"
    assert alone.status_code == 200
    assert server.client.post("/v1/jobs", content=body, headers=headers).status_code == 422, "it is let go of"


@pytest.mark.parametrize("given", ["nowhere", "file"])
def test_a_data_root_that_is_no_folder_is_refused_before_anything_is_served(tmp_path: Path, given: str) -> None:
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "service.cli", "serve", "--home", str(tmp_path / "home")]
    done = subprocess.run(
        [*command, "--data-root", str(tmp_path / given)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert all(part in done.stderr for part in ("data root", str(tmp_path / given), "--data-root"))
    assert not (tmp_path / "home").exists()
