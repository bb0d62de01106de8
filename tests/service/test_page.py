"""The page: served whole, from this host alone, and nothing else of the disk with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from embedding_fixtures import settings
from fastapi.testclient import TestClient

from service.api.app import create_app
from service.api.routes.page import FOLDER


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with TestClient(create_app(settings(tmp_path_factory.mktemp("page")))) as client:
        yield client


def test_every_file_the_page_asks_for_is_served(client: TestClient) -> None:
    front = client.get("/")
    assert front.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in front.headers["content-security-policy"]
    asked = set(re.findall(r'(?:src|href)="(/page/[^"]+)"', front.text))
    scripts = [path.read_text(encoding="utf-8") for path in FOLDER.glob("*.js")]
    asked |= {f"/page/{name}" for script in scripts for name in re.findall(r'from "\./([^"]+)"', script)}
    assert {f"/page/{path.name}" for path in FOLDER.iterdir()} == asked | {"/page/index.html"}
    for path in asked:
        answer = client.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"].split(";")[0] in {"text/css", "text/javascript", "application/javascript"}


def test_no_other_host_and_no_markup_from_data() -> None:
    for path in FOLDER.iterdir():
        text = path.read_text(encoding="utf-8")
        assert set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", text)) <= {"http://www.w3.org/2000/svg"}
        assert "innerHTML" not in text


def test_ids_that_scripts_use_are_in_the_page() -> None:
    page = (FOLDER / "index.html").read_text(encoding="utf-8")
    used = {
        name
        for path in FOLDER.glob("*.js")
        for name in re.findall(r'(?:getElementById|show)\("([^"]+)"', path.read_text(encoding="utf-8"))
    }
    assert used
    assert [name for name in used if f'id="{name}"' not in page] == []


@pytest.mark.parametrize("path", ["/page/..%2Fapp.py", "/page/nothing.js", "/page/%2Fetc%2Fpasswd"])
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_the_page_needs_no_key_and_holds_no_data(client: TestClient) -> None:
    client.app.state.store.create_key("someone", ["read"])
    assert client.get("/v1/graphs").status_code == 401
    assert client.get("/").status_code == 200
    assert Path(FOLDER / "index.html").read_text(encoding="utf-8") == client.get("/").text
