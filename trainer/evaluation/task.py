"""What a bundle's labels let a probe be trained and tested on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from preprocessing.bundle import Bundle, Labels
from trainer.evaluation.splits import Splits, probe_splits
from trainer.evaluation.targets import ClassTargets, SetTargets, Targets
from trainer.settings import EvaluateSettings

__all__ = ["ProbeTask", "probe_task"]


@dataclass(frozen=True)
class ProbeTask:
    """Labels and the nodes that they are learned from and tested on."""

    targets: Targets
    splits: Splits


def probe_task(bundle: Bundle, settings: EvaluateSettings, notes: list[str]) -> ProbeTask | None:
    """The probe's task, or None and a note why there is none; ``UsageError`` for a protocol that cannot be kept."""
    targets = _targets(bundle)
    if targets is None or len(targets.labelled) == 0:
        notes.append("no probe: the bundle has no labels")
        return None
    if bundle.labels is not None and len(targets.names) == 1:
        notes.append(f"no probe: every label is the same, {targets.names[0]!r}")
        return None
    splits = probe_splits(targets.labelled, bundle.split, settings)
    if 0 in (splits.train.shape[1], splits.validation.shape[1], splits.test.shape[1]):
        notes.append(f"no probe: {len(targets.labelled)} labelled nodes are too few to train, validate and test on")
        return None
    if bundle.labels is not None:
        notes.extend(_rare(bundle.labels, splits))
    return ProbeTask(targets, splits)


def _targets(bundle: Bundle) -> Targets | None:
    if bundle.label_sets is not None:
        return SetTargets(bundle.label_sets)
    return None if bundle.labels is None else ClassTargets(bundle.labels)


def _rare(labels: Labels, splits: Splits) -> list[str]:
    """A note where some class has, on average, not one training node a split."""
    classes = len(labels.names)
    counts = np.bincount(labels.codes[labels.codes >= 0], minlength=classes)
    if splits.protocol == "fixed":
        expected = np.bincount(labels.codes[splits.train[0]], minlength=classes).astype(float)
    else:
        expected = counts * splits.train.shape[1] / counts.sum()
    rare = [f"{labels.names[c]!r} ({counts[c]})" for c in np.flatnonzero(expected < 1)]
    return ["classes with less than one training node a split to expect: " + ", ".join(rare)] if rare else []
