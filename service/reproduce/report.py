"""The report of a reproduction: ``OUT/TABLE.json`` for programs and ``OUT/TABLE.md`` for people, or ``TABLE-best``.

The JSON holds everything that the Markdown says: ``{table, title, best, created_at, machine, versions, seeds,
deviations, rows, findings, figures}``.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from preprocessing.artifact import code_version, write_json
from service.machine import machine
from service.reproduce.datasets import DATASETS
from service.reproduce.measures import CHOICES, Measure
from service.reproduce.plan import Request, plan
from service.reproduce.summary import Cell, Mean, Row, findings
from trainer.settings import overlay

__all__ = ["document", "write"]

PACKAGES = ("torch", "numpy", "numba", "scikit-learn")
BELOW = "▼"
LABEL_FREE_RULE = (
    "the first snapshot, once the windowed loss is flat, whose embeddings' effective rank no earlier one beats"
)


def document(request: Request, rows: Sequence[Row], figures: Sequence[Path]) -> dict[str, Any]:
    """The report as JSON."""
    table = request.definition
    return {
        "table": request.table,
        "title": f"{table.title}, by the best settings found" if request.best else table.title,
        "best": request.best,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "machine": {**asdict(machine()), "processor": _processor(), "system": platform.platform()},
        "versions": {"rgrl": code_version(), "python": sys.version.split()[0], **_versions()},
        "seeds": request.seeds,
        "deviations": _deviations(request),
        "rows": [_row(row) for row in rows],
        "findings": findings(table, rows),
        "figures": [figure.name for figure in figures],
    }


def write(request: Request, rows: Sequence[Row], figures: Sequence[Path]) -> dict[str, Any]:
    """Write both files; the answer is the JSON."""
    made = document(request, rows, figures)
    request.out.mkdir(parents=True, exist_ok=True)
    write_json(request.out / f"{request.report}.json", made)
    text = "\n".join(_markdown(request, rows, made)) + "\n"
    partial = request.out / f".{request.report}.md"
    partial.write_text(text, encoding="utf-8")
    partial.replace(request.out / f"{request.report}.md")
    return made


def _row(row: Row) -> dict[str, Any]:
    variant = row.variant
    told = {name: value for name, value in asdict(row).items() if name not in {"variant", "cells"}}
    cells = {
        name: {"published": cell.published, "below_published": cell.below_published, **asdict(cell)["ours"]}
        for name, cell in row.cells.items()
    }
    return {"dataset": row.dataset, "variant": variant.title, "place": variant.place, "scores": cells} | told


def _markdown(request: Request, rows: Sequence[Row], made: dict[str, Any]) -> Iterator[str]:
    table = request.definition
    yield f"# {made['title']}"
    yield ""
    yield from _scores(table.measures, rows) if table.measures else _costs(rows)
    if table.by_degree:
        yield from _errors_by_degree(rows)
    missing = [f"* {_title(row)}, {row.variant.title}: {row.missing}" for row in rows if row.missing is not None]
    yield from _section("Not measured", missing)
    if table.measures and any(row.variant.method is not None and row.cells for row in rows):
        said = made["findings"] or ["Nowhere among what was measured."]
        yield from _section("Where RGRL does not win, and what falls short", [f"* {text}" for text in said])
    yield from _section("Figures", [f"![{name}]({name})" for name in made["figures"] if name.endswith(".png")])
    yield from _section("Settings that deviate from the published", [f"* {text}" for text in made["deviations"]])
    facts = ", ".join(f"{name} {number}" for name, number in made["versions"].items())
    computer = made["machine"]
    yield from _section(
        "How",
        [
            f"{made['seeds']} {'seed' if made['seeds'] == 1 else 'seeds'} of training; {made['created_at']}; {facts}.",
            f"{computer['processor']}, {computer['cores']} cores, {computer['memory'] / 2**30:.0f} GiB, "
            f"{computer['gpus']} GPUs, {computer['system']}.",
        ],
    )


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield from (f"## {title}", "", *lines, "")


def _scores(measures: Sequence[Measure], rows: Sequence[Row]) -> Iterator[str]:
    titles = ["Data set", "", "Measure", "Published", *CHOICES.values(), "Difference", "Seeds", "Epochs", "Training, s"]
    yield from _header(titles)
    for row in rows:
        for measure in measures:
            cell = row.cells.get(measure.name)
            if cell is None:
                continue
            ours = [_mean(cell.ours.get(choice), measure) for choice in CHOICES]
            published = "" if cell.published is None else _figure(*cell.published, measure)
            trained = ["", "", ""] if row.epochs is None else [row.seeds, f"{row.epochs:.0f}", f"{row.seconds:,.1f}"]
            named = [_title(row), row.variant.title, measure.title]
            yield _line([*named, published, *ours, _difference(cell, measure), *trained])
    yield ""
    yield (
        "Means over seeds; in brackets the deviation over splits, then over seeds. The best-validation epoch reads "
        f"labels, as the paper's does; the label-free one is {LABEL_FREE_RULE}. The difference is of the first to "
        f"the published; {BELOW}: below the published mean less its deviation (0.01 where none is printed)."
    )
    yield ""


def _difference(cell: Cell, measure: Measure) -> str:
    if cell.published is None or cell.protocol is None:
        return ""
    mark = f" {BELOW}" if cell.below_published else ""
    return f"{cell.protocol.mean - cell.published[0]:+.{measure.decimals}f}{mark}"


def _mean(mean: Mean | None, measure: Measure) -> str:
    if mean is None:
        return ""
    spread = [value for value in (mean.over_splits, mean.over_seeds) if value is not None]
    brackets = "; ".join(f"{value:.{measure.decimals}f}" for value in spread)
    return f"{mean.mean:.{measure.decimals}f}" + (f" ({brackets})" if brackets else "")


def _figure(mean: float, deviation: float | None, measure: Measure) -> str:
    return f"{mean:.{measure.decimals}f}" + ("" if deviation is None else f" ({deviation:.{measure.decimals}f})")


def _costs(rows: Sequence[Row]) -> Iterator[str]:
    yield from _header(["Data set", "", "Epoch, ms", "Peak memory, MiB", "Parameters", "Seeds"])
    for row in rows:
        if row.epoch_ms is not None and row.peak_bytes is not None:
            figures = [f"{row.epoch_ms:,.1f}", f"{row.peak_bytes / 2**20:,.0f}", f"{row.parameters:,}", row.seeds]
            yield _line([_title(row), row.variant.title, *figures])
    yield ""
    yield "The median epoch, of a machine that nothing else used if it was so; memory is the training process's."
    yield ""


def _errors_by_degree(rows: Sequence[Row]) -> Iterator[str]:
    for dataset in dict.fromkeys(row.dataset for row in rows):
        measured = [row for row in rows if row.dataset == dataset and row.degree_errors]
        if measured:
            yield f"Share of misclassified nodes of {DATASETS[dataset].title} by degree, last epoch:"
            yield ""
            yield from _header(["Degree", *(row.variant.title for row in measured)])
            for degrees in measured[0].degree_errors:
                errors = [row.degree_errors.get(degrees) for row in measured]
                yield _line([degrees, *("" if error is None else f"{error:.4f}" for error in errors)])
            yield ""


def _deviations(request: Request) -> list[str]:
    said = [] if request.epochs is None else [f"run.epochs: {request.epochs} for every run"]
    if request.epochs is None and request.definition.epochs is not None:
        said.append(f"run.epochs: {request.definition.epochs} for every run, as this table measures epochs")
    said += [f"{name}: {value} for every run" for name, value in _flat(request.overrides or {})]
    return said + list(_found(request))


def _found(request: Request) -> Iterator[str]:
    """What ``--best`` changes, by data set, and for which methods where some have settings of their own for it."""
    asked = dict(_flat(overlay({"run": {"epochs": request.epochs}} if request.epochs else {}, request.overrides or {})))
    runs = plan(replace(request, seeds=1))
    for dataset in request.datasets or request.definition.datasets:
        if request.best and not request.found(dataset):
            yield f"--best has nothing for {DATASETS[dataset].title}: published settings"
        trained = {run.variant.title: dict(_flat(run.settings)) for run in runs if run.dataset == dataset}
        for name, value in _flat(request.found(dataset)):
            titles = [title for title, settings in trained.items() if settings[name] == value]
            if titles and name not in asked:
                whose = "" if len(titles) == len(trained) else f" ({', '.join(titles)})"
                yield f"{name}: {value} for {DATASETS[dataset].title}{whose}, as --best has it"


def _flat(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _header(titles: Sequence[str]) -> Iterator[str]:
    yield _line(titles)
    yield _line(["---"] * len(titles))


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _title(row: Row) -> str:
    return DATASETS[row.dataset].title


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or os.uname().machine)
