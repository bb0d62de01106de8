"""What holds for every route: errors, limits, ids, keys, figures, and the OpenAPI document."""

from __future__ import annotations

import errno
import io
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
import structlog
from fastapi import FastAPI
from fastapi.testclient import TestClient
from service_harness import READY, running_app, settings_in

from preprocessing.errors import InputError, RgrlError, UsageError
from service.api.app import create_app
from service.logs import add_request_id, configure_logging
from service.settings import ServiceSettings
from service.store import Store
from trainer.settings import PRESETS


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with running_app(settings_in(tmp_path_factory.mktemp("app"), max_body_bytes=2000)) as client:
        app: FastAPI = client.app  # type: ignore[assignment]

        @app.get("/broken")
        async def broken() -> None:
            raise ZeroDivisionError("secret")

        @app.get("/domain")
        async def domain() -> None:
            raise InputError("a bad row", given="secret", expected="a good one", remedy="mend it", pointer="/rows/3")

        @app.get("/unknown-domain")
        async def unknown() -> None:
            raise RgrlError("something")

        @app.get("/locked")
        def locked() -> None:
            with app.state.store.reading() as connection:
                connection.exec_driver_sql("SELECT * FROM nowhere")

        @app.get("/refused/{number}")
        def refused(number: int) -> None:
            raise OSError(number, "secret", "/secret")

        yield client


def problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = dict(answer.json())
    assert (body["status"], body["code"], body["type"]) == (status, code, "about:blank")
    assert body["request_id"] == answer.headers["x-request-id"]
    return body


def test_a_failure_nobody_foresaw_tells_nothing(client: TestClient) -> None:
    answer = client.get("/broken")
    problem(answer, 500, "internal")
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    problem(client.get("/unknown-domain"), 500, "internal")


def test_a_domain_error_says_what_to_do_but_not_what_was_given(client: TestClient) -> None:
    answer = client.get("/domain")
    body = problem(answer, 422, "input_invalid")
    assert (body["detail"], body["remedy"]) == ("a bad row; expected: a good one", "mend it")
    assert body["errors"] == [{"pointer": "/rows/3", "code": "input_invalid", "detail": "a bad row"}]
    assert "secret" not in answer.text


def test_a_store_that_does_not_answer(client: TestClient) -> None:
    answer = client.get("/locked")
    assert problem(answer, 503, "unavailable")["retryable"]
    assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_and_may_pass(client: TestClient, number: int) -> None:
    answer = client.get(f"/refused/{number}")
    body = problem(answer, 503, "unavailable")
    assert (body["detail"], body["retryable"], "free space" in body["remedy"]) == ("the disk is full", True, True)
    assert "secret" not in answer.text


def test_what_else_the_system_refuses_is_unforeseen(client: TestClient) -> None:
    assert not problem(client.get(f"/refused/{errno.EACCES}"), 500, "internal")["retryable"]


