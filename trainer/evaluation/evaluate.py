"""The evaluate stage: how good an embedding set is, beside what costs no training, written to its ``report.json``.

::

    schema_version, created_at
    bundle           {path, content_hash}
    objective        what it was trained towards, as rgrl
    epochs           of training
    notes            [what could not be measured of the nodes, or should be known, in words]
    probe            null without usable labels or before task ``nodes``, else
      protocol       {task, metric, classifier, optimizer, lr, steps, split, splits, seed,
                      nodes {train, validation, test}, classes}
      trained        {last, best_validation, label_free}   all but the first are null for a run that kept no snapshots
      snapshots      [score with ``effective_rank``, by epoch, the last among them]
      baselines      {raw_features, ppr_smoothed, random_encoder}   null each where it cannot be had
    degree_buckets   [{min_degree, max_degree, nodes, error_rate}] of the last epoch's probe
    links            null before task ``links``, else
      protocol       {task, classifier, features, normalize, iterations, optimizer, split, pairs}   the last two
                     as the bundle's manifest has them: settings, and {part: {edges, random, hard}}
      trained        {last, best_validation}   the same; the best epoch is one for each kind of negatives
      snapshots      [{epoch, random, hard}, by epoch]
      baselines      {raw_features, common_neighbors, adamic_adar, random_encoder}   {random, hard} each
      notes          [in words]
    collapse         the fields of ``CollapseFigures``
    losses           [{epoch, step, seconds, loss, …}], the training curve in at most 1,000 points, with the
                     objective's parts

A score of nodes is ``{val_mean, val_std, test_mean, test_std, test_macro_f1_mean, test_macro_f1_std}``, fractions of 1,
with the ``epoch`` where it is a training run's. ``val`` and ``test`` are of the protocol's ``metric``: accuracy, which
is the micro-F1 of one class a node, or for nodes of any number of classes micro-F1. A score of links is ``{val_auc,
val_ap, test_auc, test_ap}`` for each kind of negatives, null where a part has none. One task leaves in the report what
an evaluation of the other has found.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from preprocessing.artifact import write_json
from preprocessing.bundle import Bundle
from preprocessing.errors import UsageError
from preprocessing.link_table import NEGATIVES
from preprocessing.settings import Settings
from preprocessing.stage import Emitter
from trainer.embedding_set import EmbeddingSet
from trainer.evaluation.collapse import collapse_figures
from trainer.evaluation.links import link_report
from trainer.evaluation.nodes import node_report
from trainer.evaluation.run_vectors import RunVectors
from trainer.settings import EvaluateSettings

__all__ = ["REPORT_SCHEMA_VERSION", "EvaluateSpec", "evaluate"]

REPORT = "report.json"
REPORT_SCHEMA_VERSION = 2


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
    run = RunVectors(bundle, embeddings)
    if request.settings.task == "links":
        found = {"links": link_report(run, request.settings, emitter)}
    else:
        found = node_report(run, request.settings, emitter)
    report: dict[str, Any] = {
        "schema_version": REPORT_SCHEMA_VERSION,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "bundle": {"path": str(bundle.path.absolute()), "content_hash": bundle.content_hash},
        "objective": embeddings.manifest["settings"]["objective"],
        "epochs": training["epochs"],
        **_found_before(embeddings.path / REPORT),
        **found,
        "collapse": collapse.as_dict(),
        "losses": training.get("losses", []),
    }
    summary = _summary(report)
    write_json(embeddings.path / REPORT, report | {"summary": summary})
    return {"report": str(embeddings.path / REPORT), **summary}


def _found_before(path: Path) -> dict[str, Any]:
    """What earlier evaluations of these embeddings wrote of each task."""
    empty: dict[str, Any] = {"notes": [], "probe": None, "degree_buckets": [], "links": None}
    report = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if report.get("schema_version") != REPORT_SCHEMA_VERSION:
        return empty
    return {name: report.get(name, nothing) for name, nothing in empty.items()}


def _summary(report: Mapping[str, Any]) -> dict[str, Any]:
    objective = report["objective"]
    summary: dict[str, Any] = {
        "effective_rank": report["collapse"]["effective_rank"],
        "collapsed": report["collapse"]["collapsed"],
        "notes": report["notes"] + (report["links"] or {"notes": []})["notes"],
        "test_accuracy": None,
        "test_auc": None,
    }
    if report["probe"] is not None:
        scores = {objective: report["probe"]["trained"]["last"], **report["probe"]["baselines"]}
        summary["test_accuracy"] = {name: score and score["test_mean"] for name, score in scores.items()}
    if report["links"] is not None:
        scores = {objective: report["links"]["trained"]["last"], **report["links"]["baselines"]}
        summary["test_auc"] = {
            kind: {name: score and score[kind] and score[kind]["test_auc"] for name, score in scores.items()}
            for kind in NEGATIVES
        }
    return summary
