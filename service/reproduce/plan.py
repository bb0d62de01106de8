"""From a table to its runs: settings resolved and checked before anything is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from preprocessing.artifact import fingerprint
from preprocessing.errors import UsageError
from preprocessing.stage import usage_error
from service.reproduce.best import BEST
from service.reproduce.datasets import DATASETS
from service.reproduce.methods import METHODS
from service.reproduce.tables import TABLES, Table, Variant
from trainer.settings import EvaluateSettings, TrainSettings, overlay, resolve_preset

__all__ = ["Request", "Run", "plan"]

SNAPSHOTS_A_RUN = 20
Document = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """What a reproduction was asked for; None is the table's own.

    ``keep``: the embedding sets stay once measured. ``best``: every method trains by the best settings found for RGRL,
    where there are any, in place of the published.
    """

    table: str
    data: Path
    out: Path
    datasets: Sequence[str] | None = None
    methods: Sequence[str] | None = None
    seeds: int = 5
    epochs: int | None = None
    overrides: Document | None = None
    threads: int | None = None
    keep: bool = True
    best: bool = False

    def __post_init__(self) -> None:
        """``UsageError`` for a table, data set or method that does not exist, and for overrides that would be lost."""
        for what, given, known in (
            ("table", [self.table], TABLES),
            ("data set", self.datasets, DATASETS),
            ("method", self.methods, METHODS),
        ):
            if given == []:
                raise UsageError(f"no {what} is named", expected="one or more of " + ", ".join(known))
            for name in given or []:
                if name not in known:
                    raise UsageError(f"there is no such {what}", given=name, expected="one of " + ", ".join(known))
            if given and len(set(given)) < len(given):
                raise UsageError(f"a {what} is named twice", given=",".join(given), expected="each once")
        only = self.definition.methods
        if len(only) == 1 and self.methods not in (None, list(only)):
            raise UsageError(f"the table {self.table} is about one method", given=self.methods, expected=only[0])
        if self.best and self.table not in BEST:
            raise UsageError(
                f"no better settings than the published are known for the table {self.table}",
                given="--best",
                expected="one of " + ", ".join(BEST),
            )
        self._check_overrides(self.overrides or {})

    def _check_overrides(self, overrides: Document) -> None:
        for name, field in TrainSettings.model_fields.items():
            section = isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
            if section and name in overrides and not isinstance(overrides[name], dict):
                raise UsageError(
                    f"setting {name} is a group of settings", given=overrides[name], expected=f"--set {name}.….=VALUE"
                )
        owned = {
            "objective": "--methods",
            "preset": "--datasets",
            "run.seed": "--seeds",
            "run.snapshot_every": f"nothing: {SNAPSHOTS_A_RUN} snapshots a run are kept",
            **dict.fromkeys(self.definition.varied, f"nothing: the table {self.table} is about it"),
        }
        if self.epochs or self.definition.epochs:
            owned["run.epochs"] = "--epochs alone"
        for name, option in owned.items():
            if _has(overrides, name):
                raise UsageError(f"setting {name} cannot be laid over a table's own", expected=option)

    @property
    def definition(self) -> Table:
        """The table."""
        return TABLES[self.table]

    @property
    def report(self) -> str:
        """What its report and figures are called, without ending: one by the best settings stands beside another."""
        return f"{self.table}-best" if self.best else self.table

    def found(self, dataset: str) -> Document:
        """What to lay over the data set's preset before a variant's own settings."""
        return dict(BEST[self.table].get(dataset, {})) if self.best else {}


def _has(document: Document, name: str) -> bool:
    """Whether a document has the setting or group of settings ``name``, as ``run.seed``."""
    first, _, rest = name.partition(".")
    return first in document and (not rest or _has(document[first], rest))


@dataclass(frozen=True)
class Run:
    """One training and its evaluation."""

    dataset: str
    variant: Variant
    seed: int
    links: bool
    settings: Document
    evaluate: Document | None

    @property
    def graph(self) -> str:
        """The name of the bundle it trains on."""
        return f"{self.dataset}-links" if self.links else self.dataset

    @property
    def name(self) -> str:
        """The folder of the trained run: all tables that train alike share it."""
        trained = fingerprint(self.graph, self.settings)
        return f"{self.graph}-{self.settings['objective']}-seed{self.seed}-{trained[:10]}"

    @property
    def result(self) -> str:
        """The file of what was measured of it, by how it was measured."""
        return f"result-{fingerprint(self.evaluate)[:10]}.json"


def plan(request: Request) -> list[Run]:
    """The runs in the order to do them: every row once, then the next seed; ``UsageError`` for settings amiss."""
    table = request.definition
    return [
        _run(request, table, dataset, variant, seed)
        for seed in range(request.seeds)
        for dataset in request.datasets or table.datasets
        for variant in table.variants(dataset, request.methods or table.methods)
    ]


def _run(request: Request, table: Table, dataset: str, variant: Variant, seed: int) -> Run:
    settings = _train_settings(request, table, dataset, variant, seed)
    evaluate = _evaluate_settings(table, settings, seed)
    return Run(dataset, variant, seed, table.links, settings, evaluate)


def _train_settings(request: Request, table: Table, dataset: str, variant: Variant, seed: int) -> Document:
    document: Document = {"preset": dataset}
    given = {"run": {"epochs": request.epochs or table.epochs}} if request.epochs or table.epochs else {}
    for part in (request.found(dataset), variant.settings, given, request.overrides or {}, {"run": {"seed": seed}}):
        document = overlay(document, part)
    resolved = resolve_preset(document)
    if table.evaluate is not None:
        every = {"snapshot_every": max(1, resolved["run"]["epochs"] // SNAPSHOTS_A_RUN)}
        resolved = overlay(resolved, {"run": every})
    return _checked(TrainSettings, resolved, f"--best of {dataset}" if request.found(dataset) else None)


def _evaluate_settings(table: Table, settings: Document, seed: int) -> Document | None:
    if table.evaluate is None:
        return None
    # Baselines are the same for every method and seed.
    baselines = table.baselines and seed == 0 and settings["objective"] == "rgrl"
    return _checked(EvaluateSettings, table.evaluate | {"baselines": baselines})


def _checked(
    model: type[TrainSettings] | type[EvaluateSettings], document: Document, where: str | None = None
) -> Document:
    try:
        return model.model_validate(document).model_dump(mode="json")
    except ValidationError as error:
        raise usage_error(error, model, where) from error