def test_the_routers_own_answers(client: TestClient) -> None:
    problem(client.get("/nowhere"), 404, "not_found")
    answer = client.put("/v1/jobs")
    problem(answer, 405, "method_not_allowed")
    assert "GET" in answer.headers["allow"] or "POST" in answer.headers["allow"]


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("{", 422),
        ("", 422),
        ("[]", 422),
        ("NaN", 422),
        ('{"kind": "train", "graph": "g", "train": {"optimizer": {"lr": NaN}}}', 422),
        ('{"kind": "train", "graph": "g", "train": {"optimizer": {"lr": 1e999}}}', 422),
        ('{"kind": "train", "graph": "\\ud800"}', 422),
        ('{"kind": "train", "graph": "\\u0000"}', 422),
        ('{"kind": "ingest", "graph": "g", "labels": {"a": "\\udfff"}}', 422),
        ("[" * 900 + "]" * 900, 422),
        ('{"kind": "train", "graph": ' + "9" * 1500 + "}", 422),
        ('{"kind": "train", "graph": 7}', 422),
    ],
)
def test_bodies_that_are_none(client: TestClient, text: str, status: int) -> None:
    answer = client.post("/v1/jobs", content=text, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_body_no_parser_takes_says_what_would_do(client: TestClient) -> None:
    answer = client.post("/v1/jobs", content="[" * 1999, headers={"Content-Type": "application/json"})
    problem(answer, 400, "bad_request")
    assert "valid JSON" in answer.json()["remedy"]


def test_no_value_is_sent_back(client: TestClient) -> None:
    body = {"kind": "train", "graph": {"secret-1": 1}, "train": {"run": {"epochs": "secret-2"}}, "labels": {"a": 77777}}
    answer = client.post("/v1/jobs", json=body)
    assert {error["pointer"] for error in answer.json()["errors"]} == {"/graph", "/train/run/epochs", "/labels/a"}
    assert "secret" not in answer.text
    assert "77777" not in answer.text


def test_a_body_past_the_limit(client: TestClient) -> None:
    body = b'{"kind": "' + b"x" * 3000 + b'"}'
    headers = {"Content-Type": "application/json"}
    declared = client.post("/v1/jobs", content=body, headers=headers)
    assert "2000 bytes" in problem(declared, 413, "body_too_large")["detail"]

    def chunks() -> Iterator[bytes]:
        for start in range(0, len(body), 500):
            yield body[start : start + 500]

    streamed = client.post("/v1/jobs", content=chunks(), headers=headers)
    assert "content-length" not in streamed.request.headers
    problem(streamed, 413, "body_too_large")
    fits = client.post("/v1/jobs", content=b" " * 1900 + b"{}", headers=headers)
    assert fits.status_code == 422


def test_request_ids(client: TestClient) -> None:
    assert client.get("/livez", headers={"X-Request-ID": "mine-1"}).headers["x-request-id"] == "mine-1"
    for bad in ("a b", "x" * 65, "", "<script>"):
        assert client.get("/livez", headers={"X-Request-ID": bad}).headers["x-request-id"] != bad
    first, second = (client.get("/livez").headers["x-request-id"] for _ in range(2))
    assert first != second


def test_figures_are_by_template(client: TestClient) -> None:
    client.get("/v1/jobs/job_secret")
    client.get("/secret")
    text = client.get("/metrics").text
    assert 'rgrl_http_requests_total{method="GET",route="/v1/jobs/{id}",status="404"}' in text
    assert 'route="(none)",status="404"' in text
    assert "secret" not in text
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert {name for name in names if not name.startswith("rgrl_")} <= {"python_info"}


LOGGED = [add_request_id, structlog.processors.format_exc_info]


@contextmanager
def all_logs() -> Iterator[list[Any]]:
    quiet = structlog.get_config()["wrapper_class"]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    try:
        with structlog.testing.capture_logs(LOGGED) as lines:
            yield lines
    finally:
        structlog.configure(wrapper_class=quiet)


@pytest.mark.parametrize(
    ("path", "cause"), [("/locked", "nowhere"), ("/unknown-domain", "something"), ("/broken", "secret")]
)
def test_the_log_says_why_a_request_failed(client: TestClient, path: str, cause: str) -> None:
    with all_logs() as lines:
        client.get(path, headers={"X-Request-ID": "r1"})
    (line,) = [line for line in lines if line["log_level"] == "error"]
    assert line["request_id"] == "r1"
    assert cause in (line.get("cause") or line["exception"])


def test_one_log_line_a_request(client: TestClient) -> None:
    with all_logs() as lines:
        client.get("/v1/jobs/job_x", headers={"X-Request-ID": "r1"})
    (line,) = [line for line in lines if line["event"] == "answered"]
    assert (line["method"], line["route"], line["status"]) == ("GET", "/v1/jobs/{id}", 404)
    assert line["ms"] > 0


def test_probes_and_info(client: TestClient) -> None:
    assert client.get("/livez").json() == {"status": "ok"}
    assert client.get("/readyz").json() == READY
    info = client.get("/v1/info").json()
    assert info["limits"]["max_body_bytes"] == 2000
    assert info["machine"]["cores"] >= 1
    assert "numba" in info["samplers"]
    assert info["presets"]["computers"] == {"epochs": 15_000}
    assert list(info["presets"]) == list(PRESETS)


def test_without_its_scheduler_a_server_is_degraded_not_down(tmp_path: Path) -> None:
    app = create_app(settings_in(tmp_path))
    client = TestClient(app)
    assert client.get("/readyz").json() == READY | {
        "status": "degraded",
        "scheduler": False,
        "causes": ["scheduler: it does not run"],
    }
    assert client.get("/readyz").status_code == 200
    app.state.store.close()


def test_keys_and_scopes(tmp_path: Path) -> None:
    with running_app(settings_in(tmp_path)) as client:
        store = client.app.state.store  # type: ignore[attr-defined]
        assert client.get("/v1/jobs").status_code == 200
        keys = {scope: store.create_key(scope, [scope]) for scope in ("read", "write", "admin")}

        def status(method: str, path: str, scope: str) -> int:
            return client.request(method, path, headers={"Authorization": f"Bearer {keys[scope][1]}"}).status_code

        answer = client.get("/v1/jobs")
        problem(answer, 401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
        for wrong in ("Bearer rgrl_wrong", "Bearer", f"Basic {keys['read'][1]}", f"Bearer {keys['read'][1]}x"):
            assert client.get("/v1/jobs", headers={"Authorization": wrong}).status_code == 401
        assert [status("GET", "/v1/jobs", scope) for scope in keys] == [200, 200, 200]
        assert [status("DELETE", "/v1/jobs/none", scope) for scope in keys] == [403, 404, 404]
        assert [client.get(path).status_code for path in ("/livez", "/readyz", "/metrics")] == [200, 200, 200]
        store.revoke_key(keys["read"][0].id)
        assert status("GET", "/v1/jobs", "read") == 401
        assert status("GET", "/v1/jobs", "write") == 200


def test_a_key_of_any_scope_is_told_what_it_may_do(tmp_path: Path) -> None:
    with running_app(settings_in(tmp_path)) as client:
        every = ["read", "write", "admin"]
        assert client.get("/v1/key").json() == {"id": None, "name": None, "scopes": every}
        store = client.app.state.store  # type: ignore[attr-defined]
        made = {name: store.create_key(name, [name]) for name in every}
        made["both"] = store.create_key("both", ["write", "read"])
        for name, scopes in {"read": every[:1], "write": every[:2], "admin": every, "both": every[:2]}.items():
            key, token = made[name]
            answer = client.get("/v1/key", headers={"Authorization": f"Bearer {token}"})
            assert answer.json() == {"id": key.id, "name": name, "scopes": scopes}
        problem(client.get("/v1/key"), 401, "unauthorized")


def test_keys_over_http(tmp_path: Path) -> None:
    with running_app(settings_in(tmp_path)) as client:
        made = client.post("/v1/keys", json={"name": "root", "scopes": ["admin"]})
        assert made.status_code == 201
        root = {"Authorization": f"Bearer {made.json()['token']}"}
        assert client.get("/v1/keys").status_code == 401
        reader = client.post("/v1/keys", json={"name": "r", "scopes": ["read", "write"]}, headers=root).json()
        listed = client.get("/v1/keys", headers=root)
        assert [key["name"] for key in listed.json()["items"]] == ["root", "r"]
        assert "token" not in listed.text
        assert "hash" not in listed.text
        weak = {"Authorization": f"Bearer {reader['token']}"}
        assert client.get("/v1/jobs", headers=weak).status_code == 200
        assert client.get("/v1/keys", headers=weak).status_code == 403
        assert client.delete(f"/v1/keys/{made.json()['id']}", headers=weak).status_code == 403
        assert client.delete(f"/v1/keys/{reader['id']}", headers=root).status_code == 204
        assert client.delete(f"/v1/keys/{reader['id']}", headers=root).status_code == 404
        for bad in ({"name": "x", "scopes": []}, {"name": "x", "scopes": ["king"]}, {"scopes": ["read"]}):
            assert client.post("/v1/keys", json=bad, headers=root).status_code == 422


def test_revoking_the_last_key_shuts_an_exposed_server(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    store = Store(settings)
    key, token = store.create_key("only", ["admin"])
    store.close()
    with running_app(settings.model_copy(update={"host": "0.0.0.0"})) as client:
        headers = {"Authorization": f"Bearer {token}"}
        assert client.get("/v1/jobs", headers=headers).status_code == 200
        assert client.delete(f"/v1/keys/{key.id}", headers=headers).status_code == 204
        assert client.get("/v1/jobs", headers=headers).status_code == 401
        assert client.get("/v1/jobs").status_code == 401


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.org"])
def test_other_addresses_need_a_key_or_a_word(tmp_path: Path, host: str) -> None:
    with pytest.raises(UsageError, match="without an API key"):
        create_app(settings_in(tmp_path, host=host))
    for settings in (settings_in(tmp_path, host=host, insecure=True), settings_in(tmp_path, host="::1")):
        create_app(settings).state.store.close()
    app = create_app(settings_in(tmp_path))
    app.state.store.create_key("ci", ["read"])
    app.state.store.close()
    create_app(settings_in(tmp_path, host=host)).state.store.close()


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RGRL_HOME", "~/somewhere")
    monkeypatch.setenv("RGRL_DATA_ROOTS", f"{tmp_path}:{tmp_path / 'x' / '..' / 'y'}")
    monkeypatch.setenv("RGRL_MAX_RUNNING", "3")
    settings = ServiceSettings()
    assert settings.home == Path.home() / "somewhere"
    assert settings.data_roots == [tmp_path, tmp_path / "y"]
    assert settings.max_running == 3


@pytest.fixture
def restored_logs() -> Iterator[None]:
    """What a test configures of logs is taken back after it."""
    before = structlog.get_config(), logging.getLogger().handlers[:], logging.getLogger().level
    yield
    structlog.configure(**before[0])
    logging.getLogger().handlers[:] = before[1]
    logging.getLogger().setLevel(before[2])
    logging.getLogger("uvicorn.access").disabled = False


def test_logs_are_json_lines_where_no_one_watches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], restored_logs: None
) -> None:
    """And what alembic tells of every start is none of them."""
    configure_logging("warning")
    structlog.get_logger("test").warning("watch out", job="job_1")
    logging.getLogger("a.library").error("theirs")
    logging.getLogger("a.library").info("not shown")
    configure_logging("info")
    Store(settings_in(tmp_path)).close()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["event"], line["level"]) for line in lines] == [("watch out", "warning"), ("theirs", "error")]
    assert lines[0]["job"] == "job_1"


