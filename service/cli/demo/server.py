"""A real server for as long as a demo lasts: a process of its own, which is ended with whatever job still runs."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
from rich.console import Console

from preprocessing.errors import RgrlError
from service.client import Client

__all__ = ["cancel_unfinished", "served"]

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
LOG_TAIL = 2000


@contextmanager
def served(options: list[str], log_path: Path, console: Console) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The real server, as a process of its own; ended, with whatever job still runs, when left."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-P", "-m", "service.cli", "serve", *options, "--port", str(port)]
    console.print(f"Starting the server at {url} (its log: {log_path})", soft_wrap=True)
    with log_path.open("wb") as log:
        # In a session of its own, so that Ctrl-C reaches this process alone, which then ends both in order.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        _wait_until_ready(process, url, log_path)
        yield process, url
    finally:
        if process.poll() is None:
            with suppress(RgrlError), Client(url) as client:
                cancel_unfinished(client)
            process.terminate()
            process.wait(STOP_TIMEOUT_S)


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log_path: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            if httpx2.get(f"{url}/readyz", trust_env=False).is_success:
                return
        except httpx2.TransportError:
            time.sleep(0.1)
    tail = log_path.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL:]
    raise RgrlError(
        "the demo's server did not start", given=tail.strip(), remedy="stop the server of an earlier demo, if one runs"
    )


def cancel_unfinished(client: Client) -> None:
    """End every unfinished job: jobs outlive their server by design, but not the demo's."""
    for status in ("queued", "running"):
        for job in client.jobs(status=status):
            client.cancel(job.id)
            client.wait(job.id)
