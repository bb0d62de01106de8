"""Rows of memory-mapped arrays, copied into memory.

They are read in the order of the file and by more threads than there are cores: where the file is not in memory, as
many reads are under way at once. No thread holds the interpreter's lock meanwhile. What goes to a GPU is gathered in
page-locked memory, in the type it is stored in, and copied from there while this process goes on.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import torch
from numba import types
from torch import Tensor

from preprocessing.array_file import read_only
from preprocessing.array_types import Int64Array
from preprocessing.bundle import SparseFeatures
from trainer.sparse import Pattern, SparseMatrix

__all__ = ["RowReader", "empty_for"]

CHUNKS_A_THREAD = 4
PAGE_LOCKED_BYTES = 1 << 30
"""More than this is read once, not step by step, and page-locked memory is not given back to the system."""
SERIAL_BYTES = 1 << 18
"""Below this, handing rows to threads costs more than it saves, wherever they are."""


class RowReader:
    """Reads rows by ``threads`` threads; may be called from several threads at once."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="rows-read")

    def dense(self, values_NF: npt.NDArray[Any], rows: Int64Array, device: torch.device | str) -> Tensor:
        """Rows of a matrix in C order, [n, F], in the type it is stored in and the order given."""
        width = values_NF.shape[1]
        ends = np.arange(len(rows) + 1) * width
        return self._runs(values_NF.reshape(-1), rows * width, ends, np.argsort(rows), device).view(-1, width)

    def sparse(self, stored: SparseFeatures, rows: Int64Array, device: torch.device | str) -> SparseMatrix:
        """Rows of a CSR matrix, [n, F], its values in the type they are stored in."""
        starts = stored.indptr[rows]
        ends = np.concatenate([[0], np.cumsum(stored.indptr[rows + 1] - starts)])
        order = np.argsort(rows)
        indices, values = (self._runs(array, starts, ends, order, device) for array in (stored.indices, stored.values))
        return SparseMatrix(Pattern(torch.from_numpy(ends).to(device), indices, stored.shape[1]), values)

    def _runs(
        self,
        source: npt.NDArray[Any],
        starts: Int64Array,
        ends: Int64Array,
        order: Int64Array,
        device: torch.device | str,
    ) -> Tensor:
        """Runs of ``source`` one after the other: run i begins at ``starts[i]``, and is copied to ``ends[i]`` up to
        ``ends[i + 1]``. ``order`` is that of the starts.
        """
        copied = empty_for(device, int(ends[-1]), source.dtype)
        # As numbers without a sign of the same size: numba knows no float16.
        word = f"u{source.itemsize}"
        kernel = partial(_copy, read_only(source).view(word), starts, ends, order, copied.numpy().view(word))
        count = len(order)
        if source.itemsize * len(copied) < SERIAL_BYTES:
            kernel(0, count)
        else:
            bounds = np.linspace(0, count, min(count, self._threads * CHUNKS_A_THREAD) + 1).astype(np.int64)
            list(self._pool.map(lambda run: kernel(*run), pairwise(bounds.tolist())))
        return copied.to(device, non_blocking=True)


def empty_for(device: torch.device | str, length: int, dtype: npt.DTypeLike) -> Tensor:
    """Memory of this machine, [length], for what is to go to ``device``.

    Where that is a GPU it is page-locked, up to ``PAGE_LOCKED_BYTES``. Torch does not reuse such memory before a copy
    out of it has ended.
    """
    empty = torch.from_numpy(np.empty(0, dtype))
    lock = torch.device(device).type == "cuda" and length * empty.element_size() <= PAGE_LOCKED_BYTES
    return torch.empty(length, dtype=empty.dtype, pin_memory=lock)


_INT64S = types.int64[::1]


@numba.njit(
    [
        types.void(
            types.Array(word, 1, "C", readonly=True), _INT64S, _INT64S, _INT64S, word[::1], types.int64, types.int64
        )
        for word in (types.uint8, types.uint16, types.uint32, types.uint64)
    ],
    nogil=True,
    cache=True,
)
def _copy(
    source: npt.NDArray[Any],
    starts: Int64Array,
    ends: Int64Array,
    order: Int64Array,
    copied: npt.NDArray[Any],
    first: int,
    last: int,
) -> None:
    for place in range(first, last):
        run = order[place]
        length = ends[run + 1] - ends[run]
        # Counted from their own beginnings, or numba would look for negative places and copy one by one.
        from_run = source[starts[run] : starts[run] + length]
        to_run = copied[ends[run] : ends[run] + length]
        for i in range(length):
            to_run[i] = from_run[i]
