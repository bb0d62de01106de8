"""Ray's Jobs API as a small HTTP server that remembers what it was sent and fails as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Failure = Literal["lost answer", "lost request", "silence", "error", "no json"]
NODE = {"state": "ALIVE", "resources_total": {"CPU": 4.0, "GPU": 1.0, "memory": 1000.0}}


class FakeJobsApi:
    """``failure`` is how every request fails until it is None; ``token`` is asked for if set."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.submitted: list[dict[str, Any]] = []
        self.stopped: list[str] = []
        self.nodes: list[dict[str, Any]] = [NODE]
        self.failure: Failure | None = None
        self.token: str | None = None
        self.asked: list[str] = []
        self.released = threading.Event()
        self.address = ""

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, str]:
        """As Ray 2.60 does, also in its choice of status for a repeated submission."""
        where = path.split("?")[0].strip("/").split("/")
        match method, where:
            case "GET", ["api", "v0", "nodes"]:
                return 200, json.dumps({"result": True, "data": {"result": {"total": 1, "result": self.nodes}}})
            case "GET", ["api", "jobs"]:
                return 200, json.dumps(list(self.jobs.values()))
            case "POST", ["api", "jobs"]:
                document = json.loads(body)
                name = document["submission_id"]
                if name in self.jobs:
                    return 500, f"Traceback\nValueError: Job with submission_id {name} already exists.\n."
                if document.get("entrypoint_num_cpus") == 13:
                    return 400, "Traceback\nValueError: thirteen is refused"
                self.submitted.append(document)
                self.jobs[name] = {"submission_id": name, "status": "RUNNING", "metadata": document["metadata"]}
                return 200, json.dumps({"submission_id": name})
            case _, ["api", "jobs", name, *_rest] if name not in self.jobs:
                return 404, f"Job {name} does not exist"
            case "GET", ["api", "jobs", name]:
                return 200, json.dumps(self.jobs[name])
            case "POST", ["api", "jobs", name, "stop"]:
                ran = self.jobs[name]["status"] == "RUNNING"
                self.jobs[name]["status"] = "STOPPED" if ran else self.jobs[name]["status"]
                self.stopped.append(name)
                return 200, json.dumps({"stopped": ran})
        return 404, "no such route"


@contextmanager
def fake_jobs_api() -> Iterator[FakeJobsApi]:
    api = FakeJobsApi()

    class Handler(BaseHTTPRequestHandler):
        def handle_all(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            failure = api.failure
            api.asked.append(f"{self.command} {self.path}")
            if api.token is not None and self.headers.get("Authorization") != f"Bearer {api.token}":
                self.say(401, "Unauthorized")
                return
            if failure == "silence":
                api.released.wait(30)
            if failure in {"lost request", "silence"}:
                return
            status, text = api.answer(self.command, self.path, body)
            if failure == "error":
                status, text = 500, "Traceback\nRuntimeError: the GCS is gone"
            elif failure == "no json":
                status, text = 200, "<html>a proxy's page</html>"
            if failure != "lost answer":
                self.say(status, text)

        def say(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = handle_all

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    api.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        api.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
