"""Mini-batch training and the export by the size of the graph: nodes a second, where the time goes, memory.

Each bundle (from ``rgrl generate blocks``, ``rgrl ingest``, ``rgrl preprocess``) is trained for so many steps by the
train stage itself, in a process of its own, with the default settings, and every node is embedded. Memory is the most
anonymous pages that the stage's processes held at once, seen every tenth of a second: mapped files, which the kernel
may drop, do not count. A second process times the parts of a step, and the floor: what the step's dense products, its
gathered rows and its passes over activations take at the rates that this machine reaches on each of them alone.

    python benchmarks/mini_batch.py BUNDLE ... [--steps 200] [--workers 0 1 2] [--set NAME=VALUE ...]

Without a bundle, one of 10^5 nodes is made and few steps are trained (``--quick``). The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import torch
from process_memory import held_bytes
from torch.nn import functional

from preprocessing.bundle import Bundle
from preprocessing.generate import generate
from preprocessing.ingest import ingest
from preprocessing.ppr import preprocess
from preprocessing.stage import EVENTS_VARIABLE, Emitter
from trainer.dense import rows_times
from trainer.features import load_features
from trainer.mini_batch import MiniBatch
from trainer.objectives import Step, new_objective
from trainer.process import THREADING, tune_process
from trainer.sampler_backends import new_sampler
from trainer.settings import TrainSettings
from trainer.unread_rows import UnreadRows

WARM_UP = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundles", nargs="*", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--parts", type=int, default=20, help="Steps whose parts are timed.")
    parser.add_argument("--workers", type=int, nargs="*", default=[0], help="0: without Ray.")
    parser.add_argument("--set", dest="changes", nargs="*", default=[], metavar="NAME=VALUE", help="section.name=JSON")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--scratch", type=Path, help="Where runs are kept while they are; default: the system's.")
    parser.add_argument("--quick", action="store_true", help="10^5 nodes, made here, and 40 steps.")
    parser.add_argument("--side", choices=["parts"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        tune_process()
        torch.set_num_threads(arguments.threads)
        print(json.dumps(_parts(Bundle(arguments.bundles[0]), _settings(arguments), arguments.parts)))
        return
    if arguments.quick:
        arguments.steps, arguments.parts = 40, 5
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch:
        bundles = arguments.bundles or [_small(Path(scratch))]
        measured = [
            _measured(path, workers, arguments, Path(scratch)) for path in bundles for workers in arguments.workers
        ]
        parts = {str(path): _side(path, arguments) for path in bundles}
    _print(measured, parts)
    claim = {
        "claim": "mini-batch training and export by size",
        "runs": measured,
        "parts": parts,
        "settings": {"steps": arguments.steps, "threads": arguments.threads, "set": arguments.changes},
        "machine": f"{os.cpu_count()} cores, torch {torch.__version__}",
        "date": datetime.now(UTC).date().isoformat(),
    }
    print(json.dumps(claim))


def _settings(arguments: argparse.Namespace, **run: Any) -> TrainSettings:
    document: dict[str, Any] = {"batch": {"mode": "mini"}, "run": {"epochs": 1_000, "device": "cpu", **run}}
    for change in arguments.changes:
        name, value = change.split("=", 1)
        section, key = name.split(".", 1)
        document.setdefault(section, {})[key] = json.loads(value)
    return TrainSettings.model_validate(document)


def _small(folder: Path) -> Path:
    """10^5 nodes and 10^6 edges with 128 features."""
    source = folder / "blocks"
    generate(
        {"out": source, "settings": {"kind": "blocks", "nodes": 100_000, "degree": 20, "dimensions": 128}},
        Emitter("generate"),
    )
    tables = {"kind": "tables", "nodes": str(source / "nodes"), "edges": str(source / "edges")}
    bundle = folder / "bundle"
    ingest({"out": bundle, "settings": {"source": tables, "direction": "undirected"}}, Emitter("ingest"))
    preprocess({"bundle": bundle, "settings": {"ppr": {"top_k": 8, "epsilon_floor": 1e-3}}}, Emitter("preprocess"))
    return bundle


def _measured(path: Path, workers: int, arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """A run of the stage: its rates after the first report, and its memory in training and in the export."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    settings = _settings(arguments, num_workers=workers, max_steps=arguments.steps)
    spec = {"bundle": str(path), "out": str(folder / "out"), "work": str(folder / "work")}
    (folder / "spec.json").write_text(json.dumps(spec | {"settings": settings.model_dump()}))
    events = folder / "events"
    command = [sys.executable, "-m", "trainer", "train", str(folder / "spec.json")]
    environment = os.environ | THREADING | {EVENTS_VARIABLE: str(events), "OMP_NUM_THREADS": str(arguments.threads)}
    stage = psutil.Popen(command, env=environment)
    most: dict[str, int] = {}
    while stage.poll() is None:
        phase = "export" if events.exists() and b"nodes and layers" in _tail(events) else "train"
        most[phase] = max(most.get(phase, 0), held_bytes(stage, "RssAnon"))
        time.sleep(0.1)
    if stage.returncode != 0:
        sys.exit(f"the run on {path} failed with {stage.returncode}")
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    reports = [line["values"] for line in lines if line["event"] == "metrics"]
    # The first report counts threads' start and the first pages read.
    rates = [report["nodes_per_s"] for report in reports[1:] or reports]
    waits = [report["data_wait_s"] for report in reports[1:] or reports]
    embedded = [line for line in lines if line.get("unit") == "nodes and layers embedded"]
    bundle = Bundle(path)
    return {
        "bundle": path.name,
        "nodes": bundle.num_nodes,
        "arcs": bundle.topology.num_arcs,
        "workers": workers,
        "nodes_per_s": round(float(np.median(rates)), 1),
        "data_wait_s_a_report": round(float(np.median(waits)), 3),
        "export_s": round(_seconds(embedded), 1),
        "train_mib": most.get("train", 0) >> 20,
        "export_mib": most.get("export", 0) >> 20,
    }


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 400))
        return file.read()


