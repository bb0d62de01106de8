"""Seeds a second of neighbour sampling: ours in threads against PyG's ``NeighborLoader`` with its workers.

Both have the same R-MAT graph (nodes without an edge left out), the same batches of seeds and the same fan-out, and
hand over sampled subgraphs without features. The peer runs as a process of its own, with whichever of pyg-lib and
torch-sparse its Python has (PyG prefers pyg-lib), and counts with its best number of workers; ours with ``--threads``.

The floor is what a thread needs for the cache lines of the graph: one a node expanded (where its row is) and one an arc
drawn (whom it hears), or all lines of its row where that is fewer; each as long as a read at random of ``indices``
takes where many are under way at once. Drawing, and numbering nodes in a table that a core's own cache holds, come on
top; lines that another batch left in the shared cache come off.

    python benchmarks/sampler.py [--quick] [--peer-python PATH] [--threads 2] [--memory]

The last line is JSON. ``--memory`` samples a small slice for 200 epochs instead and tells the memory before and after.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psutil

from preprocessing.bundle import Topology
from preprocessing.generate import generate
from preprocessing.ingest import ingest
from preprocessing.stage import Emitter
from trainer.in_order import in_order
from trainer.sampler import NumbaSampler, Sample

Batches = list[npt.NDArray[np.int64]]

FAN_OUT, BATCH, DEGREE, LINE = [10, 10], 1024, 16, 64
WORKERS = [0, 1, 2, 3, 4]
EPOCHS, SLICE = 200, 8
"""Of the memory's test: epochs, and batches in each."""

PEER = """
import json, sys, time
import numpy as np, torch, torch_geometric.typing as installed
back_end = "pyg-lib" if installed.WITH_PYG_LIB else "torch-sparse" if installed.WITH_TORCH_SPARSE else None
if back_end is None:
    print(json.dumps({"back_end": None}))
    sys.exit()
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
folder, asked = sys.argv[1], json.loads(sys.argv[2])
indptr, indices, seeds = (np.load(f"{folder}/{name}.npy") for name in ("indptr", "indices", "seeds"))
hears = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
data = Data(edge_index=torch.from_numpy(np.stack([indices.astype(np.int64), hears])), num_nodes=len(indptr) - 1)
rates = {}
for workers in asked["workers"]:
    loader = NeighborLoader(data, asked["fan_out"], input_nodes=torch.from_numpy(seeds), batch_size=asked["batch"],
                            shuffle=False, num_workers=workers, persistent_workers=workers > 0, is_sorted=True)
    seconds = []
    for _ in range(1 + asked["rounds"]):
        began = time.perf_counter()
        edges = sum(batch.edge_index.shape[1] for batch in loader)
        seconds.append(time.perf_counter() - began)
    rates[workers] = len(seeds) / min(seconds[1:])
    del loader
print(json.dumps({"back_end": back_end, "rates": rates, "edges": edges}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="10^5 nodes and few batches: under a minute")
    parser.add_argument("--peer-python", default=sys.executable, help="a Python with PyG and torch-sparse or pyg-lib")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="passes over the batches, of which the fastest counts")
    parser.add_argument("--memory", action="store_true")
    arguments = parser.parse_args()
    nodes, batches = (100_000, 20) if arguments.quick else (1_000_000, 100)
    with tempfile.TemporaryDirectory() as scratch:
        topology = rmat(Path(scratch), nodes)
        seeds = np.random.default_rng(0).permutation(topology.num_nodes)[: batches * BATCH]
        if arguments.memory:
            result = flat_memory(topology, seeds[: SLICE * BATCH], arguments.threads)
        else:
            result = speed(topology, seeds, Path(scratch), arguments)
    settings = {"nodes": nodes, "average_degree": DEGREE, "fan_out": FAN_OUT, "batch": BATCH, "quick": arguments.quick}
    result["settings"] = {**settings, "threads": arguments.threads, **result["settings"]}
    result["machine"] = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    print(json.dumps(result | {"date": datetime.now(UTC).date().isoformat()}))


def rmat(folder: Path, nodes: int) -> Topology:
    """Made by the stages that a user's tables go through, and read from its memory map."""
    generate({"out": str(folder / "t"), "settings": {"kind": "rmat", "nodes": nodes, "degree": DEGREE}}, quiet())
    source = {"kind": "tables", "edges": str(folder / "t" / "edges")}
    ingest({"out": str(folder / "bundle"), "settings": {"source": source}}, quiet())
    topology = Topology.open(folder / "bundle" / "topology")
    print(f"{topology.num_nodes:,} nodes with an edge, {topology.num_arcs:,} arcs", flush=True)
    return topology


def quiet() -> Emitter:
    return Emitter("benchmark")


def batched(seeds: npt.NDArray[np.int64]) -> Batches:
    return [seeds[begin : begin + BATCH] for begin in range(0, len(seeds), BATCH)]


def sampling(topology: Topology) -> Callable[[tuple[int, npt.NDArray[np.int64]]], Sample]:
    """A numbered batch to its sample."""
    sampler = NumbaSampler()
    return lambda numbered: sampler.sample(topology, numbered[1], FAN_OUT, numbered[0])


