"""Where an evaluation's report has the figures of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ACCURACY", "CHOICES", "LINKS", "MULTIPLEX", "Measure", "Score"]

CHOICES = {"best_validation": "Best validation", "last": "Last epoch", "label_free": "Label-free"}
"""Which epoch of a run a score is of; the first is the paper's."""


@dataclass(frozen=True)
class Score:
    """Of one run, in the unit of the paper; ``deviation`` over splits, None for a score of one split."""

    mean: float
    deviation: float | None


@dataclass(frozen=True)
class Measure:
    """A figure of a score: below ``section`` of the report and, within a score, ``part``."""

    name: str
    title: str
    section: str
    mean: str
    deviation: str | None = None
    part: str | None = None
    scale: float = 1.0
    decimals: int = 3

    def of_run(self, report: Mapping[str, Any], choice: str) -> Score | None:
        """At the epoch that ``choice`` names; None where the report has no such score."""
        return self._read((report.get(self.section) or {}).get("trained", {}).get(choice))

    def of_baselines(self, report: Mapping[str, Any]) -> dict[str, Score]:
        """By baseline, those that there are."""
        found = (report.get(self.section) or {}).get("baselines", {})
        return {name: score for name, value in found.items() if (score := self._read(value)) is not None}

    def _read(self, score: Mapping[str, Any] | None) -> Score | None:
        inner = score if score is None or self.part is None else score.get(self.part)
        if inner is None or inner.get(self.mean) is None:
            return None
        deviation = None if self.deviation is None else inner[self.deviation] * self.scale
        return Score(inner[self.mean] * self.scale, deviation)


ACCURACY = (Measure("accuracy", "Accuracy", "probe", "test_mean", "test_std", scale=100, decimals=2),)
LINKS = tuple(
    Measure(f"{kind}_{figure}", f"{figure.upper()}, {kind}", "links", f"test_{figure}", part=kind)
    for kind in ("random", "hard")
    for figure in ("auc", "ap")
)
MULTIPLEX = (
    Measure("macro_f1", "Macro-F1", "probe", "test_macro_f1_mean", "test_macro_f1_std"),
    # Of one label a node, micro-F1 is accuracy.
    Measure("micro_f1", "Micro-F1", "probe", "test_mean", "test_std"),
)
