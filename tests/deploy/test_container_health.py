"""The containers' health check: 0 for a good answer of the very server, else 1 and why."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from service.health import main


class _Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response({"/ready": 200, "/begun": 202}.get(self.path, 503))
        self.end_headers()
        self.wfile.write(b"the store is away" if self.path == "/broken" else b"")

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_by_the_answers_status(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert main([f"{address}/ready"]) == 0
    assert capsys.readouterr().out == ""
    assert main([f"{address}/broken"]) == 1
    assert "answers 503: the store is away" in capsys.readouterr().out
    assert main([f"{address}/begun"]) == 1
    assert main(["http://127.0.0.1:1/ready"]) == 1
    assert "does not answer" in capsys.readouterr().out
