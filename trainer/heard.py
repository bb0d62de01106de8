"""What nodes hear of others, A X W, in the order that is less work.

Sampled neighbours are many more than those who hear them, so their rows are summed first, and as many are multiplied as
hear. Over a whole graph the narrower of X and X W is summed.
"""

from __future__ import annotations

from torch import Tensor

from trainer.dense import rows_times
from trainer.sparse import Pattern, SparseMatrix

__all__ = ["heard", "sums_first"]

OPERATIONS_A_NUMBER = 50
"""Operations of a dense product in the time that a number of a neighbour's row takes to be read and added: 40 to 70 on
a CPU of two cores, and the ratio of a GPU's float32 operations to its memory's numbers."""


def heard(adjacency: SparseMatrix, x_CF: Tensor, weight_FD: Tensor) -> Tensor:
    """A X W, [R, D], differentiable in X and W."""
    if sums_first(adjacency.pattern, *weight_FD.shape):
        return rows_times(adjacency.matmul(x_CF), weight_FD)
    return adjacency.matmul(rows_times(x_CF, weight_FD))


def sums_first(pattern: Pattern, columns: int, width: int) -> bool:
    """Whether (A X) W is less work than A (X W), for an X of so many columns and a W of such width."""
    numbers = pattern.num_entries * (columns - width)
    operations = 2 * (pattern.num_rows - pattern.num_columns) * columns * width
    return OPERATIONS_A_NUMBER * numbers + operations < 0
