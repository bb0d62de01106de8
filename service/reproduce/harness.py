"""Runs the plan, a stage at a time; what is done already is not done again.

::

    OUT/graphs/<data set>        bundles, shared by all tables
    OUT/runs/<run>/embeddings    the embedding set, with the last evaluation's report
    OUT/runs/<run>/work          checkpoints, until it is there
    OUT/runs/<run>/result-….json what was measured, by the evaluation's settings
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preprocessing.artifact import MANIFEST, write_json
from preprocessing.errors import InputError, Interrupted
from service.jobs.stages import run_stage
from service.reproduce.datasets import DATASETS
from service.reproduce.plan import Request, Run

__all__ = ["Done", "Show", "run_all"]

TOP_K = 16
"""PPR neighbours a node: as many as any table wants. Runs that use fewer read the first."""

Show = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Done:
    """A run and its result ``{report, training, settings}``, or why there is none.

    ``failed`` sets a stage that broke apart from data that is not at hand.
    """

    run: Run
    result: dict[str, Any] | None = None
    missing: str | None = None
    failed: bool = False


class _StageFailed(Exception):  # noqa: N818 (told to the run alone)
    """What the stage said."""


def run_all(request: Request, runs: Sequence[Run], show: Show) -> Iterator[Done]:
    """Every run's result as it comes; ``show`` takes the stages' events and, as unit ``runs``, how far all is.

    ``Interrupted`` when a stage was.
    """
    harness = _Harness(request, show)
    began, measured = time.monotonic(), 0
    for number, run in enumerate(runs):
        fresh = not harness.result_file(run).exists()
        done = harness.done(run)
        measured += fresh
        left = sum(not harness.result_file(rest).exists() for rest in runs[number + 1 :])
        eta = (time.monotonic() - began) / measured * left if measured else None
        progress = {"done": number + 1, "total": len(runs), "unit": "runs", "rate": None, "eta_s": eta}
        show({"event": "progress", "stage": "reproduce", **progress})
        yield done


class _Harness:
    """Where things lie, and what has gone wrong with graphs so far."""

    def __init__(self, request: Request, show: Show) -> None:
        self.request, self.show = request, show
        self.missing: dict[str, tuple[str, bool]] = {}
        """Why a graph is not there, and whether a stage failed."""

    def result_file(self, run: Run) -> Path:
        """Where the run's result is or will be."""
        return self._folder(run) / run.result

    def done(self, run: Run) -> Done:
        """Do what is left of a run."""
        file = self.result_file(run)
        result = _result(file)
        if result is None:
            try:
                self._graph(run)
            except (_StageFailed, InputError) as error:
                self.missing[run.graph] = str(error), isinstance(error, _StageFailed)
            if run.graph in self.missing:
                text, failed = self.missing[run.graph]
                return Done(run, missing=text, failed=failed)
            try:
                result = self._measure(run, file)
            except _StageFailed as error:
                return Done(run, missing=str(error), failed=True)
        if not self.request.keep:
            shutil.rmtree(self._folder(run) / "embeddings", ignore_errors=True)
        return Done(run, result)

    def _folder(self, run: Run) -> Path:
        return self.request.out / "runs" / run.name

    def _bundle(self, graph: str) -> Path:
        return self.request.out / "graphs" / graph

    def _graph(self, run: Run) -> None:
        """The bundle with PPR rows, made unless it is there or could not be made before."""
        bundle = self._bundle(run.graph)
        if run.graph in self.missing or (bundle / "ppr" / MANIFEST).exists():
            return
        whole = self._bundle(run.dataset)
        whole.parent.mkdir(parents=True, exist_ok=True)
        if not (whole / MANIFEST).exists():
            source = DATASETS[run.dataset].source(self.request.data, self.request.out / "pyg")
            try:
                self._stage("ingest", {"out": str(whole), "settings": {"source": source}})
            except _StageFailed as error:
                if source["kind"] == "pyg":
                    raise InputError(str(error)) from error  # Not at hand, and could not be fetched.
                raise
        if run.links and not (bundle / MANIFEST).exists():
            self._stage("split-edges", {"bundle": str(whole), "out": str(bundle)})
        settings = {"ppr": {"top_k": TOP_K}, "threads": self.request.threads}
        self._stage("preprocess", {"bundle": str(bundle), "settings": settings})

    def _measure(self, run: Run, file: Path) -> dict[str, Any]:
        bundle, folder = str(self._bundle(run.graph)), self._folder(run)
        embeddings, work = folder / "embeddings", folder / "work"
        folder.mkdir(parents=True, exist_ok=True)
        if not (embeddings / MANIFEST).exists():
            train = {"bundle": bundle, "out": str(embeddings), "work": str(work), "settings": run.settings}
            self._stage("train", train)
        shutil.rmtree(work, ignore_errors=True)
        if run.evaluate is not None:
            evaluate = {"bundle": bundle, "embeddings": str(embeddings), "settings": run.evaluate}
            self._stage("evaluate", evaluate)
        manifest = _read(embeddings / MANIFEST)
        report = _read(embeddings / "report.json") if run.evaluate is not None else None
        result = {"report": report, "training": manifest["training"], "settings": run.settings}
        write_json(file, result)
        return result

    def _stage(self, stage: str, spec: dict[str, Any]) -> None:
        outcome = run_stage(stage, spec, self.show)
        if outcome.exit_code == 0:
            return
        told = outcome.error or {"message": f"the stage ended without a word\n{outcome.log}"}
        if outcome.exit_code == Interrupted.exit_code:
            raise Interrupted(told["message"], remedy="run the same command again: it continues")
        parts = [told.get("where"), told["message"], told.get("given")]
        raise _StageFailed(f"{stage}: " + ": ".join(part for part in parts if part))


def _result(file: Path) -> dict[str, Any] | None:
    """What was measured before; None where nothing was, or the file is damaged: it is measured again then."""
    try:
        return _read(file)
    except (FileNotFoundError, ValueError):
        return None


def _read(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value
