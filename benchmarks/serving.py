"""Requests a second of the server: lookups against a bare hello-world, neighbours against faiss in process.

The server is ``rgrl serve`` as a process on 127.0.0.1, and so is the peer, FastAPI's hello-world under uvicorn with the
same event loop and parser. A load generator in its own process keeps connections busy (``load.py``). faiss runs in a
third process with the very same index file, effort and number of threads. All take turns within a round; a ratio is
the median over the rounds. Queries are nodes drawn at random; recall is told against a brute force.

    python benchmarks/serving.py [--quick] [--folder KEPT] [--embeddings SET [--graph BUNDLE]] [--peer-python PATH]

``--peer-python`` names a Python with hnswlib, usearch or qdrant-edge-py, which then build and search indexes of their
own. The last line is JSON: the first claim is one lookup, ``settings.claims`` has all of them.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import numpy as np
import psutil
import pyarrow as pa
from load import load, request
from serving_set import ALIAS, home_with, make_set

from preprocessing.ids import IdMap

ARROW = "application/vnd.apache.arrow.stream"
K, QUERIES, RECALL_QUERIES = 10, 32, 200

HELLO = """
import sys, uvicorn
from fastapi import FastAPI
app = FastAPI()
@app.get("/")
async def hello() -> dict[str, str]:
    return {"message": "Hello World"}
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_config=None, access_log=False)
"""

FAISS = """
import json, sys, time
import faiss, numpy as np
index = faiss.read_index(sys.argv[1], faiss.IO_FLAG_MMAP_IFC)
vectors = np.load(sys.argv[2], mmap_mode="r")
effort, k = faiss.SearchParametersHNSW(efSearch=int(sys.argv[3])), int(sys.argv[4])
for line in sys.stdin:
    asked = json.loads(line)
    rows = np.random.default_rng(asked["seed"]).integers(0, len(vectors), (256, asked["queries"]))
    batches = [np.array(vectors[np.sort(batch)], dtype=np.float32) for batch in rows]
    for batch in batches:
        faiss.normalize_L2(batch)
    faiss.omp_set_num_threads(asked["threads"])
    for batch in batches[:8]:
        index.search(batch, k, params=effort)
    began, calls = time.perf_counter(), 0
    while time.perf_counter() - began < asked["seconds"]:
        index.search(batches[calls % 256], k, params=effort)
        calls += 1
    print(json.dumps({"calls": calls / (time.perf_counter() - began)}), flush=True)
"""

OTHERS = """
import importlib, json, sys, time
from pathlib import Path
import numpy as np
vectors, folder, k, effort = np.load(sys.argv[1], mmap_mode="r"), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
seconds, cores = float(sys.argv[5]), int(sys.argv[6])
unit = np.array(vectors, dtype=np.float32)
unit /= np.linalg.norm(unit, axis=1, keepdims=True)
rng = np.random.default_rng(1)
sample = rng.integers(0, len(unit), 200)
truth = np.argsort(-(unit[sample] @ unit.T), axis=1)[:, :k]
def hnswlib():
    import hnswlib
    index, file = hnswlib.Index("ip", unit.shape[1]), folder / "hnswlib.bin"
    if file.exists():
        index.load_index(str(file))
    else:
        index.init_index(len(unit), ef_construction=200, M=32)
        index.add_items(unit, num_threads=cores)
        index.save_index(str(file))
    index.set_ef(effort)
    return lambda batch, threads: index.knn_query(batch, k, num_threads=threads)[0]
def usearch():
    from usearch.index import Index
    file = folder / "usearch.bin"
    index = Index(ndim=unit.shape[1], metric="ip", dtype="f32", connectivity=32, expansion_add=200)
    if file.exists():
        index.load(str(file))
    else:
        index.add(np.arange(len(unit)), unit, threads=cores)
        index.save(str(file))
    index.expansion_search = effort
    return lambda batch, threads: np.atleast_2d(index.search(batch, k, threads=threads).keys)