def _seconds(events: list[dict[str, Any]]) -> float:
    """From the first of some events to the last."""
    times = [datetime.fromisoformat(event["time"]) for event in events]
    return (times[-1] - times[0]).total_seconds() if times else 0.0


def _side(path: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """The parts of a step, timed in a fresh process."""
    command = [sys.executable, __file__, str(path), "--side", "parts", "--parts", str(arguments.parts)]
    command += ["--threads", str(arguments.threads), "--set", *arguments.changes]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | THREADING)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class _Clock:
    """Seconds by name, of parts that follow one another."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def of(self, name: str) -> AbstractContextManager[None]:
        """A part that runs inside it."""

        @contextmanager
        def timed() -> Any:
            began = time.perf_counter()
            yield
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

        return timed()

    def calls(self, called: Callable[..., Any], name: str) -> Callable[..., Any]:
        """The function, whose calls are a part."""

        def timed(*arguments: Any, **options: Any) -> Any:
            with self.of(name):
                return called(*arguments, **options)

        return timed


def _parts(bundle: Bundle, settings: TrainSettings, count: int) -> dict[str, Any]:
    """Milliseconds of a step's parts, one after the other and nothing made ahead; what a step holds; its floor."""
    cpu = torch.device("cpu")
    store = load_features(bundle, settings.features)
    clock, sampler = _Clock(), new_sampler(settings.batch)
    timed: Any = SimpleNamespace(name=sampler.name, sample=clock.calls(sampler.sample, "sampling"))
    steps = MiniBatch(bundle, store, settings, device=cpu, sampler=timed)
    model = new_objective(store.num_columns, settings)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=settings.optimizer.lr, fused=True)
    for owner, name, label in (
        (store, "rows", "features"),
        (UnreadRows, "summed", "features"),
        (model.target, "forward", "target forward"),
        (model.online, "forward", "online forward"),
    ):
        setattr(owner, name, clock.calls(getattr(owner, name), label))
    totals = []
    sizes: list[dict[str, int]] = []
    for number in range(WARM_UP + count):
        if number == WARM_UP:
            clock.seconds.clear()
            totals.clear()
        began = time.perf_counter()
        with clock.of("step data"):
            step = steps.step(0, number)
        with clock.of("forward"):
            losses = model(step)
        with clock.of("backward"):
            losses[0].backward()
        with clock.of("optimizer and target"):
            optimizer.step()
            optimizer.zero_grad()
            model.update_target(settings.optimizer.ema_decay)
        totals.append(time.perf_counter() - began)
        sizes.append(_size(step))
    seconds = {name: total / count for name, total in clock.seconds.items()}
    seconds["views and parts"] = seconds["step data"] - seconds["sampling"] - seconds["features"]
    seconds["predictor and loss"] = seconds.pop("forward") - seconds["target forward"] - seconds["online forward"]
    del seconds["step data"]
    held = {name: round(float(np.mean([size[name] for size in sizes[WARM_UP:]]))) for name in sizes[0]}
    floor = _floor(store, bundle.num_nodes, settings, held)
    return {
        "milliseconds": {name: round(1e3 * value, 1) for name, value in seconds.items()},
        "step_ms": round(1e3 * float(np.median(totals)), 1),
        "floor_ms": {name: round(1e3 * value, 1) for name, value in floor.items()},
        "holds": held,
    }


