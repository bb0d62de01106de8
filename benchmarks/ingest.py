"""Ingest against pandas and scipy.sparse in memory: nodes and edges of Parquet tables to a symmetric CSR by sorted id.

Both run as processes of their own on the same generated tables; time is the wall's, memory the peak of anonymous pages
(files mapped into memory are not counted: the kernel may drop them). The last line is JSON.

    python benchmarks/ingest.py [--quick | --nodes 10000000 --edges 100000000] [--memory 2GiB]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import psutil

PEER = """
import sys
import numpy as np, pandas as pd, scipy.sparse as sp
folder = sys.argv[1]
ids = np.sort(pd.read_parquet(folder + "/nodes", columns=["id"])["id"].to_numpy())
edges = pd.read_parquet(folder + "/edges")
rows = pd.Index(ids)
source, target = (rows.get_indexer(edges[name]) for name in ("source", "target"))
del edges
keep = source != target
ones = np.ones(int(keep.sum()), dtype=np.int8)
matrix = sp.coo_array((ones, (source[keep], target[keep])), shape=(len(ids), len(ids))).tocsr()
del source, target, keep, ones, rows
matrix = (matrix + matrix.T).tocsr()
matrix.sort_indices()
np.save(folder + "/peer-indptr.npy", matrix.indptr.astype(np.int64))
np.save(folder + "/peer-indices.npy", matrix.indices)
"""


def measured(command: list[str]) -> tuple[float, int]:
    """Seconds, and the peak of the anonymous memory of the process and its children in MiB."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak, ended = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not ended.wait(0.1):
            peak = max(peak, sum(anonymous(child) for child in family(process.pid)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = process.wait()
    seconds = time.perf_counter() - began
    ended.set()
    watcher.join()
    if code != 0:
        raise SystemExit(f"{command[:4]} ended with {code}")
    return seconds, peak >> 10


def family(pid: int) -> list[int]:
    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def anonymous(pid: int) -> int:
    """KiB."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10^5 nodes and 10^6 edges")
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--memory", default="2GiB")
    parser.add_argument("--tables", type=Path, help="tables made before by `rgrl generate blocks`")
    parser.add_argument("--no-peer", action="store_true", help="where the peer does not fit into memory")
    given = parser.parse_args()
    nodes, edges = (100_000, 1_000_000) if given.quick else (given.nodes, given.edges)
    rgrl = [sys.executable, "-m", "service.cli"]
    with tempfile.TemporaryDirectory(dir=given.tables.parent if given.tables else None) as folder:
        tables = given.tables or Path(folder) / "tables"
        if given.tables is None:
            degree = str(2 * edges / nodes)
            subprocess.run([*rgrl, "generate", "blocks", tables, "--nodes", str(nodes), "--degree", degree], check=True)
        bundle = Path(folder) / "bundle"
        command = [*rgrl, "ingest", str(bundle), "--nodes", f"{tables}/nodes", "--edges", f"{tables}/edges"]
        ours, our_memory = measured([*command, "--memory", given.memory])
        counts = json.loads((bundle / "manifest.json").read_text())["counts"]
        print(f"ours: {ours:.1f} s, {counts['given'] / ours:,.0f} edges/s, {our_memory:,} MiB anonymous at most")
        peer, peer_memory = None, None
        if not given.no_peer:
            peer, peer_memory = measured([sys.executable, "-c", PEER, str(tables)])
            print(f"peer: {peer:.1f} s, {counts['given'] / peer:,.0f} edges/s, {peer_memory:,} MiB anonymous at most")
            same(tables, bundle)
    print(
        json.dumps(
            {
                "claim": "ingest: ids, topology, features and labels, against ids and topology alone in memory",
                "ours": round(ours, 2),
                "peer": None if peer is None else round(peer, 2),
                "ratio": None if peer is None else round(peer / ours, 3),
                "unit": "s",
                "memory_mib": {"ours": our_memory, "peer": peer_memory},
                "settings": {"nodes": counts["nodes"], "edges": counts["given"], "memory": given.memory},
                "machine": f"{platform.machine()}, {os.cpu_count()} cores",
                "date": datetime.now(UTC).date().isoformat(),
            }
        )
    )


def same(tables: Path, bundle: Path) -> None:
    """Both made the same graph."""
    import numpy as np

    for name in ("indptr", "indices"):
        ours = np.load(bundle / "topology" / f"{name}.npy", mmap_mode="r")
        theirs = np.load(tables / f"peer-{name}.npy", mmap_mode="r")
        if not np.array_equal(ours, theirs):
            raise SystemExit(f"the two {name} differ")
        (tables / f"peer-{name}.npy").unlink()


if __name__ == "__main__":
    main()
