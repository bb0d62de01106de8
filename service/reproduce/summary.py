"""Runs to rows: means over seeds beside what the paper prints, and what the comparison comes to in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from statistics import fmean, median, pstdev
from typing import Any

from service.reproduce.datasets import DATASETS
from service.reproduce.harness import Done
from service.reproduce.measures import CHOICES, Measure, Score
from service.reproduce.published import PUBLISHED, Figure
from service.reproduce.tables import Table, Variant

__all__ = ["BASELINES", "Cell", "Mean", "Row", "findings", "rows_of"]

WITHIN = ", within their deviation"
BASELINES = {
    "raw_features": "Raw features",
    "ppr_smoothed": "PPR-smoothed features",
    "random_encoder": "Random encoder",
    "common_neighbors": "Common neighbours",
    "adamic_adar": "Adamic-Adar",
}


@dataclass(frozen=True)
class Mean:
    """Over seeds: of the means over splits; ``over_splits`` is the mean of a seed's deviation, both None for one."""

    mean: float
    over_splits: float | None
    over_seeds: float | None

    @property
    def deviation(self) -> float:
        """The larger of the two; 0 where there is neither."""
        return max(self.over_splits or 0.0, self.over_seeds or 0.0)


@dataclass(frozen=True)
class Cell:
    """One measure of a row: as published, and ours by choice of the epoch."""

    published: Figure | None
    ours: dict[str, Mean]

    @property
    def protocol(self) -> Mean | None:
        """By the paper's own choice of the epoch where the runs allow it, else of the last."""
        return self.ours.get("best_validation") or self.ours.get("last")

    @property
    def below_published(self) -> bool:
        """Whether the mean is less than the published one less its deviation (less 0.01 where none is printed)."""
        if self.published is None or self.protocol is None:
            return False
        mean, deviation = self.published
        return self.protocol.mean < mean - (0.01 if deviation is None else deviation)


@dataclass(frozen=True)
class Row:
    """A line of the report. A baseline has no epochs; a row that was not measured says why in ``missing``."""

    dataset: str
    variant: Variant
    cells: dict[str, Cell] = field(default_factory=dict)
    missing: str | None = None
    failed: bool = False
    seeds: int = 0
    epochs: float | None = None
    seconds: float | None = None
    epoch_ms: float | None = None
    peak_bytes: int | None = None
    parameters: int | None = None
    settings: dict[str, Any] | None = None
    degree_errors: dict[str, float] = field(default_factory=dict)

    @property
    def is_rgrl(self) -> bool:
        """Whether it was measured of a run of RGRL."""
        return self.settings is not None and self.settings["objective"] == "rgrl"


def rows_of(table: Table, done: Sequence[Done]) -> list[Row]:
    """A row a data set and variant, in the table's order, each group's baselines after it."""
    by_row: dict[tuple[str, str], list[Done]] = {}
    for one in done:
        by_row.setdefault((one.run.dataset, one.run.variant.title), []).append(one)
    rows: list[Row] = []
    places = list(DATASETS)
    ordered = sorted(by_row.values(), key=lambda runs: places.index(runs[0].run.dataset))
    for _, group in groupby(ordered, key=lambda runs: (runs[0].run.dataset, runs[0].run.variant.group)):
        members = list(group)
        rows += [_row(table, runs) for runs in members]
        rows += [baseline for runs in members for baseline in _baselines(table, runs)]
    return rows


def _row(table: Table, runs: Sequence[Done]) -> Row:
    dataset, variant = runs[0].run.dataset, runs[0].run.variant
    results = [one.result for one in runs if one.result is not None]
    missing = next((one.missing for one in runs if one.missing is not None), None)
    failed = any(one.failed for one in runs)
    if not results:
        return Row(dataset, variant, missing=missing, failed=failed)
    training = [result["training"] for result in results]
    return Row(
        dataset,
        variant,
        cells={measure.name: _cell(measure, dataset, variant, results) for measure in table.measures},
        missing=missing,
        failed=failed,
        seeds=len(results),
        epochs=fmean(one["epochs"] for one in training),
        seconds=fmean(one["seconds"] for one in training),
        epoch_ms=fmean(_epoch_ms(one) for one in training),
        peak_bytes=max(one["peak_bytes"] for one in training),
        parameters=training[0]["parameters"],
        settings=results[0]["settings"],
        degree_errors=_degree_errors(results) if table.by_degree else {},
    )


def _cell(measure: Measure, dataset: str, variant: Variant, results: Sequence[dict[str, Any]]) -> Cell:
    ours = {}
    for choice in CHOICES:
        scores = [measure.of_run(result["report"], choice) for result in results]
        whole = [score for score in scores if score is not None]
        if len(whole) == len(results):
            ours[choice] = _mean(whole)
    return Cell(_published(measure, dataset, variant.method), ours)


def _published(measure: Measure, dataset: str, method: str | None) -> Figure | None:
    return None if method is None else PUBLISHED[measure.name].get(dataset, {}).get(method)


