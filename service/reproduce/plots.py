"""The table's figures as PNG and SVG, by matplotlib (the extra ``plots``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from service.reproduce.datasets import DATASETS
from service.reproduce.plan import Request
from service.reproduce.summary import Row
from service.reproduce.tables import Axis

__all__ = ["Chart", "Line", "Panel", "charts", "draw"]

PANEL_INCHES = (4.6, 3.4)
FORMATS = ("png", "svg")


@dataclass(frozen=True)
class Line:
    """Points of one colour; ``deviation`` is over seeds, empty where there is none. ``joined``: by a line."""

    title: str
    x: Sequence[float | str]
    y: Sequence[float]
    deviation: Sequence[float]
    joined: bool = True


@dataclass(frozen=True)
class Panel:
    """The lines of one data set."""

    title: str
    lines: Sequence[Line]


@dataclass(frozen=True)
class Chart:
    """Panels side by side, as ``OUT/<name>.png`` and ``.svg``."""

    name: str
    axis: Axis
    unit: str
    panels: Sequence[Panel]


def charts(request: Request, rows: Sequence[Row]) -> list[Chart]:
    """What there is to draw of the rows so far."""
    return [*_over_axes(request, rows), *_by_degree(request, rows)]


def _over_axes(request: Request, rows: Sequence[Row]) -> Iterator[Chart]:
    """A chart for every axis, a line for every ``variant.line``, of the table's first measure."""
    axes = list(dict.fromkeys(row.variant.axis for row in rows if row.variant.axis is not None))
    for number, axis in enumerate(axes):
        measure = request.definition.measures[0]
        placed = [row for row in rows if row.variant.axis == axis and measure.name in row.cells]
        panels = [
            Panel(DATASETS[dataset].title, [_line(lines, measure.name) for lines in _lines(placed, dataset)])
            for dataset in dict.fromkeys(row.dataset for row in placed)
        ]
        if panels:
            name = request.report if len(axes) == 1 else f"{request.report}-{number + 1}"
            yield Chart(name, axis, measure.title + (", %" if measure.scale == 100 else ""), panels)


def _lines(rows: Sequence[Row], dataset: str) -> list[list[Row]]:
    lines: dict[str, list[Row]] = {}
    for row in rows:
        if row.dataset == dataset and next(iter(row.cells.values())).protocol is not None:
            lines.setdefault(row.variant.line, []).append(row)
    return list(lines.values())


def _line(rows: Sequence[Row], measure: str) -> Line:
    means = [mean for row in rows if (mean := row.cells[measure].protocol) is not None]
    deviations = [mean.over_seeds for mean in means if mean.over_seeds is not None]
    return Line(
        rows[0].variant.line,
        [row.variant.place for row in rows],
        [mean.mean for mean in means],
        deviations if len(deviations) == len(means) else [],
        joined=not isinstance(rows[0].variant.place, str),
    )


def _by_degree(request: Request, rows: Sequence[Row]) -> Iterator[Chart]:
    measured = [row for row in rows if row.degree_errors]
    if measured:
        panels = [
            Panel(
                DATASETS[dataset].title,
                [
                    Line(row.variant.title, list(row.degree_errors), list(row.degree_errors.values()), [])
                    for row in measured
                    if row.dataset == dataset
                ],
            )
            for dataset in dict.fromkeys(row.dataset for row in measured)
        ]
        yield Chart(request.report, Axis("degree"), "share misclassified", panels)


def draw(chart: Chart, out: Path) -> list[Path]:
    """Write the chart's files; the same chart gives the same bytes. ``ImportError`` without matplotlib."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    width, height = PANEL_INCHES
    with mpl.rc_context({"svg.hashsalt": chart.name, "font.size": 9}):
        figure = Figure(figsize=(width * len(chart.panels), height), layout="constrained")
        for place, panel in zip(figure.subplots(1, len(chart.panels), squeeze=False)[0], chart.panels, strict=True):
            for line in panel.lines:
                style = "o-" if line.joined else "o"
                place.errorbar(line.x, line.y, yerr=line.deviation or None, fmt=style, capsize=3, label=line.title)
            place.set(title=panel.title, xlabel=chart.axis.title, ylabel=chart.unit)
            if chart.axis.log:
                place.set_xscale("log")
            if len(panel.lines) > 1:
                place.legend(frameon=False)
            place.grid(alpha=0.3)
            if any(isinstance(x, str) for line in panel.lines for x in line.x):
                place.tick_params("x", rotation=30)
        files = [out / f"{chart.name}.{kind}" for kind in FORMATS]
        figure.savefig(files[0], dpi=160, metadata={"Software": ""})
        figure.savefig(files[1], metadata={"Date": None})
    return files
