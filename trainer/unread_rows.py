"""Rows of stored features that are summed where they are stored, and copied into memory only if asked for.

Training hears most nodes of a sampled neighbourhood through sums alone. Reading the rows once more from a copy of
themselves would cost as much as reading them at random: the copy does not fit in a cache, either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import torch
from numba import njit, types
from torch import Tensor

from preprocessing.array_file import read_only
from preprocessing.array_types import Int64Array
from preprocessing.cache_hints import prefetch
from trainer.row_threads import over_rows
from trainer.sparse import SparseMatrix, add_four_rows, add_row

__all__ = ["UnreadRows"]

ENTRIES_AHEAD = 8
"""How far ahead rows are asked for: 4 is as good, 16 is more than the processor has under way at once."""
NUMBERS_A_LINE = 16
"""float32 in a line of a cache, 64 bytes."""


@dataclass(frozen=True)
class UnreadRows:
    """``rows`` [n] of ``values_NF``, float32 in C order; ``read_rows`` copies such rows, [n, F]."""

    values_NF: npt.NDArray[np.float32]
    rows: Int64Array
    read_rows: Callable[[Int64Array], Tensor]

    @property
    def shape(self) -> tuple[int, int]:
        """(n, F)."""
        return len(self.rows), self.values_NF.shape[1]

    def __getitem__(self, chosen: slice | Tensor) -> UnreadRows:
        """Some of the rows, none of them read."""
        rows = self.rows[chosen if isinstance(chosen, slice) else chosen.numpy()]
        return UnreadRows(self.values_NF, rows, self.read_rows)

    @cached_property
    def read(self) -> Tensor:
        """The rows themselves, [n, F]."""
        return self.read_rows(self.rows)

    def summed(self, matrices: Sequence[SparseMatrix]) -> list[Tensor]:
        """The product of each R×n matrix with the rows, [R, F], to the bit what ``matmul`` makes of them.

        The matrices are of one pattern: a row is read once for all of them.
        """
        pattern, (_, width) = matrices[0].pattern, self.shape
        sums_VRF = torch.empty(len(matrices), pattern.num_rows, width)
        indptr = pattern.indptr.numpy()
        arguments = (
            indptr,
            pattern.indices.numpy(),
            torch.stack([matrix.values for matrix in matrices]).numpy(),
            self.rows,
            read_only(self.values_NF),
            read_only(self.values_NF).reshape(-1),
            sums_VRF.numpy(),
        )
        work = indptr + np.arange(pattern.num_rows + 1)
        over_rows(partial(_sum_rows, *arguments), work, pattern.num_entries * width)
        return list(sums_VRF)


@njit(
    types.void(
        types.int64[::1],
        types.int32[::1],
        types.float32[:, ::1],
        types.Array(types.int64, 1, "C", readonly=True),
        types.Array(types.float32, 2, "C", readonly=True),
        types.Array(types.float32, 1, "C", readonly=True),
        types.float32[:, :, ::1],
        types.int64,
        types.int64,
    ),
    nogil=True,
    cache=True,
    fastmath={"contract"},
)
def _sum_rows(
    indptr: Int64Array,
    indices: npt.NDArray[np.int32],
    values_VE: npt.NDArray[np.float32],
    rows: Int64Array,
    x_NF: npt.NDArray[np.float32],
    x_flat: npt.NDArray[np.float32],
    sums_VRF: npt.NDArray[np.float32],
    first: int,
    last: int,
) -> None:
    """``trainer.sparse``'s product of each values with ``x_NF[rows]``; what one has read the next finds in a cache."""
    width = x_NF.shape[1]
    source, weight = np.zeros(4, np.int64), np.zeros(4, np.float32)
    for row in range(first, last):
        for ahead in range(indptr[row] + ENTRIES_AHEAD, min(indptr[row + 1] + ENTRIES_AHEAD, len(indices))):
            place = rows[indices[ahead]] * width
            for number in range(0, width, NUMBERS_A_LINE):
                prefetch(x_flat, place + number)
        for view in range(len(values_VE)):
            values, out_RF = values_VE[view], sums_VRF[view]
            out_RF[row] = 0
            waiting = 0
            for entry in range(indptr[row], indptr[row + 1]):
                if values[entry] != 0:
                    source[waiting], weight[waiting] = rows[indices[entry]], values[entry]
                    waiting += 1
                if waiting == 4:
                    waiting = 0
                    add_four_rows(out_RF, row, weight, source, x_NF)
            for one in range(waiting):
                add_row(out_RF, row, weight[one], source[one], x_NF)
