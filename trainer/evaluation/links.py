"""Task ``links`` of an evaluation: held-out edges against pairs that no edge connects (paper, section 5.3).

A logistic regression on pair features of frozen vectors is trained on the training edges and their negatives, and
ranks the validation and test pairs: AUC and AP, for random and for hard negatives, a classifier each. Beside it stand
an untrained encoder, the cosine of raw features, and what the training graph itself tells of a pair.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.metrics import average_precision_score, roc_auc_score

from preprocessing.array_types import Int64Array
from preprocessing.link_table import NEGATIVES, PARTS, read_links
from preprocessing.stage import Emitter
from trainer.evaluation.link_heuristics import adamic_adar, common_neighbors, feature_cosines
from trainer.evaluation.pair_classifier import PairClassifier
from trainer.evaluation.probe import ArrayRows
from trainer.evaluation.run_vectors import RunVectors
from trainer.settings import EvaluateSettings

__all__ = ["link_report"]

SELECTION_NOTE = (
    "the epoch with the best validation AUC, one for each kind of negatives: the choice reads held-out edges"
)

Scorer = Callable[[Int64Array], npt.NDArray[np.floating[Any]]]
"""Of pairs [P, 2], higher for likelier edges, [P]."""
Score = dict[str, float]


def link_report(run: RunVectors, settings: EvaluateSettings, emitter: Emitter) -> dict[str, Any]:
    """The report's ``links``; ``ArtifactError`` unless split-edges made the bundle."""
    links = _Links(run, settings)
    snapshots = run.snapshots if settings.snapshots else []
    baselines = links.baselines() if settings.baselines else {}
    total, done = 1 + len(snapshots) + sum(measure is not None for measure in baselines.values()), 0

    def measured(measure: Callable[[], dict[str, Score | None]]) -> dict[str, Score | None]:
        nonlocal done
        scores, done = measure(), done + 1
        emitter.progress(done, total, "link predictions")
        return scores

    curve = [
        {"epoch": snapshot.epoch, **measured(partial(links.classified, partial(run.at, snapshot)))}
        for snapshot in snapshots
    ]
    curve.append({"epoch": run.last_epoch, **measured(partial(links.classified, lambda: run.last))})
    return {
        "protocol": links.protocol(),
        "trained": {"last": curve[-1], "best_validation": _best(curve) if snapshots else None},
        "snapshots": curve,
        "baselines": {name: measure and measured(measure) for name, measure in baselines.items()},
        "notes": links.notes,
    }


class _Links:
    """The pairs of a bundle of training edges, and the measures that use them."""

    def __init__(self, run: RunVectors, settings: EvaluateSettings) -> None:
        self.run, self.settings = run, settings
        self.pairs = read_links(run.bundle)
        self.notes = [
            f"no figures for {kind} negatives: the graph has too few" for kind in NEGATIVES if not self._enough(kind)
        ]

    def classified(self, make: Callable[[], ArrayRows]) -> dict[str, Score | None]:
        """By a classifier for each kind of negatives, trained on the vectors that ``make`` makes."""
        vectors = make()

        def train(kind: str) -> Scorer:
            classifier = PairClassifier(vectors, self.settings.links, self.run.device)
            classifier.fit(self.pairs["train", None], self.pairs["train", kind])
            return classifier.scores

        return self._scores(train)

    def baselines(self) -> dict[str, Callable[[], dict[str, Score | None]] | None]:
        """How to measure each when its turn comes; None, and a note, where there is nothing to measure."""
        graph, features = self.run.bundle.symmetric, self.run.features
        if self.run.bundle.features is None:
            self.notes.append("no feature baseline: the graph has no node features of its own")
        return {
            "raw_features": None
            if self.run.bundle.features is None
            else lambda: self._scores(lambda _: partial(feature_cosines, features)),
            "common_neighbors": lambda: self._scores(lambda _: partial(common_neighbors, graph)),
            "adamic_adar": lambda: self._scores(lambda _: partial(adamic_adar, graph)),
            "random_encoder": partial(self.classified, self.run.untrained),
        }

    def protocol(self) -> dict[str, Any]:
        """How it was measured."""
        split, settings = self.run.bundle.manifest["edge_split"], self.settings
        return {
            "task": "link prediction",
            "classifier": "logistic regression on standardised pair features, ridge of C = 1",
            **settings.links.model_dump(),
            "optimizer": "l-bfgs",
            "split": split["settings"],
            "pairs": split["pairs"],
        }

    def _enough(self, kind: str) -> bool:
        return all(len(self.pairs[part, kind]) for part in PARTS)

    def _scores(self, scorer: Callable[[str], Scorer]) -> dict[str, Score | None]:
        return {kind: self._score(scorer(kind), kind) if self._enough(kind) else None for kind in NEGATIVES}

    def _score(self, score: Scorer, kind: str) -> Score:
        figures = {}
        for part, short in (("validation", "val"), ("test", "test")):
            edges_E2, negatives_M2 = self.pairs[part, None], self.pairs[part, kind]
            labels_P = np.arange(len(edges_E2) + len(negatives_M2)) < len(edges_E2)
            scores_P = score(np.concatenate([edges_E2, negatives_M2]))
            figures[f"{short}_auc"] = float(roc_auc_score(labels_P, scores_P))
            figures[f"{short}_ap"] = float(average_precision_score(labels_P, scores_P))
        return figures


def _best(curve: list[dict[str, Any]]) -> dict[str, Any]:
    """The best epoch by validation AUC, for each kind of negatives that there is."""
    best: dict[str, Any] = {"note": SELECTION_NOTE}
    for kind in NEGATIVES:
        epochs = [{"epoch": scores["epoch"], **scores[kind]} for scores in curve if scores[kind] is not None]
        best[kind] = max(epochs, key=lambda score: score["val_auc"], default=None)
    return best
