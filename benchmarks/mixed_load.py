"""An hour's worth of mixed requests, 30 a second, as fast as they are answered: memory and descriptors stay flat.

``python benchmarks/mixed_load.py [--requests 108000] [--quick]``; exit code 1 where memory or descriptors grow. The
requests that count begin once memory is flat, at the latest after ``WARM_REQUESTS``: a leak never is. Single
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
from serving import stream

from service.settings import ServiceSettings
from service.store import Store

ARROW = "application/vnd.apache.arrow.stream"
JSON = {"Content-Type": "application/json"}
WARM_REQUESTS = 20_000
FLAT_REQUESTS, FLAT_MIB = 5_000, 0.5
"""Memory is flat where the line fitted to the last so many requests rises less."""
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
        pick = rng.random()
        if pick < 0.55:
            return request("GET", f"/v1/embeddings/{truth.ref}/vectors/{ids[0]}")
        if pick < 0.65:
            return post(f"{truth.ref}/lookup", {"ids": ids})
        if pick < 0.70:
            return post(f"{truth.ref}/lookup", {"ids": ids, "encoding": "base64"})
        if pick < 0.75:
            headers = {"Content-Type": ARROW, "Accept": "*/*"}
            return request("POST", "/v1/embeddings/spare/lookup", stream(pa.array(map(int, ids))), headers)
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
    parser.add_argument("--quick", action="store_true", help="12,000 requests: within two minutes")
    parser.add_argument("--connections", type=int, default=8)
    given = parser.parse_args()
    wanted = 12_000 if given.quick else given.requests
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
                bouts = Bouts(server, slow, truth, sets, given.connections, 1.0 if given.quick else 4.0)
                bouts.run(WARM_REQUESTS, until_flat=True)
                samples = bouts.run(wanted)
        finally:
            server.stop()
    return report(samples, slow, given.connections)


class Bouts:
    """Load in bouts of some seconds, and after each a sample: requests so far, resident MiB, descriptors."""

    def __init__(
        self, server: Server, slow: Slow, truth: Truth, sets: list[str], connections: int, seconds: float
    ) -> None:
        assert server.process is not None
        self._process, self._port = psutil.Process(server.process.pid), server.port
        self._slow, self._truth, self._sets = slow, truth, sets
        self._connections, self._seconds = connections, seconds
        self._answers, self._seed = 0, 0

    def run(self, wanted: int, *, until_flat: bool = False) -> np.ndarray:
        """So many requests, with ``until_flat`` fewer where memory is flat before; the samples [n, 3]."""
        samples: list[tuple[int, float, int]] = []
        began = self._requests
        while self._requests - began < wanted and not (until_flat and flat(np.array(samples))):
            requests, self._seed = mixed(self._truth, self._sets, self._seed), self._seed + 1
            self._answers += load(self._port, requests, self._connections, self._seconds, 0.0)["answers"]
            if self._slow.failed:
                raise SystemExit(f"a request failed: {self._slow.failed}")
            samples.append((self._requests, self._process.memory_info().rss / 2**20, self._process.num_fds()))
            if self._seed % 5 == 0:
                print("{:8,d} requests  {:7.1f} MiB  {:4d} descriptors".format(*samples[-1]), flush=True)
        return np.array(samples, dtype=float)

    @property
    def _requests(self) -> int:
        return self._answers + self._slow.requests


def flat(samples: np.ndarray) -> bool:
    """Whether memory rose by less than ``FLAT_MIB`` over the last ``FLAT_REQUESTS``."""
    if not len(samples) or samples[-1, 0] - samples[0, 0] < FLAT_REQUESTS:
        return False
    last = samples[samples[:, 0] >= samples[-1, 0] - FLAT_REQUESTS]
    return len(last) > 2 and bool(np.polyfit(last[:, 0], last[:, 1], 1)[0] * FLAT_REQUESTS < FLAT_MIB)


def report(samples: np.ndarray, slow: Slow, connections: int) -> int:
    """Print the line fitted to the samples after the warm-up, and the line of JSON; the exit code."""
    span = samples[-1, 0] - samples[0, 0]
    (memory, held), _ = np.polyfit(samples[:, 0], samples[:, 1:], 1)
    print(
        f"after the warm-up, over {span:,.0f} requests: {memory * span:+.2f} MiB ({memory * 1e5:+.2f} per 100,000), "
        f"{held * span:+.1f} descriptors; {samples[-1, 1]:.1f} MiB at the end; {slow.requests:,} exports, event "
        "streams and requests of jobs"
    )
    result = {
        "claim": "resident memory gained under an hour's mixed load, after its first part",
        "ours": round(memory * span, 2),
        "peer": round(float(samples[0, 1]), 1),
        "ratio": round(float(memory * span / samples[0, 1]), 4),
        "unit": "MiB",
        "settings": {"requests": int(span), "connections": connections, "descriptors": round(held * span, 1)},
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "date": datetime.now(UTC).date().isoformat(),
    }
    print(json.dumps(result))
    return int(memory * span > LIMIT_MIB or held * span > LIMIT_DESCRIPTORS)


if __name__ == "__main__":
    sys.exit(main())