def _size(step: Step) -> dict[str, int]:
    """Rows, columns and arcs of a step's matrices: of all that the target embeds, and of the queries' part."""
    size = {"queries": step.queries.stop - step.queries.start}
    for name, views in (("all", step.views), ("part", step.query_views)):
        for layer, adjacency in enumerate(views[0].adjacencies):
            size[f"{name}_{layer}_rows"], size[f"{name}_{layer}_columns"] = adjacency.shape
            size[f"{name}_{layer}_arcs"] = int((adjacency.values != 0).sum())
    return size


def _floor(store: Any, nodes: int, settings: TrainSettings, held: dict[str, int]) -> dict[str, float]:
    """Seconds of a step's operations and bytes at this machine's rates, each measured alone.

    A layer sums the rows it hears before it multiplies them, or after, whichever is less. Every activation is written
    and read once, forward and, online, backward. Features are read at random from the store as it is mapped.
    """
    widths = [store.num_columns, *settings.encoder.layers]
    rows = held["all_0_rows"]
    x_ND, weight = torch.randn(max(rows, 8192), widths[1]), torch.randn(widths[1], widths[2])
    flops = 2 * x_ND.numel() * widths[2] / _fastest(lambda: rows_times(x_ND, weight))
    out_ND = torch.empty_like(x_ND)
    stream = 2 * x_ND.numel() / _fastest(lambda: out_ND.copy_(x_ND))
    table = torch.randn(held["all_0_columns"], widths[0])
    places = torch.randint(len(table), (rows, 8))
    gathered = places.numel() * widths[0] / _fastest(lambda: functional.embedding_bag(places, table, mode="sum"))
    rng = np.random.default_rng(0)
    read = _fastest(lambda: store.rows(rng.integers(0, nodes, held["all_0_columns"])))

    products = summed = streamed = 0.0
    for name, passes in (("all", 2), ("part", 2)):
        online = name == "part"
        for layer, (width, following) in enumerate(pairwise(widths)):
            reached, heard, arcs = (held[f"{name}_{layer}_{what}"] for what in ("rows", "columns", "arcs"))
            # Backward, a product costs two, and a sum another; features take no gradient.
            multiply, add = (1, 1) if not online else (2, 1 if width <= following else 2) if layer == 0 else (3, 2)
            orders = [
                (passes * multiply * 2 * rows * width * following, passes * add * arcs * wide)
                for rows, wide in ((reached, width), (heard, following))
            ]
            product, sums = min(orders, key=lambda order: order[0] / flops + order[1] / gathered)
            products, summed = products + product, summed + sums
            streamed += passes * 2 * reached * 2 * following * (2 if online else 1)
    queries, width, hidden = held["queries"], widths[-1], settings.encoder.predictor_hidden
    anchors, nearest = settings.anchors.num_global, settings.anchors.num_local
    products += 2 * 3 * 2 * queries * 2 * width * hidden + 2 * 3 * 2 * queries * anchors * width
    summed += 2 * 3 * queries * nearest * width
    streamed += 2 * 2 * queries * 3 * (hidden + width)
    parts = {
        "products": products / flops,
        "neighbours": summed / gathered,
        "passes": streamed / stream,
        "features": read,
    }
    return parts | {"all": sum(parts.values())}


def _fastest(call: Callable[[], Any]) -> float:
    seconds = []
    for _ in range(WARM_UP + 5):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return min(seconds[WARM_UP:])


def _print(measured: list[dict[str, Any]], parts: dict[str, Any]) -> None:
    columns = list(measured[0])
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for run in measured:
        print(f"| {' | '.join(f'{value:,}' if isinstance(value, int | float) else value for value in run.values())} |")
    for path, found in parts.items():
        print(f"\n{Path(path).name}: a step of {found['step_ms']} ms, floor {found['floor_ms']['all']} ms")
        for name in ("milliseconds", "floor_ms", "holds"):
            print(f"  {name}: " + ", ".join(f"{what} {value:,}" for what, value in found[name].items()))


if __name__ == "__main__":
    main()
