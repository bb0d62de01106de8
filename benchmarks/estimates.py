"""What a dry run says of memory, disk and time against what the stages then took.

Graphs of ``rgrl generate blocks`` go through the stages as a job runs them, each a process of its own. Memory is the
most anonymous and shared pages that the stage's processes held at once, seen every 20 ms: mapped files, which the
kernel may drop, do not count. Disk is what the folders grew by at their largest. Seconds are the wall's; beside them
stand those of processors, which other work on the machine changes less. Kernels are compiled before, by a small run.

    python benchmarks/estimates.py [--repeat 3] [--quick]

Each figure is the median of its repeats. The last line is JSON; ``ratio`` is the worst factor between an estimate for a
whole job and what was measured, whichever is larger.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from preprocessing.artifact import read_manifest
from preprocessing.bundle import BUNDLE
from preprocessing.settings import PreprocessSettings
from preprocessing.stage import EVENTS_VARIABLE
from service.jobs.estimate import estimate
from service.jobs.stages import stage_command
from service.search.index_settings import IndexSettings
from service.store import Graph
from trainer.settings import EvaluateSettings, TrainSettings

# An ingest has no estimate: its graph has no counts yet.
STAGES = ("preprocess", "train", "evaluate", "index")
SMALL = (1_000, 16, "mini", 3, "hnsw")
QUICK = [(5_000, 64, "mini", 20, "hnsw")]
CASES = [
    (10_000, 16, "full", 60, "exact"),
    (30_000, 128, "full", 20, "hnsw"),
    (30_000, 500, "mini", 60, "exact"),
    (100_000, 128, "mini", 60, "hnsw"),
    (100_000, 16, "full", 8, "exact"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="One small graph, once.")
    arguments = parser.parse_args()
    cases, repeat = (QUICK, 1) if arguments.quick else (CASES, arguments.repeat)
    with tempfile.TemporaryDirectory() as scratch:
        _job(Path(scratch) / "small", *SMALL)
        rows = [_row(Path(scratch), case, repeat) for case in cases]
    worst = max(max(r, 1 / r) for row in rows for r in row["ratios"].values())
    claim = {
        "claim": "the estimate of a dry run is within a factor of two of the run",
        "ours": worst,
        "peer": 2.0,
        "ratio": worst,
        "unit": "largest factor between estimate and measurement of a job",
        "cases": rows,
        "settings": {"repeat": repeat},
        "machine": f"{os.cpu_count()} cores",
        "date": datetime.now(UTC).date().isoformat(),
    }
    print(json.dumps(claim))


def _row(scratch: Path, case: tuple[int, int, str, int, str], repeat: int) -> dict[str, Any]:
    runs = [_job(scratch / f"{'-'.join(map(str, case))}-{number}", *case) for number in range(repeat)]
    said = runs[0]["said"]
    print(f"\n{case[0]} nodes, {case[1]} columns, {case[2]} batch, {case[3]} steps, {case[4]} index")
    print(f"{'':12}{'memory MiB':>22}{'disk MiB':>22}{'seconds':>22}{'cpu s':>8}")
    stages: dict[str, Any] = {}
    for stage in STAGES:
        taken = {name: statistics.median(run[stage][name] for run in runs) for name in ("memory", "disk", "s", "cpu")}
        stages[stage] = {"said": said[stage], "taken": taken}
        memory, disk, seconds = said[stage]
        print(
            f"{stage:12}{_pair(memory / 2**20, taken['memory'] / 2**20)}{_pair(disk / 2**20, taken['disk'] / 2**20)}"
            f"{_pair(seconds, taken['s'])}{taken['cpu']:8.1f}"
        )
    taken = [stages[stage]["taken"] for stage in STAGES]
    total = (max(t["memory"] for t in taken), sum(t["disk"] for t in taken), sum(t["s"] for t in taken))
    guess = (
        max(m for m, _, _ in said.values()),
        sum(d for _, d, _ in said.values()),
        sum(s for _, _, s in said.values()),
    )
    ratios = dict(zip(("memory", "disk", "seconds"), (g / t for g, t in zip(guess, total, strict=True)), strict=True))
    print(f"{'job':12}" + "  ".join(f"{name} × {ratio:.2f}" for name, ratio in ratios.items()))
    return {"case": case, "stages": stages, "ratios": {name: round(ratio, 2) for name, ratio in ratios.items()}}


def _pair(said: float, taken: float) -> str:
    return f"{said:8.1f}/{taken:7.1f} ×{said / taken if taken else 0:5.2f}"


def _job(folder: Path, nodes: int, columns: int, mode: str, steps: int, kind: str) -> dict[str, Any]:
    folder.mkdir()
    tables, bundle, out = folder / "tables", folder / "bundle", folder / "out"
    made = {"kind": "blocks", "nodes": nodes, "degree": 20, "dimensions": columns}
    _stage("generate", {"out": str(tables), "settings": made}, folder)
    source = {"kind": "tables", "nodes": str(tables / "nodes"), "edges": str(tables / "edges")}
    run = {"epochs": steps} if mode == "full" else {"epochs": 1000, "max_steps": steps}
    train = {"batch": {"mode": mode}, "run": {**run, "device": "cpu"}}
    settings = {
        "ingest": {"source": source, "direction": "undirected"},
        "preprocess": PreprocessSettings().model_dump(mode="json"),
        "train": TrainSettings.model_validate(train).model_dump(mode="json"),
        "evaluate": EvaluateSettings(splits=5).model_dump(mode="json"),
        "index": IndexSettings(kind=kind).model_dump(mode="json"),  # type: ignore[arg-type]
    }
    specs: dict[str, dict[str, Any]] = {
        "ingest": {"out": str(bundle)},
        "preprocess": {"bundle": str(bundle)},
        "train": {"bundle": str(bundle), "out": str(out), "work": str(folder / "work")},
        "evaluate": {"bundle": str(bundle), "embeddings": str(out)},
        "index": {"embeddings": str(out)},
    }
    found: dict[str, Any] = {}
    for stage in ("ingest", *STAGES):
        found[stage] = _stage(stage, specs[stage] | {"settings": settings[stage]}, folder)
    manifest = read_manifest(bundle, BUNDLE)
    row: dict[str, Any] = dict.fromkeys(Graph.__dataclass_fields__)
    graph = Graph(**row | {"source": source, "counts": manifest["counts"], "features": manifest["features"]})
    cores = os.cpu_count() or 1
    found["said"] = {}
    for stage in STAGES:
        one = estimate([stage], settings, graph, None, cores)
        found["said"][stage] = (one.memory_bytes, one.disk_bytes, one.seconds)
    return found


def _stage(stage: str, spec: dict[str, Any], folder: Path) -> dict[str, float]:
    file = folder / f"{stage}.json"
    file.write_text(json.dumps(spec))
    before, cpu, began = _size(folder), _cpu(), time.monotonic()
    environment = os.environ | {EVENTS_VARIABLE: str(folder / "events")}
    log = (folder / "log").open("ab")
    process = psutil.Popen([*stage_command(stage), str(file)], env=environment, stdout=log, stderr=subprocess.STDOUT)
    memory = disk = turn = 0
    while process.poll() is None:
        memory = max(memory, _held(process))
        if turn % 10 == 0:
            disk = max(disk, _size(folder) - before)
        turn += 1
        time.sleep(0.02)
    seconds = time.monotonic() - began
    log.close()
    if process.returncode != 0:
        sys.exit(f"{stage} failed: {(folder / 'log').read_text()[-2000:]}")
    return {"memory": memory, "disk": max(disk, _size(folder) - before), "s": seconds, "cpu": _cpu() - cpu}


def _held(stage: psutil.Popen) -> int:
    total = 0
    try:
        family = [stage, *stage.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for process in family:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            continue
        kept = ("RssAnon:", "RssShmem:")
        total += sum(int(line.split()[1]) for line in status.splitlines() if line.startswith(kept))
    return total * 1024


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
