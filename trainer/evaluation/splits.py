"""Which nodes train, validate and test a probe: random splits, or the graph's published one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from preprocessing.array_types import Int64Array
from preprocessing.bundle import Split
from preprocessing.errors import UsageError
from trainer.settings import EvaluateSettings

__all__ = ["Splits", "draw_splits", "probe_splits"]


@dataclass(frozen=True)
class Splits:
    """Rows of labelled nodes, a line a split: train [S, n], validation [S, v], test [S, t]."""

    train: Int64Array
    validation: Int64Array
    test: Int64Array
    protocol: str = "random"


def probe_splits(labelled: Int64Array, published: Split | None, settings: EvaluateSettings) -> Splits:
    """As ``settings.protocol`` says; ``UsageError`` where it wants a published split and there is none.

    The published split is the same S times: what differs are the classifiers' first weights.
    """
    if settings.protocol == "fixed" and published is None:
        raise UsageError(
            "the graph has no published split",
            given="protocol = fixed",
            expected="a bundle ingested with masks or a split column",
            remedy="protocol = random",
            pointer="/settings/protocol",
        )
    if settings.protocol == "random" or published is None:
        return draw_splits(labelled, settings)
    train, validation, test = (
        np.tile(np.intersect1d(part, labelled), (settings.splits, 1))
        for part in (published.train, published.validation, published.test)
    )
    return Splits(train, validation, test, "fixed")


def draw_splits(labelled: Int64Array, settings: EvaluateSettings) -> Splits:
    """Random splits of the ``labelled`` rows: test and validation shares rounded down, what is left trains."""
    rng = np.random.default_rng(settings.seed)
    order = np.stack([rng.permutation(labelled) for _ in range(settings.splits)])
    # 0.8 where 0.1 and 0.1 are taken away, not 0.7999….
    test_share = round(1 - settings.train_share - settings.validation_share, 12)
    test = int(test_share * len(labelled))
    held_out = test + int(settings.validation_share * len(labelled))
    return Splits(order[:, held_out:], order[:, test:held_out], order[:, :test])