def qdrant_edge():
    # Qdrant's own engine without its server, in one segment.
    import qdrant_edge as qdrant
    shard = folder / "qdrant"
    name, params = "vector", qdrant.SearchParams(hnsw_ef=effort)
    if (shard / "whole").exists():
        held = qdrant.EdgeShard.load(str(shard / "shard"))
    else:
        graph = qdrant.HnswIndexConfig(m=32, ef_construct=200, full_scan_threshold=1000, max_indexing_threads=cores)
        dot = {name: qdrant.EdgeVectorParams(unit.shape[1], qdrant.Distance.Dot, hnsw_config=graph)}
        one = qdrant.EdgeOptimizersConfig(default_segment_number=1, max_segment_size=1 << 30, indexing_threshold=1)
        (shard / "shard").mkdir(parents=True)
        config = qdrant.EdgeConfig(vectors=dot, hnsw_config=graph, optimizers=one, max_search_threads=1)
        held = qdrant.EdgeShard.create(str(shard / "shard"), config)
        for start in range(0, len(unit), 10_000):
            part = unit[start : start + 10_000].tolist()
            points = [qdrant.Point(start + row, {name: vector}) for row, vector in enumerate(part)]
            held.update(qdrant.UpdateOperation.upsert_points(points))
        held.optimize()
        held.flush()
        (shard / "whole").touch()
    def search(batch, threads):
        nearest = (qdrant.Query.Nearest(vector.tolist(), using=name) for vector in batch)
        asked = [qdrant.QueryRequest(k, query=query, params=params) for query in nearest]
        return [[point.id for point in found] for found in held.query_batch(qdrant.QueryBatchRequest(asked))]
    return search
for make in (hnswlib, usearch, qdrant_edge):
    try:
        importlib.import_module(make.__name__)
    except ImportError:
        continue
    search = make()
    found = search(unit[sample], 1)
    recall = np.mean([len(set(map(int, a)) & set(map(int, b))) / k for a, b in zip(found, truth)])
    for queries in (1, 32):
        batches = [unit[rng.integers(0, len(unit), queries)] for _ in range(256)]
        began, calls = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            search(batches[calls % 256], 1)
            calls += 1
        rate = calls / (time.perf_counter() - began)
        print(f"{make.__name__} in process, 1 thread, {queries:2d} a call: {rate * queries:9,.0f} queries/s, "
              f"recall@{k} {recall:.3f}", flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="20,000 nodes and one round: within a minute")
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="where the set is made, and found again by a later run")
    parser.add_argument("--embeddings", type=Path, help="a trained set with an HNSW index, instead of a made one")
    parser.add_argument("--graph", type=Path, help="its graph bundle")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--peer-python", help="a Python with hnswlib, usearch or qdrant-edge-py")
    given = parser.parse_args()
    if given.quick:
        given.nodes, given.rounds, given.seconds = 20_000, 1, 1.0
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch) / "made"
        path, graph = given.embeddings, given.graph
        if path is None:
            path, graph = make_set(folder, given.nodes), folder / "graph"
        result = measure(path, graph, Path(scratch), given)
        if given.peer_python:
            others(path, folder, given)
    result["machine"] = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    print(json.dumps(result | {"date": datetime.now(UTC).date().isoformat()}))


