"""What the default settings give on every real graph: speed, recall, proofs, and whether the proofs are right.

All rows are made, two threads; a sample of them is held against exact rows (to 1e-14). A row marked exact whose set is
not a true top 16 ends the run with an error.

    python benchmarks/ppr_defaults.py [--data DIR] [--sample 512] [--graphs NAME ...]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from ppr import K, exact_rows, ingested, looped, recall_at_k

from preprocessing.bundle import Topology
from preprocessing.locality import renumber
from preprocessing.row_solver import RowSolver
from preprocessing.settings import PprSettings
from preprocessing.workspace import Rows

BLOCK = 128
ROUNDING = 1e-12
NPZ = ["cora", "citeseer", "amazon_photo", "amazon_computers", "coauthor_cs", "coauthor_physics", "imdb_multiplex"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("RGRL_DATA_DIR", ".")))
    parser.add_argument("--sample", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--graphs", nargs="*")
    arguments = parser.parse_args()
    sources: dict[str, dict[str, object]] = {
        name: {"kind": "npz", "path": str(arguments.data / f"{name}.npz")} for name in NPZ
    }
    sources["musae_facebook"] = {
        "kind": "tables",
        "edges": str(arguments.data / "musae_facebook" / "edges.parquet"),
    }
    sources["dblp_2010_edges"] = {"kind": "tables", "edges": str(arguments.data / "dblp_2010_edges.parquet")}
    print("| graph | nodes | arcs | rows/s | recall@16 | exact | tied | gap, median | visits a row | wrong proofs |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        for name, source in sources.items():
            if arguments.graphs and name not in arguments.graphs:
                continue
            bundle = ingested(Path(scratch) / name, source)
            print(f"| {name} | {_figures(bundle.symmetric, arguments.threads, arguments.sample)} |", flush=True)


def _figures(topology: Topology, threads: int, sample: int) -> str:
    nodes = np.arange(topology.num_nodes)
    rows = Rows.empty(len(nodes), K)
    with RowSolver(renumber(topology, PprSettings(), threads), PprSettings(), threads) as solver:
        began = time.perf_counter()
        for _ in solver.fill(nodes, rows):
            continue
        took = time.perf_counter() - began
    connected = np.flatnonzero(topology.degrees() > 0)
    drawn = np.sort(np.random.default_rng(1).choice(connected, min(sample, len(connected)), replace=False))
    adjacency, recalls, wrong = looped(topology), [], 0
    for begin in range(0, len(drawn), BLOCK):
        some = drawn[begin : begin + BLOCK]
        truth = exact_rows(adjacency, some)
        recalls.append(recall_at_k(truth, rows.neighbors[some]) * len(some))
        wrong += _wrong_proofs(truth, rows, some)
    if wrong:
        raise SystemExit(f"{wrong} rows are marked exact and are not")
    return " | ".join(
        [
            f"{topology.num_nodes:,}",
            f"{topology.num_arcs:,}",
            f"{len(nodes) / took:,.0f}",
            f"{sum(recalls) / len(drawn):.5f}",
            f"{rows.exact[connected].mean():.4f}",
            f"{rows.tied[connected].mean():.4f}",
            f"{np.median(rows.gap[connected]):.1e}",
            f"{rows.visits[connected].mean():,.0f}",
            f"0 of {len(drawn):,}",
        ]
    )


def _wrong_proofs(truth: np.ndarray, rows: Rows, sources: np.ndarray) -> int:
    """Rows marked exact that leave out a node with a larger score than one they keep."""
    wrong = 0
    for scores, source in zip(truth, sources, strict=True):
        if rows.exact[source]:
            kept = rows.neighbors[source, : rows.counts[source]]
            lowest = scores[kept].min() if len(kept) == K else 0.0
            left_out = np.delete(scores, kept).max(initial=0.0)
            wrong += int(left_out > lowest + ROUNDING)
    return wrong


if __name__ == "__main__":
    main()
