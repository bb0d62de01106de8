"""What a training step is looked at for: whether embeddings carry information, and how near online and target are.

Rows are copied and nothing else is done while the step runs, so that a step that is looked at is the step it would
have been: the same numbers, and no random draw more.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainer.evaluation.collapse import CollapseFigures, collapse_figures

__all__ = ["Look", "looks_at"]

LOOK_REPORTS = 50
"""Reports between two looks."""
MOST_ROWS = 2000
FEWEST_ROWS = 32
"""Fewer vectors span little whatever they are: no figures are made of them."""


class Look:
    """Rows of one step of one worker: at most ``MOST_ROWS`` of its queries, evenly spaced.

    Embeddings are those of the first view, as the online encoder gives them in training. An objective leaves what it
    has: one without a target network leaves no cosines.
    """

    def __init__(self) -> None:
        self._embeddings_RD: Tensor | None = None
        self._cosines: list[Tensor] = []

    def embedded(self, h_nD: Tensor, queries: slice) -> None:
        """The online encoder's output, where ``queries`` are."""
        self._embeddings_RD = _some(h_nD[queries])

    def compared(self, z_QD: Tensor, h_QD: Tensor) -> None:
        """A view's predictions and another view's targets of the same nodes, all of length 1."""
        self._cosines.append((_some(z_QD) * _some(h_QD)).sum(dim=1))

    @property
    def collapse(self) -> CollapseFigures | None:
        """Of the embeddings; None where there are too few rows, or one is not finite (the loss then tells)."""
        rows_RD = self._embeddings_RD
        if rows_RD is None or len(rows_RD) < FEWEST_ROWS or not bool(rows_RD.isfinite().all()):
            return None
        return collapse_figures(rows_RD.numpy())

    @property
    def cosine(self) -> float | None:
        """The mean cosine of a query's prediction to its target, over the ordered pairs of views."""
        if not self._cosines or not all(map(len, self._cosines)):
            return None
        return float(torch.cat(self._cosines).mean())


def looks_at(done: int, total_steps: int, num_steps: int, report_every: int, checkpoint_every: int) -> bool:
    """Whether the run's step ``done``, from 0, is looked at: that of its first report, of every ``LOOK_REPORTS``-th,
    of every checkpoint of whole epochs, and the last.

    It follows from the step alone, so a resumed run looks where the undisturbed one does.
    """
    epoch, batch = done // num_steps + 1, done % num_steps + 1
    last = done + 1 == total_steps
    if batch % report_every and batch < num_steps and not last:
        return False
    report = (epoch - 1) * -(-num_steps // report_every) + -(-batch // report_every)
    kept = last or (batch == num_steps and epoch % checkpoint_every == 0)
    return kept or report == 1 or report % LOOK_REPORTS == 0


def _some(rows_QD: Tensor) -> Tensor:
    """Every so-manieth row, in float64 and on the CPU: a copy that a later step cannot change."""
    stride = max(1, -(-len(rows_QD) // MOST_ROWS))
    return rows_QD.detach()[::stride].to("cpu", torch.float64, copy=True)