def measure(path: Path, graph: Path | None, scratch: Path, given: argparse.Namespace) -> dict:
    home_with(scratch / "home", path, graph)
    index = json.loads((path / "index" / "manifest.json").read_text())
    nodes, effort, size = index["counts"]["nodes"], index["effort"], (path / "index" / "index.faiss").stat().st_size
    names = IdMap.open(path)
    drawn = np.random.default_rng(0).permutation(nodes)[:20_000]
    ids: list = names.column(drawn).to_pylist()
    log = (scratch / "server.log").open("wb")
    serve = [sys.executable, "-m", "service.cli", "serve", "--home", str(scratch / "home"), "--port"]
    ask = f"/v1/embeddings/{ALIAS}/neighbors", neighbors_body([ids[0]])
    # The first start hashes the files of a set that no job of this home has made; later ones know them again.
    hashing, _, first = started([*serve], log, *ask)
    hashing.terminate()
    hashing.wait()
    read, evicted = evicted_start(path, graph, serve, log, ask)
    ours, port, cold = started([*serve], log, *ask)
    fresh = memory(ours)
    print(
        f"cold start to the first neighbours: {cold:.2f} s, {first:.2f} s where the files are hashed first, "
        f"{evicted:.2f} s where none is in the page cache (index and vectors read in order: {read:.2f} s); "
        f"{told_memory(fresh)}; index {size / 2**20:,.0f} MiB",
        flush=True,
    )
    hello, hello_port, _ = started([sys.executable, "-c", HELLO], log, "/", b"")
    faiss = subprocess.Popen(
        [
            sys.executable,
            "-c",
            FAISS,
            str(path / "index" / "index.faiss"),
            str(path / "vectors.npy"),
            str(effort),
            str(K),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        recall = measured_recall(port, path, ids[:RECALL_QUERIES], drawn[:RECALL_QUERIES])
        print(f"recall@{K} of the server's answers: {recall:.3f} (HNSW, effort {effort})", flush=True)
        rounds = [one_round(port, hello_port, faiss, ids, given.seconds, seed) for seed in range(given.rounds)]
        found = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
        loaded = memory(ours)
        print(f"after the load: {told_memory(loaded)}", flush=True)
    finally:
        for process in (ours, hello, faiss):
            process.kill()
            process.wait()
    claims = {name: round(value, 3) for name, value in found.items() if name.startswith(("ratio", "p99"))}
    claims |= {
        "cold_start_s": round(cold, 2),
        "cold_start_hashing_s": round(first, 2),
        "cold_start_evicted_s": round(evicted, 2),
        "reading_evicted_s": round(read, 2),
        "resident at start to index": round(fresh[0] / size, 2),
        "resident after load to index and vectors": round(
            loaded[0] / (size + (path / "vectors.npy").stat().st_size), 2
        ),
        "anonymous after load to index": round(loaded[1] / size, 2),
        f"recall@{K}": round(recall, 3),
    }
    return {
        "claim": "one vector a request, requests a second against hello-world",
        "ours": round(found["one"]),
        "peer": round(found["hello"]),
        "ratio": round(found["ratio: one lookup to hello-world"], 3),
        "unit": "requests/s",
        "settings": {
            "nodes": nodes,
            "effort": effort,
            "rounds": given.rounds,
            "seconds": given.seconds,
            "claims": claims,
        },
    }


def started(command: list[str], log: object, path: str, body: bytes) -> tuple[subprocess.Popen, int, float]:
    """The process, its port, and seconds from its start to its first answer of ``path``."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    began = time.perf_counter()
    process = subprocess.Popen([*command, str(port)], stdout=log, stderr=log)
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        try:
            connection.request("POST" if body else "GET", path, body or None, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status != 200:
                process.kill()
                raise SystemExit(f"the first answer was {answer.status}: {answer.read()!r}")
            return process, port, time.perf_counter() - began
        except ConnectionError:
            if process.poll() is not None:
                raise SystemExit("a server ended at its start") from None
            time.sleep(0.01)
        finally:
            connection.close()


def evicted_start(
    path: Path, graph: Path | None, serve: list[str], log: object, ask: tuple[str, bytes]
) -> tuple[float, float]:
    """Medians over three turns, after set and graph have left the page cache: seconds to read index and vectors from
    end to end, and from the start of a server to its first answer.
    """
    reads, starts = [], []
    for _ in range(3):
        evict(path, graph)
        began = time.perf_counter()
        for file in (path / "index" / "index.faiss", path / "vectors.npy"):
            with file.open("rb", buffering=0) as source:
                while source.read(1 << 20):
                    pass
        reads.append(time.perf_counter() - began)
        evict(path, graph)
        server, _, seconds = started([*serve], log, *ask)
        server.terminate()
        server.wait()
        starts.append(seconds)
    return statistics.median(reads), statistics.median(starts)


def evict(*folders: Path | None) -> None:
    os.sync()
    for file in (file for folder in folders if folder for file in folder.rglob("*") if file.is_file()):
        with file.open("rb") as source:
            os.posix_fadvise(source.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def memory(process: subprocess.Popen) -> tuple[int, int]:
    """Bytes resident, and how many of them are no pages of mapped files, which the system takes back at need."""
    found = psutil.Process(process.pid).memory_info()
    return found.rss, found.rss - found.shared


def told_memory(found: tuple[int, int]) -> str:
    return f"resident {found[0] / 2**20:,.0f} MiB, of which {found[1] / 2**20:,.0f} beside mapped files"


def neighbors_body(ids: list) -> bytes:
    return json.dumps({"queries": [{"id": node} for node in ids], "k": K}).encode()


def measured_recall(port: int, path: Path, ids: list, rows: np.ndarray) -> float:
    """Share of the true neighbours among those that the server answers, by scores."""
    vectors = np.load(path / "vectors.npy", mmap_mode="r")
    found = []
    for start in range(0, len(ids), QUERIES):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        body = neighbors_body(ids[start : start + QUERIES])
        connection.request("POST", f"/v1/embeddings/{ALIAS}/neighbors", body, {"Content-Type": "application/json"})
        found += [[near["score"] for near in one["results"]] for one in json.load(connection.getresponse())["answers"]]
        connection.close()
    queries = np.array(vectors[rows], dtype=np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    best = np.full((len(ids), K), -np.inf, dtype=np.float32)
    for start in range(0, len(vectors), 50_000):
        block = np.array(vectors[start : start + 50_000], dtype=np.float32)
        block /= np.maximum(np.linalg.norm(block, axis=1, keepdims=True), 1e-30)
        scores = queries @ block.T
        inside = (rows >= start) & (rows < start + len(block))
        scores[inside, rows[inside] - start] = -np.inf
        best = -np.sort(-np.concatenate((best, -np.partition(-scores, K - 1, axis=1)[:, :K]), axis=1), axis=1)[:, :K]
    return float(
        np.mean([np.mean(np.array(one) >= floor - 1e-5) for one, floor in zip(found, best[:, -1], strict=True)])
    )


def lookups(ids: list, count: int, *, arrow: bool, arrow_ids: bool = False) -> list[bytes]:
    requests, rng = [], np.random.default_rng(count)
    for _ in range(32):
        chosen = rng.choice(ids, count, replace=False)
        body = stream(pa.array(chosen)) if arrow_ids else json.dumps({"ids": chosen.tolist()}).encode()
        headers = {"Content-Type": ARROW if arrow_ids else "application/json", "Accept": ARROW if arrow else "*/*"}
        requests.append(request("POST", f"/v1/embeddings/{ALIAS}/lookup", body, headers))
    return requests


def stream(column: pa.Array) -> bytes:
    sink, batch = pa.BufferOutputStream(), pa.record_batch({"id": column})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def one_round(
    port: int, hello_port: int, faiss: subprocess.Popen, ids: list, seconds: float, seed: int
) -> dict[str, float]:
    """Every figure once, what is compared side by side."""
    rng, cores = np.random.default_rng(seed), os.cpu_count() or 1
    json_type = {"Content-Type": "application/json"}

    def told(name: str, requests: list[bytes], connections: int, *, to: int = port, each: int = 1) -> dict:
        found = load(to, requests, connections, seconds)
        print(
            f"{name:34s} {connections} connections: {found['rate'] * each:10,.0f}/s   p50 {found['p50_ms']:8.3f} ms"
            f"   p99 {found['p99_ms']:8.3f} ms   {found['bytes']:11,.0f} bytes",
            flush=True,
        )
        return found

    def near(queries: int) -> list[bytes]:
        bodies = (neighbors_body(rng.choice(ids, queries, replace=False).tolist()) for _ in range(200))
        return [request("POST", f"/v1/embeddings/{ALIAS}/neighbors", body, json_type) for body in bodies]

    def in_process(queries: int, threads: int) -> float:
        assert faiss.stdin is not None
        assert faiss.stdout is not None
        asked = {"queries": queries, "threads": threads, "seconds": seconds, "seed": seed}
        faiss.stdin.write(json.dumps(asked) + "\n")
        faiss.stdin.flush()
        calls: float = json.loads(faiss.stdout.readline())["calls"]
        print(
            f"faiss in process, {queries:2d} a call, {threads} threads: {calls * queries:10,.0f} queries/s", flush=True
        )
        return calls

    one = [request("GET", f"/v1/embeddings/{ALIAS}/vectors/{quote(str(node), safe='')}") for node in ids[:5000]]
    greeting = [request("GET", "/")]
    hello, single = told("hello-world", greeting, 8, to=hello_port), told("one vector", one, 8)
    batches = {}
    for count in (1, 100, 1000):
        batches[count] = told(f"lookup of {count:,} ids, JSON", lookups(ids, count, arrow=False), 2)
        batches[-count] = told(f"lookup of {count:,} ids, Arrow", lookups(ids, count, arrow=True), 2)
    both = told("lookup of 1,000 ids, Arrow both ways", lookups(ids, 1000, arrow=True, arrow_ids=True), 2)
    alone, ask = told("hello-world", greeting, 1, to=hello_port), told("neighbours, 1 query a call", near(1), 1)
    faiss_alone = in_process(1, 1)
    figures = {
        "hello": hello["rate"],
        "one": single["rate"],
        "ratio: one lookup to hello-world": single["rate"] / hello["rate"],
        "p99: one lookup to hello-world": single["p99_ms"] / hello["p99_ms"],
        "ratio: 1,000 ids in Arrow to JSON": batches[-1000]["rate"] / batches[1000]["rate"],
        "ratio: 1,000 ids in Arrow both ways to JSON": both["rate"] / batches[1000]["rate"],
        "ratio: one query to hello-world and faiss": (alone["mean_ms"] + 1000 / faiss_alone) / ask["mean_ms"],
    }
    for threads in sorted({1, cores}):
        mine = told(f"neighbours, {QUERIES} queries a call", near(QUERIES), threads, each=QUERIES)
        figures[f"ratio: {QUERIES} queries to faiss, {threads} threads"] = mine["rate"] / in_process(QUERIES, threads)
    return figures


def others(path: Path, folder: Path, given: argparse.Namespace) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    effort = json.loads((path / "index" / "manifest.json").read_text())["effort"]
    command = [given.peer_python, "-c", OTHERS, path / "vectors.npy", folder, K, effort, given.seconds, os.cpu_count()]
    subprocess.run([str(part) for part in command], check=True)


if __name__ == "__main__":
    main()
