"""A stage run here, without a server: with progress bars, and ended with the stage's own exit code."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from preprocessing.errors import RgrlError
from service.cli.output import fail, log_before, print_facts, print_json

if TYPE_CHECKING:
    from service.jobs.stages import StageOutcome

__all__ = ["run_here"]


_PROVENANCE = {"schema_version", "fingerprint", "content_hash", "identity", "code_version", "created_at"}
"""What programs compare, and no person reads."""


def run_here(
    stage: str,
    spec: dict[str, Any],
    as_json: bool,
    scratch: Path | None = None,
    facts: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> None:
    """Run a stage with progress bars and exit as it does; ``scratch`` goes once it is done.

    ``facts`` are what a person is told of the stage's summary: by default all but its provenance.
    """
    from service.client.progress import ProgressView
    from service.jobs.stages import run_stage

    with ProgressView() as view:
        outcome = run_stage(stage, spec, lambda event: view.show(event["event"], event["stage"], event))
    if outcome.exit_code == 0:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        summary = outcome.summary or {}
        if as_json:
            print_json(summary)
        else:
            print_facts((facts or _without_provenance)(summary))
        return
    raise typer.Exit(_explain(outcome, as_json))


def _without_provenance(summary: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _without_provenance(value) if isinstance(value, dict) else value
        for name, value in summary.items()
        if name not in _PROVENANCE
    }


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
