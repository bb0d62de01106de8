"""The evaluate stage: how good an embedding set is, beside what costs no training, written to its ``report.json``.

::

    schema_version, created_at
    bundle           {path, content_hash}
    epochs           of training
    notes            [what could not be measured, or should be known, in words]
    probe            null without usable labels, else
      protocol       {task, classifier, optimizer, lr, steps, splits, seed, nodes {train, validation, test}, classes}
      rgrl           {last, best_validation, label_free}   all but the last are null for a run that kept no snapshots
      snapshots      [score with ``effective_rank``, by epoch, the last among them]
      baselines      {raw_features, ppr_smoothed, random_encoder}   null each where it cannot be had
    degree_buckets   [{min_degree, max_degree, nodes, error_rate}] of the last epoch's probe
    collapse         the fields of ``CollapseFigures``
    losses           [{epoch, step, seconds, loss, loss_global, loss_local}], the training curve in at most 1,000 points

A score is ``{val_mean, val_std, test_mean, test_std}``, accuracies as fractions of 1, with the ``epoch`` where it is a
training run's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from preprocessing.artifact import write_json
from preprocessing.bundle import Bundle, Labels
from preprocessing.errors import ArtifactError, UsageError
from preprocessing.settings import Settings
from preprocessing.stage import Emitter
from trainer.embedding_set import EmbeddingSet, Snapshot
from trainer.evaluation.baselines import PprSmoothed, random_encoder
from trainer.evaluation.collapse import collapse_figures
from trainer.evaluation.degree_bias import degree_buckets
from trainer.evaluation.model_selection import RULE, label_free_epoch
from trainer.evaluation.probe import ArrayRows, ProbeResult, RowReader, Splits, draw_splits, probe
from trainer.features import FeatureStore, load_features
from trainer.inference import embed, scratch
from trainer.settings import EvaluateSettings

__all__ = ["REPORT_SCHEMA_VERSION", "EvaluateSpec", "evaluate"]

REPORT = "report.json"
REPORT_SCHEMA_VERSION = 1
SELECTION_NOTE = (
    "the epoch with the best mean validation accuracy, as the paper selects it: the choice reads labels, "
    "which a user without labels does not have"
)


class EvaluateSpec(Settings):
    """What ``python -m trainer evaluate`` reads."""

    bundle: Path
    embeddings: Path
    settings: EvaluateSettings = EvaluateSettings()


def evaluate(spec: dict[str, Any], emitter: Emitter) -> Mapping[str, Any]:
    """Write the report; the summary holds its headline figures.

    Without labels, or with too few, there is a report without a probe. ``UsageError`` when the embeddings were made
    from another bundle.
    """
    request = EvaluateSpec.model_validate(spec)
    bundle, embeddings = Bundle(request.bundle), EmbeddingSet(request.embeddings)
    if embeddings.manifest["bundle"]["content_hash"] != bundle.content_hash:
        raise UsageError(
            "the embeddings were made from another bundle",
            given=bundle.path,
            expected=f"{embeddings.manifest['bundle']['path']}, unchanged",
            remedy="name that bundle, or train on this one",
            pointer="/bundle",
        )
    collapse = collapse_figures(embeddings.vectors)
    if collapse.collapsed:
        emitter.warning("collapsed", f"the embeddings carry next to no information ({collapse.rule})")
    training = embeddings.manifest["training"]
    notes: list[str] = []
    report: dict[str, Any] = {
        "schema_version": REPORT_SCHEMA_VERSION,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "bundle": {"path": str(bundle.path.absolute()), "content_hash": bundle.content_hash},
        "epochs": training["epochs"],
        "notes": notes,
        "probe": None,
        "degree_buckets": [],
        "collapse": collapse.as_dict(),
        "losses": training.get("losses", []),
    }
    task = _task(bundle.labels, request.settings, notes)
    if task is not None:
        report |= _Probing(bundle, embeddings, request.settings, task, notes, emitter).run()
    write_json(embeddings.path / REPORT, report)
    return _summary(embeddings.path / REPORT, report)


@dataclass(frozen=True)
class _Task:
    """Labels that a probe can be trained and tested on."""

    labels: Labels
    splits: Splits


def _task(labels: Labels | None, settings: EvaluateSettings, notes: list[str]) -> _Task | None:
    """The probe's task, or None and a note why there is none."""
    labelled = np.flatnonzero(labels.codes >= 0) if labels is not None else np.empty(0, dtype=np.int64)
    if labels is None or len(labelled) == 0:
        notes.append("no probe: the bundle has no labels")
        return None
    if len(labels.names) == 1:
        notes.append(f"no probe: every label is the same, {labels.names[0]!r}")
        return None
    splits = draw_splits(labelled, settings)
    if 0 in (splits.train.shape[1], splits.validation.shape[1], splits.test.shape[1]):
        notes.append(f"no probe: {len(labelled)} labelled nodes are too few to train, validate and test on")
        return None
    counts = np.bincount(labels.codes[labelled], minlength=len(labels.names))
    rare = [f"{labels.names[c]!r} ({counts[c]})" for c in np.flatnonzero(counts * settings.train_share < 1)]
    if rare:
        notes.append("classes with less than one training node a split to expect: " + ", ".join(rare))
    return _Task(labels, splits)


