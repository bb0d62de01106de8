"""The page: served whole, from this host alone, and nothing else of the disk with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from embedding_fixtures import settings
from fastapi.testclient import TestClient

from service.api.app import create_app
from service.api.routes import page
from service.api.routes.page import FOLDER

SOURCES = Path(__file__).parents[2] / "service" / "page"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with TestClient(create_app(settings(tmp_path_factory.mktemp("page")))) as client:
        yield client


TYPES = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".html": "text/html",
    ".woff2": "font/woff2",
    ".txt": "text/plain",
}


def test_every_file_is_served_under_a_strict_policy(client: TestClient) -> None:
    front = client.get("/")
    asked = set(re.findall(r'(?:src|href)="(/page/[^"]+)"', front.text))
    assert {Path(path).suffix for path in asked} == {".css", ".js"}
    files = {f"/page/{path.name}" for path in FOLDER.iterdir()}
    assert asked < files
    for path in ["/", *files]:
        answer = client.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"].split(";")[0] == TYPES[Path(path).suffix or ".html"]
        policy = answer.headers["content-security-policy"].split("; ")
        assert "default-src 'self'" in policy
        assert "unsafe" not in answer.headers["content-security-policy"]
        lasting = "immutable" in answer.headers["cache-control"]
        marked = bool(re.search(r"-[\w-]{8}\.\w+$", path)) and path != "/page/third-party-licenses.txt"
        assert lasting == marked, path


def test_no_other_host_and_no_markup_from_data() -> None:
    sources = [path for path in (SOURCES / "src").rglob("*") if path.suffix in {".ts", ".tsx", ".css"}]
    assert sources
    for path in [SOURCES / "index.html", *sources]:
        text = path.read_text(encoding="utf-8")
        assert re.findall(r"(?:https?:)?//[\w-]+\.[\w.-]+[^\s\"']*", text) == [], path
        assert re.findall(r"innerHTML|insertAdjacentHTML|document\.write|eval\(", text) == [], path


def test_a_server_without_the_page_says_how_to_come_by_it(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(page, "FOLDER", tmp_path / "none")
    answer = client.get("/")
    assert answer.status_code == 404
    assert "make page" in answer.json()["remedy"]
    assert client.get("/v1/graphs").status_code == 200


@pytest.mark.parametrize("path", ["/page/..%2Fapp.py", "/page/nothing.js", "/page/%2Fetc%2Fpasswd"])
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_the_page_needs_no_key_and_holds_no_data(client: TestClient) -> None:
    client.app.state.store.create_key("someone", ["read"])
    assert client.get("/v1/graphs").status_code == 401
    assert client.get("/").status_code == 200
    assert Path(FOLDER / "index.html").read_text(encoding="utf-8") == client.get("/").text
