"""What a dry run says of memory, disk and time against what the stages then took.

Graphs of ``rgrl generate blocks`` go through the stages as a job runs them, each a process of its own. Memory is the
most anonymous and shared pages that the stage's processes held at once, seen every 20 ms: mapped files, which the
kernel may drop, do not count. Disk is what the folders grew by at their largest. Time is compared in seconds of
processors, which other work on the machine changes less than the wall's: those that a dry run says for one core, and
those that the stage's processes took. The wall's are told beside them, with those said for all cores and the load.
Kernels are compiled before, by a small run. An ingest's figures are by its source's files, the others' by its bundle.

    python benchmarks/estimates.py [--repeat 3] [--case NODES,COLUMNS,BATCH,STEPS,INDEX ...]

Each figure is the median of its repeats. The last line is JSON; ``ratio`` is the worst factor between an estimate for a
whole job and what was measured, whichever is larger. Exit code 1: it is more than two.
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
from process_memory import held_bytes

from preprocessing.artifact import read_manifest
from preprocessing.bundle import BUNDLE
from preprocessing.settings import PreprocessSettings
from preprocessing.stage import EVENTS_VARIABLE
from service.jobs.estimate import estimate
from service.jobs.graph_size import graph_size
from service.jobs.stages import stage_command
from service.search.index_settings import IndexSettings
from service.store import Graph
from trainer.settings import EvaluateSettings, TrainSettings

STAGES = ("ingest", "preprocess", "train", "evaluate", "index")
FIGURES = ("memory", "disk", "cpu", "wall")
JUDGED = FIGURES[:3]
MOST = 2.0
SMALL = "1000,16,mini,3,hnsw"
CASES = [
    "10000,16,full,60,exact",
    "30000,128,full,20,hnsw",
    "30000,500,mini,60,exact",
    "100000,128,mini,60,hnsw",
    "100000,16,full,8,exact",
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--case", action="append", help="Only these, as NODES,COLUMNS,BATCH,STEPS,INDEX.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        _job(Path(scratch) / "small", SMALL)
        rows = [_row(Path(scratch), case, arguments.repeat) for case in arguments.case or CASES]
    worst = max(max(row["ratios"][name], 1 / row["ratios"][name]) for row in rows for name in JUDGED)
    claim = {
        "claim": "the estimate of a dry run is within a factor of two of the run, in memory, disk and processor time",
        "ours": worst,
        "peer": MOST,
        "ratio": worst,
        "unit": "largest factor between estimate and measurement of a job",
        "cases": rows,
        "settings": {"repeat": arguments.repeat},
        "machine": f"{os.cpu_count()} cores",
        "date": datetime.now(UTC).date().isoformat(),
    }
    print(json.dumps(claim))
    return 0 if worst <= MOST else 1


def _row(scratch: Path, case: str, repeat: int) -> dict[str, Any]:
    runs = [_job(scratch / f"{case}-{number}", case) for number in range(repeat)]
    load = round(os.getloadavg()[1], 1)
    print(f"\n{case}, load {load} on {os.cpu_count()} cores")
    print(f"{'':12}{'memory MiB':>24}{'disk MiB':>24}{'cpu s':>24}{'wall s':>24}")
    said = runs[0]["said"]
    taken = {s: {name: statistics.median(run[s][name] for run in runs) for name in FIGURES} for s in STAGES}
    for stage in STAGES:
        print(f"{stage:12}" + "".join(_pair(name, said[stage][name], taken[stage][name]) for name in FIGURES))
    guess, total = _whole(said), _whole(taken)
    print(f"{'job':12}" + "".join(_pair(name, guess[name], total[name]) for name in FIGURES), flush=True)
    ratios = {name: round(guess[name] / total[name], 2) for name in FIGURES}
    return {"case": case, "load": load, "said": said, "taken": taken, "ratios": ratios}


def _whole(stages: dict[str, dict[str, float]]) -> dict[str, float]:
    """Of a job: the largest memory, and the sums."""
    rows = stages.values()
    return {name: max(r[name] for r in rows) if name == "memory" else sum(r[name] for r in rows) for name in FIGURES}


def _pair(name: str, said: float, taken: float) -> str:
    unit = 2**20 if name in {"memory", "disk"} else 1
    return f"{said / unit:9.1f}/{taken / unit:8.1f} ×{said / taken if taken else 0:5.2f}"


def _job(folder: Path, case: str) -> dict[str, Any]:
    """Generate a graph and run all stages on it; by stage the figures taken, and as ``said`` those of dry runs."""
    numbers, mode, kind = [int(part) for part in case.split(",") if part.isdigit()], *case.split(",")[2::2]
    nodes, columns, steps = numbers
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
    for stage in STAGES:
        found[stage] = _stage(stage, specs[stage] | {"settings": settings[stage]}, folder)
    row: dict[str, Any] = dict.fromkeys(Graph.__dataclass_fields__)
    row |= {"source": source, "direction": "undirected", "feature_dtype": "float32"}
    manifest = read_manifest(bundle, BUNDLE)
    facts = {name: manifest[name] for name in ("counts", "features", "labels")}
    before, after = graph_size(Graph(**row)), graph_size(Graph(**row | facts))
    found["said"] = {}
    for stage in STAGES:
        size = before if stage == "ingest" else after
        one, all_cores = (estimate([stage], settings, size, None, cores) for cores in (1, os.cpu_count() or 1))
        figures = (one.memory_bytes, one.disk_bytes, one.seconds, all_cores.seconds)
        found["said"][stage] = dict(zip(FIGURES, figures, strict=True))
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
        memory = max(memory, held_bytes(process, "RssAnon", "RssShmem"))
        if turn % 10 == 0:
            disk = max(disk, _size(folder) - before)
        turn += 1
        time.sleep(0.02)
    seconds = time.monotonic() - began
    log.close()
    if process.returncode != 0:
        sys.exit(f"{stage} failed: {(folder / 'log').read_text()[-2000:]}")
    return {"memory": memory, "disk": max(disk, _size(folder) - before), "cpu": _cpu() - cpu, "wall": seconds}


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
    sys.exit(main())
