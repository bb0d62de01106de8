"""Which epoch to keep when there are no labels to choose by.

The paper keeps the epoch of the best validation accuracy, which only a user with labels can. Here a run's own loss says
when it has learned what it will (``trainer.plateau``), and the effective rank of its embeddings which of the encoders
from then on carries most (RankMe; Garrido et al., 2023).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainer.plateau import Plateau

__all__ = ["RULE", "label_free_epoch", "plateau_epoch"]

WINDOWS_A_RUN = 20
TOLERANCE = 0.02
RULE = (
    f"the run is cut into {WINDOWS_A_RUN} windows; the loss is flat at the end of the first window whose mean differs "
    f"from the one before by at most {TOLERANCE:.0%} of the range of all means so far; of the snapshots from there on, "
    "the first whose effective rank is no smaller than that of any before it, else the one of the largest; "
    "the last epoch where the loss never is flat"
)


def plateau_epoch(losses: Sequence[Mapping[str, Any]], epochs: int) -> int | None:
    """The epoch at which the loss is flat, of a curve of points ``{epoch, loss}`` in order; None where it never is.

    A point stands for itself and the epochs since the point before, so a thinned curve has the same windows.
    """
    by_epoch: dict[int, list[float]] = defaultdict(list)
    for point in losses:
        by_epoch[int(point["epoch"])].append(float(point["loss"]))
    window = max(1, epochs // WINDOWS_A_RUN)
    state, epoch = Plateau(), 0
    for known, values in sorted(by_epoch.items()):
        loss = float(np.mean(values))
        while epoch < known:
            epoch += 1
            state = state.after(loss, window, TOLERANCE)
            if state.flat > 0:
                return epoch
    return None


def label_free_epoch(
    losses: Sequence[Mapping[str, Any]], effective_ranks: Sequence[tuple[int, float]], epochs: int
) -> int:
    """The epoch that ``RULE`` chooses among those of ``effective_ranks``, (epoch, rank) in order, the last included."""
    flat = plateau_epoch(losses, epochs)
    eligible = [(epoch, rank) for epoch, rank in effective_ranks if flat is not None and epoch >= flat]
    if not eligible:
        return effective_ranks[-1][0]
    for epoch, rank in eligible:
        if all(rank >= earlier for before, earlier in effective_ranks if before < epoch):
            return epoch
    return max(eligible, key=lambda pair: pair[1])[0]
