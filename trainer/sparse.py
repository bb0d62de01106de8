"""Sparse matrices times dense ones, with a gradient for the dense side.

On a CPU the product is a row-parallel kernel that skips stored zeros, so that dropping an edge is a change of one value
and never of the pattern; on other devices it is torch's CSR product. The backward pass multiplies by the transpose,
whose pattern is computed once and shared by every matrix of the same pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba import njit
from torch import Tensor

from trainer.row_threads import over_rows

__all__ = ["Pattern", "SparseMatrix", "add_four_rows", "add_row"]


@dataclass(frozen=True)
class Pattern:
    """Where the entries of a CSR matrix are: indptr [R+1] int64, indices [E] int32, both on one device."""

    indptr: Tensor
    indices: Tensor
    num_columns: int

    @property
    def num_rows(self) -> int:
        """R."""
        return len(self.indptr) - 1

    @property
    def num_entries(self) -> int:
        """E, stored zeros among them."""
        return len(self.indices)

    @property
    def device(self) -> torch.device:
        """Where the index arrays are, and so where products are computed."""
        return self.indices.device

    @cached_property
    def rows(self) -> Tensor:
        """The row of every entry, [E] int32."""
        numbers = torch.arange(self.num_rows, dtype=torch.int32, device=self.device)
        return torch.repeat_interleave(numbers, self.indptr.diff(), output_size=self.num_entries)

    def head(self, rows: int, columns: int) -> Pattern:
        """The first ``rows`` rows, none of which has an entry past the first ``columns`` columns."""
        indptr = self.indptr[: rows + 1]
        return Pattern(indptr, self.indices[: int(indptr[-1])], columns)

    def row_sums(self, number_E: Tensor) -> Tensor:
        """A whole number or a truth an entry, summed a row, [R] int64."""
        running = torch.nn.functional.pad(number_E.cumsum(0), (1, 0))
        return running[self.indptr[1:]] - running[self.indptr[:-1]]

    @cached_property
    def transposed(self) -> tuple[Pattern, Tensor]:
        """The transpose's pattern, and ``order`` [E]: its entry e is this pattern's entry order[e]."""
        if self.device.type == "cpu":
            parts = _transpose(self.indptr.numpy(), self.indices.numpy(), self.num_columns)
            indptr, indices, order = (torch.from_numpy(part) for part in parts)
        else:
            order = torch.argsort(self.indices, stable=True)
            indices = self.rows[order]
            counts = torch.bincount(self.indices, minlength=self.num_columns)
            indptr = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
        return Pattern(indptr, indices, self.num_rows), order


@dataclass(frozen=True)
class SparseMatrix:
    """An R×C matrix: a pattern and its values [E] float32. The values take no gradient."""

    pattern: Pattern
    values: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """(R, C)."""
        return self.pattern.num_rows, self.pattern.num_columns

    def head(self, rows: int) -> SparseMatrix:
        """The first rows."""
        pattern = self.pattern.head(rows, self.pattern.num_columns)
        return SparseMatrix(pattern, self.values[: pattern.num_entries])

    def take(self, row_R: Tensor) -> SparseMatrix:
        """Some rows, in the order given."""
        indptr = self.pattern.indptr
        starts, lengths = indptr[row_R], indptr[row_R + 1] - indptr[row_R]
        taken = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        places = torch.arange(int(taken[-1]), device=self.pattern.device)
        entries = places + torch.repeat_interleave(starts - taken[:-1], lengths, output_size=len(places))
        pattern = Pattern(taken, self.pattern.indices[entries], self.pattern.num_columns)
        return SparseMatrix(pattern, self.values[entries])

    @cached_property
    def transposed(self) -> SparseMatrix:
        """The C×R matrix, computed at the first call."""
        pattern, order = self.pattern.transposed
        return SparseMatrix(pattern, self.values[order])

    def scaled(self, scale_C: Tensor) -> SparseMatrix:
        """The matrix with its columns multiplied; a column of zeros costs products nothing."""
        return SparseMatrix(self.pattern, self.values * scale_C[self.pattern.indices])

    def matmul(self, x_CD: Tensor) -> Tensor:
        """The product with ``x_CD``, [R, D]; differentiable in ``x_CD``."""
        product: Tensor = _Product.apply(self, x_CD)  # type: ignore[no-untyped-call]
        return product


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: SparseMatrix, x_CD: Tensor) -> Tensor:
        ctx.matrix = matrix
        return _multiply(matrix, x_CD)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor | None]:
        return None, _multiply(ctx.matrix.transposed, grads[0]) if ctx.needs_input_grad[1] else None


def _multiply(matrix: SparseMatrix, x_CD: Tensor) -> Tensor:
    if x_CD.device.type == "cpu":
        return _multiply_by_rows(matrix, x_CD)
    return _multiply_by_torch(matrix, x_CD)


def _multiply_by_torch(matrix: SparseMatrix, x_CD: Tensor) -> Tensor:
    pattern = matrix.pattern
    # cuSPARSE wants both index arrays in one type.
    csr = torch.sparse_csr_tensor(
        pattern.indptr, pattern.indices.long(), matrix.values, size=matrix.shape, check_invariants=False
    )
    return csr @ x_CD


def _multiply_by_rows(matrix: SparseMatrix, x_CD: Tensor) -> Tensor:
    rows, columns = matrix.shape
    if x_CD.shape[0] != columns:
        raise ValueError(f"a {rows}×{columns} matrix cannot multiply {x_CD.shape[0]} rows")
    out_RD = torch.empty(rows, x_CD.shape[1])
    indptr = matrix.pattern.indptr.numpy()
    arguments = (
        indptr,
        matrix.pattern.indices.numpy(),
        matrix.values.numpy(),
        x_CD.detach().contiguous().numpy(),
        out_RD.numpy(),
    )
    # Entries plus rows, so that neither one hub nor many empty rows holds a thread back.
    work = indptr + np.arange(rows + 1)
    over_rows(partial(_multiply_rows, *arguments), work, matrix.pattern.num_entries * x_CD.shape[1])
    return out_RD


@njit(nogil=True, inline="always")
def add_four_rows(
    out: npt.NDArray[np.float32],
    row: int,
    weight: npt.NDArray[np.float32],
    source: npt.NDArray[np.int64],
    x: npt.NDArray[np.float32],
) -> None:
    """Four weighted rows of ``x`` onto ``out[row]``, which is read and written once for them."""
    a, b, c, d = weight[0], weight[1], weight[2], weight[3]
    i, j, k, m = source[0], source[1], source[2], source[3]
    for column in range(x.shape[1]):
        out[row, column] += a * x[i, column] + b * x[j, column] + c * x[k, column] + d * x[m, column]


@njit(nogil=True, inline="always")
def add_row(out: npt.NDArray[np.float32], row: int, weight: float, source: int, x: npt.NDArray[np.float32]) -> None:
    """A weighted row of ``x`` onto ``out[row]``."""
    for column in range(x.shape[1]):
        out[row, column] += weight * x[source, column]


@njit(
    "void(int64[::1], int32[::1], float32[::1], float32[:, ::1], float32[:, ::1], int64, int64)",
    nogil=True,
    cache=True,
    fastmath={"contract"},
)
def _multiply_rows(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32],
    values: npt.NDArray[np.float32],
    x: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
    first: int,
    last: int,
) -> None:
    source, weight = np.zeros(4, np.int64), np.zeros(4, np.float32)
    for row in range(first, last):
        out[row] = 0
        waiting = 0
        for entry in range(indptr[row], indptr[row + 1]):
            if values[entry] != 0:
                source[waiting], weight[waiting] = indices[entry], values[entry]
                waiting += 1
            if waiting == 4:
                waiting = 0
                add_four_rows(out, row, weight, source, x)
        for one in range(waiting):
            add_row(out, row, weight[one], source[one], x)


@njit("Tuple((int64[::1], int32[::1], int64[::1]))(int64[::1], int32[::1], int64)", nogil=True, cache=True)
def _transpose(
    indptr: npt.NDArray[np.int64], indices: npt.NDArray[np.int32], num_columns: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """A counting sort by column: (indptr [C+1], indices [E], order [E])."""
    starts = np.zeros(num_columns + 1, np.int64)
    for entry in range(len(indices)):
        starts[indices[entry] + 1] += 1
    for column in range(num_columns):
        starts[column + 1] += starts[column]
    following = starts[:-1].copy()
    rows = np.empty(len(indices), np.int32)
    order = np.empty(len(indices), np.int64)
    for row in range(len(indptr) - 1):
        for entry in range(indptr[row], indptr[row + 1]):
            place = following[indices[entry]]
            following[indices[entry]] += 1
            rows[place] = row
            order[place] = entry
    return starts, rows, order
