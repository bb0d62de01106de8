"""A stage run here, without a server: with progress bars, and ended with the stage's own exit code."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from preprocessing.errors import RgrlError
from service.cli.output import fail, log_before, print_facts, print_json

if TYPE_CHECKING:
    from service.jobs.stages import StageOutcome

__all__ = ["run_here"]


def run_here(stage: str, spec: dict[str, Any], as_json: bool, scratch: Path | None = None) -> None:
    """Run a stage with progress bars and exit as it does; ``scratch`` goes once it is done."""
    from service.client.progress import ProgressView
    from service.jobs.stages import run_stage

    with ProgressView() as view:
        outcome = run_stage(stage, spec, lambda event: view.show(event["event"], event["stage"], event))
    if outcome.exit_code == 0:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        (print_json if as_json else print_facts)(outcome.summary or {})
        return
    raise typer.Exit(_explain(outcome, as_json))


def _explain(outcome: StageOutcome, as_json: bool) -> int:
    """Print why the stage failed, with its log where its own words do not suffice; the answer is its exit code."""
    told = outcome.error or {
        "code": "killed",
        "message": "the stage ended without a word; it may have been killed",
        "remedy": "run the same command again: it continues",
    }
    parts = {name: told.get(name) for name in ("given", "expected", "remedy", "where", "pointer")}
    error = RgrlError(told["message"], **parts)
    error.code = told["code"]
    if error.code in {"killed", "internal", "out_of_memory"} and (log := log_before(error, outcome.log)):
        print(log, file=sys.stderr)
    fail(error, as_json=as_json)
    return outcome.exit_code