@pytest.mark.parametrize(
    ("terminal", "form", "no_color", "said"),
    [
        (True, "auto", "", "\x1b["),
        (True, "auto", "1", "watch out"),
        (True, "json", "", '"event":"watch out"'),
        (False, "auto", "", '"event":"watch out"'),
        (False, "text", "", "watch out"),
    ],
)
def test_logs_are_for_who_reads_them(
    terminal: bool,
    form: Literal["auto", "text", "json"],
    no_color: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    restored_logs: None,
) -> None:
    """Text on a terminal, with colours unless NO_COLOR is set; JSON elsewhere; or what the setting says."""
    written = io.StringIO()
    monkeypatch.setattr(written, "isatty", lambda: terminal)
    monkeypatch.setattr("sys.stderr", written)
    monkeypatch.setenv("NO_COLOR", no_color)
    configure_logging("info", form)
    structlog.get_logger("test").warning("watch out", job="job_1")
    logging.getLogger("a.library").error("theirs")
    lines = written.getvalue().splitlines()
    assert len(lines) == 2
    assert said in lines[0]
    text = re.sub(r"\x1b\[\d*m", "", lines[0])
    if said.startswith('"'):
        assert json.loads(text)["job"] == "job_1"
    else:
        assert re.fullmatch(r"\d\d:\d\d:\d\d \[warning  ] watch out +job=job_1", text)
        assert ("\x1b" in written.getvalue()) == (said == "\x1b[")


@pytest.mark.parametrize("fault", [BrokenPipeError, OSError, ValueError])
def test_a_log_that_cannot_be_written_fails_no_request(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, fault: type[Exception], restored_logs: None
) -> None:
    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise fault("no one reads this")

    with monkeypatch.context() as patched:
        configure_logging("info")
        patched.setattr("sys.stderr", Gone())
        assert client.get("/livez").status_code == 200
        assert client.get("/v1/nothing").status_code == 404
