"""An hour's worth of mixed requests, 30 a second, as fast as they are answered: memory and descriptors stay flat.

``python benchmarks/mixed_load.py [--requests 108000] [--quick]``; exit code 1 where memory or descriptors grow. Single
lookups, batches in JSON and Arrow, neighbours, scores, lists of jobs and switches of an alias come from processes of
their own (load.py); exports, event streams and jobs, sent, followed to their end and deleted, from threads beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import numpy as np
import psutil
import pyarrow as pa
from faults_books import Truth
from faults_world import Server, make_set
from load import load, request

from service.settings import ServiceSettings
from service.store import Store

ARROW = "application/vnd.apache.arrow.stream"
JSON = {"Content-Type": "application/json"}
WARM_SHARE = 0.3
LIMIT_MIB, LIMIT_DESCRIPTORS = 8.0, 8
"""How much the fitted line may rise from the end of the warm-up to the end."""
NODES = 20_000


def mixed(truth: Truth, sets: list[str], seed: int) -> list[bytes]:
    """Two thousand raw requests, in random order."""
    rng = random.Random(seed)

    def post(path: str, body: object, accept: str = "*/*") -> bytes:
        return request("POST", f"/v1/embeddings/{path}", json.dumps(body).encode(), JSON | {"Accept": accept})

    def one() -> bytes:
        ids = rng.sample(truth.ids, 50)
        sink, batch = pa.BufferOutputStream(), pa.record_batch({"id": pa.array([int(node) for node in ids])})
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        column = sink.getvalue().to_pybytes()
        pick = rng.random()
        if pick < 0.55:
            return request("GET", f"/v1/embeddings/{truth.ref}/vectors/{ids[0]}")
        if pick < 0.65:
            return post(f"{truth.ref}/lookup", {"ids": ids})
        if pick < 0.70:
            return post(f"{truth.ref}/lookup", {"ids": ids, "encoding": "base64"})
        if pick < 0.75:
            return request("POST", "/v1/embeddings/spare/lookup", column, {"Content-Type": ARROW, "Accept": "*/*"})
        if pick < 0.90:
            exclude = {"connected": rng.random() < 0.5}
            asked = {"queries": [{"id": node} for node in ids[: rng.choice([1, 8])]], "exclude": exclude}
            return post(f"{truth.ref}/neighbors", asked)
        if pick < 0.95:
            return post(f"{truth.ref}/scores", {"pairs": list(zip(ids[::2], ids[1::2], strict=True))})
        if pick < 0.98:
            return request("GET", "/v1/jobs?limit=20")
        return request("PUT", "/v1/aliases/spare", json.dumps({"embedding": rng.choice(sets)}).encode(), JSON)

    return [one() for _ in range(2000)]


class Slow:
    """What streams or takes its time, in a thread: exports, event streams, and jobs from submit to deletion."""

    def __init__(self, server: Server, ref: str, graph: str) -> None:
        self.requests, self.failed = 0, ""
        self._server, self._ref, self._graph = server, ref, graph
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(work,)) for work in (self._export, self._job)]

    def __enter__(self) -> Slow:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, work) -> None:
        try:
            while not self._over.is_set():
                work(self._server.client())
        except Exception as error:
            self.failed = repr(error)

    def _export(self, client: httpx2.Client) -> None:
        for accept in (ARROW, "application/x-ndjson"):
            self._check(client.get(f"/v1/embeddings/{self._ref}/vectors", headers={"Accept": accept}), 200)
        time.sleep(0.3)

    def _job(self, client: httpx2.Client) -> None:
        wanted = {"cores": 1, "gpus": 0, "memory_bytes": 1, "disk_bytes": 0}
        labels = {"stages": "1", "seconds": "0.02"}
        body = {"kind": "preprocess", "graph": self._graph, "labels": labels, "resources": wanted}
        job = self._check(client.post("/v1/jobs", json=body), 201).json()["id"]
        stream = client.get(f"/v1/jobs/{job}/events", headers={"Accept": "text/event-stream"})
        if "event: end" not in self._check(stream, 200).text:
            raise RuntimeError("an event stream had no end")
        self._check(client.get(f"/v1/jobs/{job}/logs"), 200)
        self._check(client.delete(f"/v1/jobs/{job}"), 204)
        time.sleep(1)

    def _check(self, answer: httpx2.Response, status: int) -> httpx2.Response:
        self.requests += 1
        if answer.status_code != status:
            raise RuntimeError(f"{answer.request.url}: {answer.status_code} {answer.text[:300]}")
        return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=30 * 3600)
    parser.add_argument("--quick", action="store_true", help="6,000 requests: within a minute")
    parser.add_argument("--connections", type=int, default=8)
    given = parser.parse_args()
    wanted = 6_000 if given.quick else given.requests
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        settings = ServiceSettings(home=scratch / "home", poll_s=0.1, max_running=2)
        store = Store(settings)
        truth = make_set(scratch / "one", store, "live", NODES, "hnsw")
        make_set(scratch / "two", store, "spare", NODES + 1, "hnsw")
        sets = [store.embedding(ref).id for ref in ("live", "spare")]
        graph = store.embedding("live").graph
        store.close()
        server = Server(scratch, settings)
        server.start()
        try:
            with Slow(server, "live", graph) as slow:
                samples = run(server, slow, truth, sets, wanted, given.connections, 1.0 if given.quick else 4.0)
        finally:
            server.stop()
    return report(samples, slow, given.connections)


def run(
    server: Server, slow: Slow, truth: Truth, sets: list[str], wanted: int, connections: int, seconds: float
) -> np.ndarray:
    """Requests so far, resident MiB and descriptors after every bout of load, [n, 3]."""
    assert server.process is not None
    process, done, samples = psutil.Process(server.process.pid), 0, []
    while done + slow.requests < wanted and not slow.failed:
        done += load(server.port, mixed(truth, sets, len(samples)), connections, seconds, 0.0)["answers"]
        samples.append((done + slow.requests, process.memory_info().rss / 2**20, process.num_fds()))
        if len(samples) % 5 == 0:
            print("{:8,d} requests  {:7.1f} MiB  {:4d} descriptors".format(*samples[-1]), flush=True)
    if slow.failed:
        raise SystemExit(f"a request failed: {slow.failed}")
    return np.array(samples, dtype=float)


def report(samples: np.ndarray, slow: Slow, connections: int) -> int:
    """Print the line fitted after the warm-up, and the line of JSON; the exit code."""
    warm = samples[samples[:, 0] >= WARM_SHARE * samples[-1, 0]]
    span = warm[-1, 0] - warm[0, 0]
    (memory, held), _ = np.polyfit(warm[:, 0], warm[:, 1:], 1)
    print(
        f"after the warm-up, over {span:,.0f} requests: {memory * span:+.2f} MiB ({memory * 1e5:+.2f} per 100,000), "
        f"{held * span:+.1f} descriptors; {warm[-1, 1]:.1f} MiB at the end; {slow.requests:,} exports, event streams "
        "and requests of jobs"
    )
    result = {
        "claim": "resident memory gained under an hour's mixed load, after its first part",
        "ours": round(memory * span, 2),
        "peer": round(float(warm[0, 1]), 1),
        "ratio": round(float(memory * span / warm[0, 1]), 4),
        "unit": "MiB",
        "settings": {"requests": int(samples[-1, 0]), "connections": connections, "descriptors": round(held * span, 1)},
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "date": datetime.now(UTC).date().isoformat(),
    }
    print(json.dumps(result))
    return int(memory * span > LIMIT_MIB or held * span > LIMIT_DESCRIPTORS)


if __name__ == "__main__":
    sys.exit(main())
