"""A table from its plan to its report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from preprocessing.artifact import MANIFEST, locked, read_plain
from preprocessing.errors import UsageError
from preprocessing.stage import disk_errors
from service.reproduce import report
from service.reproduce.datasets import DATASETS
from service.reproduce.harness import Done, Show, run_all
from service.reproduce.plan import Request, Run, plan
from service.reproduce.plots import charts, draw
from service.reproduce.summary import Row, rows_of

__all__ = ["reproduce"]

NO_PLOTS = "there are no figures without matplotlib: pip install 'rgrl[plots]', and run the same command again"


def reproduce(request: Request, show: Show) -> dict[str, Any]:
    """Run what is left of the table and write its report after every run, so that a killed one leaves one too.

    ``show`` takes events of ``preprocessing.stage``. The answer is the report. ``UsageError`` where the folder cannot
    be made, has graphs of other data, or another process works in it, or where that of the data is not there;
    ``ResourceError`` where the disk refuses.
    """
    runs = plan(request)
    if not request.data.is_dir():
        raise UsageError("the folder of data sets does not exist", given=request.data, expected="--data DIR")
    try:
        request.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError("the folder cannot be made", given=request.out, expected=f"a folder; {error}") from error
    with disk_errors(request.out), locked(request.out / "reproduction"):
        _check_data(request, runs)
        return _reproduced(request, runs, show)


def _check_data(request: Request, runs: Sequence[Run]) -> None:
    """``UsageError`` for a file of data where the folder has a graph, and so results, of another."""
    for name in sorted({run.dataset for run in runs}):
        file = request.data / DATASETS[name].file
        made = request.out / "graphs" / name / MANIFEST
        with suppress(OSError, ValueError, LookupError, TypeError):
            source = json.loads(read_plain(made))["settings"]["source"]
            of = source["path"] if source["kind"] == "npz" else source["name"]
            if file.exists() and Path(of).resolve() != file.resolve():
                raise UsageError(
                    f"the folder has a graph of {name} already that was made of other data",
                    given=f"{file}, for {request.out}",
                    expected=f"the data that it was made of: {of}",
                    remedy="name another --out; or --data with the folder of before",
                )


def _reproduced(request: Request, runs: Sequence[Run], show: Show) -> dict[str, Any]:
    done: list[Done] = []
    made: dict[str, Any] = {}
    for one in run_all(request, runs, show):
        done.append(one)
        made = report.write(request, rows_of(request.definition, done), [])
    rows = rows_of(request.definition, done)
    return report.write(request, rows, _drawn(request, rows, show)) if made else made


def _drawn(request: Request, rows: list[Row], show: Show) -> list[Path]:
    try:
        return [file for chart in charts(request, rows) for file in draw(chart, request.out)]
    except ImportError:
        show({"event": "warning", "stage": "reproduce", "code": "no_plots", "message": NO_PLOTS})
        return []
