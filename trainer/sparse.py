"""Sparse matrices times dense ones, with a gradient for the dense side.

On a CPU the product is a row-parallel kernel that skips stored zeros, so that dropping an edge is a change of one value
and never of the pattern; on other devices it is torch's CSR product. The backward pass multiplies by the transpose,
whose pattern is computed once and shared by every matrix of the same pattern.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba import njit
from torch import Tensor

__all__ = ["Pattern", "SparseMatrix"]

CHUNKS_A_THREAD = 4
SERIAL_WORK = 1 << 18
"""Multiplications below which handing rows to threads costs more than it saves."""


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

    @cached_property
    def transposed(self) -> SparseMatrix:
        """The C×R matrix, computed at the first call."""
        pattern, order = self.pattern.transposed
        return SparseMatrix(pattern, self.values[order])

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
    threads = torch.get_num_threads()
    if threads == 1 or matrix.pattern.num_entries * x_CD.shape[1] < SERIAL_WORK:
        _multiply_rows(*arguments, 0, rows)
        return out_RD
    # Equal shares of entries plus rows, so that neither one hub nor many empty rows holds a thread back.
    work = indptr + np.arange(rows + 1)
    targets = np.linspace(0, work[-1], threads * CHUNKS_A_THREAD + 1)
    bounds = np.searchsorted(work, targets)
    bounds[0], bounds[-1] = 0, rows
    list(_threads(threads).map(lambda span: _multiply_rows(*arguments, *span), pairwise(bounds)))
    return out_RD


@lru_cache(maxsize=1)
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="spmm")


@njit(
    "void(int64[::1], int32[::1], float32[::1], float32[:, ::1], float32[:, ::1], int64, int64)",
    nogil=True,
    cache=True,
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
    width = x.shape[1]
    for row in range(first, last):
        for column in range(width):
            out[row, column] = 0
        for entry in range(indptr[row], indptr[row + 1]):
            value = values[entry]
            if value != 0:
                source = indices[entry]
                for column in range(width):
                    out[row, column] += value * x[source, column]


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