def _mean(scores: Sequence[Score]) -> Mean:
    means = [score.mean for score in scores]
    deviations = [score.deviation for score in scores if score.deviation is not None]
    return Mean(fmean(means), fmean(deviations) if deviations else None, pstdev(means) if len(means) > 1 else None)


def _baselines(table: Table, runs: Sequence[Done]) -> list[Row]:
    """Rows of what the group's runs stand beside, from the run that measured it."""
    reports = [one.result["report"] for one in runs if one.result is not None and one.result["report"] is not None]
    found: dict[str, dict[str, Score]] = {}
    for measure in table.measures:
        for report in reports:
            for name, score in measure.of_baselines(report).items():
                found.setdefault(name, {})[measure.name] = score
    dataset, variant = runs[0].run.dataset, runs[0].run.variant
    rows = []
    for name, scores in found.items():
        title = BASELINES[name] + (f", {variant.group}" if variant.group else "")
        beside = Variant(
            title, {}, name, axis=variant.axis, place=variant.place, line=BASELINES[name], group=variant.group
        )
        cells = {
            measure.name: Cell(_published(measure, dataset, name), {"last": _mean([scores[measure.name]])})
            for measure in table.measures
            if measure.name in scores
        }
        rows.append(Row(dataset, beside, cells, seeds=1))
    return rows


def _epoch_ms(training: dict[str, Any]) -> float:
    """The median epoch, of a curve whose ``seconds`` add up; the mean where it has a single point."""
    points = {point["epoch"]: point["seconds"] for point in training["losses"]}
    places = sorted(points)
    spans = [(points[b] - points[a]) / (b - a) for a, b in pairwise(places)]
    return 1000.0 * float(median(spans) if spans else training["seconds"] / training["epochs"])


def _degree_errors(results: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The error rate by range of degrees, mean over seeds."""
    errors: dict[str, list[float]] = {}
    for result in results:
        for bucket in result["report"]["degree_buckets"]:
            low, high = bucket["min_degree"], bucket["max_degree"]
            errors.setdefault(f"{low}" if low == high else f"{low}–{high}", []).append(bucket["error_rate"])
    return {degrees: fmean(rates) for degrees, rates in errors.items()}


def findings(table: Table, rows: Sequence[Row]) -> list[str]:
    """In plain words: where RGRL beats not what stands beside it, and where a figure is below the published band."""
    said = []
    for row in (row for row in rows if row.settings is not None):
        for measure in table.measures:
            cell = row.cells.get(measure.name)
            if cell is not None and cell.below_published and cell.protocol is not None and cell.published is not None:
                said.append(
                    f"{_place(row, measure, table)}: {row.variant.title} is below the published band: "
                    f"{cell.protocol.mean:.{measure.decimals}f} against {cell.published[0]:.{measure.decimals}f}."
                )
    for _, group in groupby(rows, key=lambda row: (row.dataset, row.variant.group)):
        first, *others = group
        for measure in table.measures:
            said += _not_beaten(table, measure, first, others)
        said += _worse_by_degree(first, others)
    return said


def _worse_by_degree(first: Row, others: Sequence[Row]) -> list[str]:
    """Where another row errs less often, and at which degrees."""
    if not first.is_rgrl:
        return []
    said = []
    for row in others:
        degrees = [name for name, error in first.degree_errors.items() if row.degree_errors.get(name, 1.0) < error]
        if degrees:
            said.append(
                f"{DATASETS[first.dataset].title}: {first.variant.title} errs more often than {row.variant.title} on "
                f"nodes of degree {', '.join(degrees)}."
            )
    return said


def _not_beaten(table: Table, measure: Measure, first: Row, others: Sequence[Row]) -> list[str]:
    cell = first.cells.get(measure.name)
    if cell is None or cell.protocol is None or not (first.variant.rival and first.is_rgrl):
        return []
    ours, shown = cell.protocol.mean, f".{measure.decimals}f"
    said = []
    for row in others:
        theirs = row.cells[measure.name].protocol if measure.name in row.cells else None
        if theirs is not None and theirs.mean >= ours:
            apart = "" if theirs.mean - ours > max(cell.protocol.deviation, theirs.deviation) else WITHIN
            said.append(
                f"{_place(first, measure, table)}: {first.variant.title} does not beat {row.variant.title}: "
                f"{ours:{shown}} against {theirs.mean:{shown}}{apart}."
            )
    highest = table.highest.get(first.dataset)
    if highest is not None and ours < highest:
        said.append(
            f"{_place(first, measure, table)}: {first.variant.title} is below the highest published linear probe, of a "
            f"method with Half-Hop: {ours:{shown}} against {highest:{shown}}."
        )
    return said


def _place(row: Row, measure: Measure, table: Table) -> str:
    title = DATASETS[row.dataset].title
    return title if len(table.measures) == 1 else f"{title}, {measure.title}"
