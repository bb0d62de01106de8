"""The report of evaluate over HTTP and through the client: whole, absent, damaged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from embedding_fixtures import add_set, settings, write_set
from fastapi.testclient import TestClient

from service.api.app import create_app
from service.client import Client


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_set(tmp_path / "embeddings" / "set", np.eye(3, dtype=np.float32))


def test_it_comes_whole_and_what_is_no_number_as_null(tmp_path: Path, path: Path) -> None:
    report = {"collapse": {"dim": 3}, "losses": [{"epoch": 1, "loss": float("nan")}], "notes": ["ä"]}
    with TestClient(create_app(settings(tmp_path))) as client:
        identity = add_set(client.app.state.store, path)  # type: ignore[attr-defined]
        url = f"/v1/embeddings/{identity}/report"
        absent = client.get(url)
        assert (absent.status_code, "rgrl evaluate" in absent.json()["remedy"]) == (404, True)
        (path / "report.json").write_text(json.dumps(report))
        expected = report | {"losses": [{"epoch": 1, "loss": None}]}
        assert client.get(url).json() == expected
        with Client("http://testserver") as ours:
            ours._transport.request = client.request  # type: ignore[method-assign,assignment]
            assert ours.report(identity) == expected


@pytest.mark.parametrize(
    "content", [b"", b"[1]", b"{", b"\xff", b"[" * 100_000, b'{"a": ["\\ud800"]}', b'{"\\udfff": 1}']
)
def test_a_damaged_one_is_a_conflict_with_its_remedy(tmp_path: Path, path: Path, content: bytes) -> None:
    with TestClient(create_app(settings(tmp_path)), raise_server_exceptions=False) as client:
        identity = add_set(client.app.state.store, path)  # type: ignore[attr-defined]
        (path / "report.json").write_bytes(content)
        answer = client.get(f"/v1/embeddings/{identity}/report")
        assert (answer.status_code, answer.json()["code"]) == (409, "artifact_invalid")
        assert "rgrl evaluate" in answer.json()["remedy"]