def loaded(topology: Topology, batches: Iterable[npt.NDArray[np.int64]], threads: int) -> int:
    """Edges of all samples, in order."""
    samples = in_order(sampling(topology), enumerate(batches), threads=threads, waiting=2 * threads)
    return sum(len(made.indices) for _, made in samples)


def speed(topology: Topology, seeds: npt.NDArray[np.int64], scratch: Path, arguments: argparse.Namespace) -> dict:
    batches = batched(seeds)
    tell_floor(topology, batches[:10])
    ours: dict[int, float] = {}
    for threads in sorted({1, arguments.threads}):
        seconds = []
        for _ in range(1 + arguments.rounds):
            began = time.perf_counter()
            edges = loaded(topology, batches, threads)
            seconds.append(time.perf_counter() - began)
        ours[threads] = len(seeds) / min(seconds[1:])
        print(
            f"ours, {threads} threads: {ours[threads]:,.0f} seeds/s, {edges / len(seeds):.1f} edges a seed", flush=True
        )
    found = peers(topology, seeds, scratch, arguments)
    best = max(found["rates"].values()) if found["back_end"] else None
    mine = ours[arguments.threads]
    return {
        "claim": "seeds sampled a second",
        "ours": round(mine),
        "peer": None if best is None else round(best),
        "ratio": None if best is None else round(mine / best, 2),
        "unit": "seeds/s",
        "settings": {
            "ours_by_threads": {threads: round(rate) for threads, rate in ours.items()},
            "peer": found["back_end"] and f"NeighborLoader with {found['back_end']}",
            "peer_by_workers": {workers: round(rate) for workers, rate in found["rates"].items()},
        },
    }


def tell_floor(topology: Topology, batches: Batches) -> None:
    """What the reads of the graph alone would take a thread."""
    lines, degrees = 0, topology.degrees()
    for one in (sampling(topology)(numbered) for numbered in enumerate(batches)):
        drawn = np.diff(one.indptr)
        row_lines = degrees[one.nodes[: len(drawn)]] * topology.indices.itemsize // LINE + 1
        lines += len(drawn) + int(np.minimum(drawn, row_lines).sum())
    reads = lines / sum(map(len, batches))
    arcs = np.random.default_rng(1).integers(0, topology.num_arcs, 2_000_000)
    out, seconds = np.empty(len(arcs), topology.indices.dtype), []
    for _ in range(5):
        began = time.perf_counter()
        topology.indices.take(arcs, out=out, mode="clip")
        seconds.append(time.perf_counter() - began)
    read_ns = 1e9 * min(seconds) / len(arcs)
    rate = 1e9 / (reads * read_ns)
    print(f"floor: {reads:.1f} lines a seed, {read_ns:.1f} ns each: {rate:,.0f} seeds/s a thread", flush=True)


def peers(topology: Topology, seeds: npt.NDArray[np.int64], scratch: Path, arguments: argparse.Namespace) -> dict:
    """Its back end, and seeds a second by the number of workers."""
    for name, array in (("indptr", topology.indptr), ("indices", topology.indices), ("seeds", seeds)):
        np.save(scratch / f"{name}.npy", array)
    asked = {"fan_out": FAN_OUT, "batch": BATCH, "rounds": arguments.rounds, "workers": WORKERS}
    command = [arguments.peer_python, "-c", PEER, str(scratch), json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"the peer failed\n{done.stderr}")
    found: dict = json.loads(done.stdout.splitlines()[-1])
    if found["back_end"] is None:
        print(f"no peer: {arguments.peer_python} has neither pyg-lib nor torch-sparse; see --peer-python", flush=True)
        return found | {"rates": {}}
    for workers, rate in found["rates"].items():
        print(f"NeighborLoader with {found['back_end']}, {workers} workers: {rate:,.0f} seeds/s", flush=True)
    print(f"  {found['edges'] / len(seeds):.1f} edges a seed", flush=True)
    return found


def flat_memory(topology: Topology, seeds: npt.NDArray[np.int64], threads: int) -> dict:
    """Resident memory after the first tenth of the epochs, in which buffers find their size, and at the end."""
    batches, process = batched(seeds), psutil.Process()
    settled = EPOCHS // 10
    loaded(topology, itertools.chain.from_iterable(itertools.repeat(batches, settled)), threads)
    start = process.memory_info().rss
    print(f"after {settled} epochs: {start / 2**20:.1f} MiB", flush=True)
    loaded(topology, itertools.chain.from_iterable(itertools.repeat(batches, EPOCHS - settled)), threads)
    end = process.memory_info().rss
    print(f"after {EPOCHS} epochs: {end / 2**20:.1f} MiB", flush=True)
    return {
        "claim": f"resident memory after {EPOCHS} epochs over that after {settled}",
        "ours": round(end / 2**20, 1),
        "peer": round(start / 2**20, 1),
        "ratio": round(end / start, 3),
        "unit": "MiB",
        "settings": {"epochs": EPOCHS, "batches": SLICE, "peer": f"the same process after {settled} epochs"},
    }


if __name__ == "__main__":
    main()