@dataclass
class _Probing:
    """The probes of one evaluation: the embeddings, the run's snapshots, and the baselines."""

    bundle: Bundle
    embeddings: EmbeddingSet
    settings: EvaluateSettings
    task: _Task
    notes: list[str]
    emitter: Emitter
    device: str = field(default_factory=lambda: "cuda" if torch.cuda.is_available() else "cpu")
    done: int = 0

    def run(self) -> dict[str, Any]:
        """The report's ``probe`` and ``degree_buckets``."""
        last_epoch = int(self.embeddings.manifest["training"]["epochs"])
        snapshots = [s for s in self.embeddings.snapshots if s.epoch != last_epoch] if self.settings.snapshots else []
        features = load_features(self.bundle, self.embeddings.feature_settings)
        baselines = self._baselines(features) if self.settings.baselines else {}
        total = 1 + len(snapshots) + sum(make is not None for make in baselines.values())

        last = self._probe(ArrayRows(self.embeddings.vectors), total)
        curve = []
        for snapshot in snapshots:
            vectors = self._embedded(snapshot, features)
            curve.append(_score(snapshot.epoch, vectors, self._probe(vectors, total)))
        curve.append(_score(last_epoch, ArrayRows(self.embeddings.vectors), last))
        best = max(curve, key=lambda score: score["val_mean"])
        ranks = [(score["epoch"], score["effective_rank"]) for score in curve]
        chosen = label_free_epoch(self.embeddings.manifest["training"].get("losses", []), ranks, last_epoch)
        label_free = next(score for score in curve if score["epoch"] == chosen)
        return {
            "probe": {
                "protocol": self._protocol(),
                "rgrl": {
                    "last": curve[-1],
                    "best_validation": {**best, "note": SELECTION_NOTE} if snapshots else None,
                    "label_free": {**label_free, "note": RULE} if snapshots else None,
                },
                "snapshots": curve,
                "baselines": {
                    name: None if make is None else self._probe(make(), total).summary()
                    for name, make in baselines.items()
                },
            },
            "degree_buckets": degree_buckets(self.bundle.symmetric.degrees(), last),
        }

    def _probe(self, reader: RowReader, total: int) -> ProbeResult:
        result = probe(reader, self.task.labels.codes, self.task.splits, self.settings, self.device)
        self.done += 1
        self.emitter.progress(self.done, total, "probes")
        return result

    def _embedded(self, snapshot: Snapshot, features: FeatureStore) -> ArrayRows:
        vectors_ND = scratch(self.embeddings.vectors.shape, self.embeddings.path)
        embed(
            self.embeddings.encoder(snapshot),
            features,
            self.bundle.topology,
            vectors_ND,
            directory=self.embeddings.path,
            device=self.device,
        )
        return ArrayRows(vectors_ND)

    def _baselines(self, features: FeatureStore) -> dict[str, Callable[[], RowReader] | None]:
        """How to make each baseline's vectors when its turn comes; None, and a note, where that is not possible."""
        makers: dict[str, Callable[[], RowReader] | None] = {
            "raw_features": lambda: features,
            "ppr_smoothed": None,
            "random_encoder": lambda: random_encoder(
                self.bundle, features, self.embeddings, self.embeddings.path, self.device
            ),
        }
        if self.bundle.features is None:
            makers["raw_features"] = None
            self.notes.append("no feature baselines: the graph has no node features of its own")
            return makers
        try:
            ppr = self.bundle.ppr()
        except ArtifactError as error:
            self.notes.append(f"no PPR-smoothed baseline: {error.problem}")
        else:
            makers["ppr_smoothed"] = lambda: PprSmoothed(features, ppr)
        return makers

    def _protocol(self) -> dict[str, Any]:
        splits = self.task.splits
        return {
            "task": "node classification",
            "classifier": "linear, cross entropy, full batch",
            "optimizer": "adam",
            "lr": self.settings.lr,
            "steps": self.settings.steps,
            "splits": self.settings.splits,
            "seed": self.settings.seed,
            "nodes": {
                "train": splits.train.shape[1],
                "validation": splits.validation.shape[1],
                "test": splits.test.shape[1],
            },
            "classes": len(self.task.labels.names),
        }


def _score(epoch: int, vectors: ArrayRows, result: ProbeResult) -> dict[str, Any]:
    rank = collapse_figures(vectors.vectors).effective_rank
    return {"epoch": epoch, **result.summary(), "effective_rank": rank}


def _summary(path: Path, report: Mapping[str, Any]) -> dict[str, Any]:
    summary: dict[str, Any] = {
        "report": str(path),
        "effective_rank": report["collapse"]["effective_rank"],
        "collapsed": report["collapse"]["collapsed"],
        "notes": report["notes"],
        "test_accuracy": None,
    }
    if report["probe"] is not None:
        scores = {"rgrl": report["probe"]["rgrl"]["last"], **report["probe"]["baselines"]}
        summary["test_accuracy"] = {name: score and score["test_mean"] for name, score in scores.items()}
    return summary
