"""A load generator in a process of its own: keep-alive connections that each send their next request on an answer.

``python benchmarks/load.py SPEC.json`` with ``{"port", "requests": FILE, "connections", "seconds", "warm_s"}``, where
FILE holds one raw HTTP/1.1 request a line as hexadecimal; the last line is JSON: requests a second, latencies, bytes.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


def request(method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> bytes:
    """A raw request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def load(port: int, requests: list[bytes], connections: int, seconds: float, warm_s: float = 0.5) -> dict:
    """Run the generator as a process of its own: ``{"rate", "p50_ms", "p99_ms", "mean_ms", "answers", "bytes"}``."""
    with tempfile.TemporaryDirectory() as folder:
        lines, spec = Path(folder) / "requests", Path(folder) / "spec.json"
        lines.write_text("\n".join(one.hex() for one in requests))
        fields = {
            "port": port,
            "requests": str(lines),
            "connections": connections,
            "seconds": seconds,
            "warm_s": warm_s,
        }
        spec.write_text(json.dumps(fields))
        done = subprocess.run([sys.executable, __file__, str(spec)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"the load generator failed\n{done.stderr}")
        found: dict = json.loads(done.stdout.splitlines()[-1])
        return found


class _Connection(asyncio.Protocol):
    """One request at a time; an answer other than 200 ends the run."""

    def __init__(self, requests: itertools.cycle, ends_at: float, latencies: list, done: asyncio.Future) -> None:
        self._requests, self._ends_at, self._latencies, self._done = requests, ends_at, latencies, done
        self._head, self._left, self.bytes = b"", -1, 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        self._sent = time.perf_counter()
        if self._sent >= self._ends_at:
            self._transport.close()
            if not self._done.done():
                self._done.set_result(None)
            return
        self._transport.write(next(self._requests))

    def data_received(self, data: bytes) -> None:
        self.bytes += len(data)
        if self._left < 0:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            length = _LENGTH.search(self._head, 0, end)
            if not self._head.startswith(b"HTTP/1.1 200") or length is None:
                self._done.set_exception(RuntimeError(repr(self._head[:600])))
                return
            self._left = int(length[1]) - (len(self._head) - end - 4)
            self._head = b""
        else:
            self._left -= len(data)
        if self._left == 0:
            self._left = -1
            self._latencies.append((self._sent, time.perf_counter() - self._sent))
            self._send()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(RuntimeError(f"the server closed the connection ({error})"))


async def _run(spec: dict) -> dict:
    requests = [bytes.fromhex(line) for line in Path(spec["requests"]).read_text().split()]
    loop, began = asyncio.get_running_loop(), time.perf_counter()
    counted_from = began + spec["warm_s"]
    ends_at = counted_from + spec["seconds"]
    latencies: list[tuple[float, float]] = []
    waits, protocols, shared = [], [], itertools.cycle(requests)
    for _ in range(spec["connections"]):
        done = loop.create_future()
        waits.append(done)
        _, protocol = await loop.create_connection(
            lambda done=done: _Connection(shared, ends_at, latencies, done), "127.0.0.1", spec["port"]
        )
        protocols.append(protocol)
    await asyncio.gather(*waits)
    counted = sorted(took for sent, took in latencies if sent >= counted_from)
    return {
        "rate": len(counted) / spec["seconds"],
        "p50_ms": 1000 * counted[len(counted) // 2],
        "p99_ms": 1000 * counted[int(len(counted) * 0.99)],
        "mean_ms": 1000 * sum(counted) / len(counted),
        "answers": len(counted),
        "bytes": sum(protocol.bytes for protocol in protocols) / max(1, len(latencies)),
    }


def _main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    try:
        import uvloop

        run = uvloop.run
    except ImportError:
        run = asyncio.run
    print(json.dumps(run(_run(spec))))


if __name__ == "__main__":
    _main()
