"""Task ``nodes`` of an evaluation: a linear probe of the labels, of the run's vectors and of the baselines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from preprocessing.errors import ArtifactError
from preprocessing.stage import Emitter
from trainer.evaluation.baselines import PprSmoothed
from trainer.evaluation.collapse import collapse_figures
from trainer.evaluation.degree_bias import degree_buckets
from trainer.evaluation.model_selection import RULE, label_free_epoch
from trainer.evaluation.probe import ArrayRows, ProbeResult, RowReader, probe
from trainer.evaluation.run_vectors import RunVectors
from trainer.evaluation.task import ProbeTask, probe_task
from trainer.settings import EvaluateSettings

__all__ = ["node_report"]

SELECTION_NOTE = (
    "the epoch with the best mean validation accuracy, as the paper selects it: the choice reads labels, "
    "which a user without labels does not have"
)


def node_report(run: RunVectors, settings: EvaluateSettings, emitter: Emitter) -> dict[str, Any]:
    """The report's ``probe``, ``degree_buckets`` and ``notes``; without labels of use there is no probe."""
    notes: list[str] = []
    task = probe_task(run.bundle, settings, notes)
    probed = (
        {"probe": None, "degree_buckets": []}
        if task is None
        else _Probing(run, settings, task, notes, emitter).report()
    )
    return probed | {"notes": notes}


@dataclass
class _Probing:
    """The probes of one evaluation: the embeddings, the run's snapshots, and the baselines."""

    run: RunVectors
    settings: EvaluateSettings
    task: ProbeTask
    notes: list[str]
    emitter: Emitter
    done: int = 0

    def report(self) -> dict[str, Any]:
        """The report's ``probe`` and ``degree_buckets``."""
        snapshots = self.run.snapshots if self.settings.snapshots else []
        baselines = self._baselines() if self.settings.baselines else {}
        total = 1 + len(snapshots) + sum(make is not None for make in baselines.values())

        last = self._probe(self.run.last, total)
        curve = []
        for snapshot in snapshots:
            vectors = self.run.at(snapshot)
            curve.append(_score(snapshot.epoch, vectors, self._probe(vectors, total)))
        curve.append(_score(self.run.last_epoch, self.run.last, last))
        best = max(curve, key=lambda score: score["val_mean"])
        ranks = [(score["epoch"], score["effective_rank"]) for score in curve]
        chosen = label_free_epoch(self.run.losses, ranks, self.run.last_epoch)
        label_free = next(score for score in curve if score["epoch"] == chosen)
        return {
            "probe": {
                "protocol": self._protocol(),
                "trained": {
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
            "degree_buckets": degree_buckets(self.run.bundle.symmetric.degrees(), last),
        }

    def _probe(self, reader: RowReader, total: int) -> ProbeResult:
        result = probe(reader, self.task.targets, self.task.splits, self.settings, self.run.device)
        self.done += 1
        self.emitter.progress(self.done, total, "probes")
        return result

    def _baselines(self) -> dict[str, Callable[[], RowReader] | None]:
        """How to make each baseline's vectors when its turn comes; None, and a note, where that is not possible."""
        bundle, features = self.run.bundle, self.run.features
        makers: dict[str, Callable[[], RowReader] | None] = {
            "raw_features": lambda: features,
            "ppr_smoothed": None,
            "random_encoder": self.run.untrained,
        }
        if bundle.features is None:
            makers["raw_features"] = None
            self.notes.append("no feature baselines: the graph has no node features of its own")
            return makers
        try:
            ppr = bundle.ppr()
        except ArtifactError as error:
            self.notes.append(f"no PPR-smoothed baseline: {error.problem}")
        else:
            makers["ppr_smoothed"] = lambda: PprSmoothed(features, ppr)
        return makers

    def _protocol(self) -> dict[str, Any]:
        splits = self.task.splits
        return {
            "task": "node classification",
            "metric": self.task.targets.metric,
            "classifier": f"linear, {self.task.targets.loss_name}, full batch",
            "optimizer": "adam",
            "lr": self.settings.lr,
            "steps": self.settings.steps,
            "split": splits.protocol,
            "splits": self.settings.splits,
            "seed": self.settings.seed,
            "nodes": {
                "train": splits.train.shape[1],
                "validation": splits.validation.shape[1],
                "test": splits.test.shape[1],
            },
            "classes": len(self.task.targets.names),
        }


def _score(epoch: int, vectors: ArrayRows, result: ProbeResult) -> dict[str, Any]:
    rank = collapse_figures(vectors.vectors).effective_rank
    return {"epoch": epoch, **result.summary(), "effective_rank": rank}
