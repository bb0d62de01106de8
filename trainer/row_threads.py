"""Kernels that work row by row, on as many threads as torch uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch

from preprocessing.array_types import Int64Array

__all__ = ["over_rows"]

CHUNKS_A_THREAD = 4
SERIAL_WORK = 1 << 18
"""Multiplications below which handing rows to threads costs more than it saves."""


def over_rows(kernel: Callable[[int, int], None], work_R1: Int64Array, cost: int) -> None:
    """Call ``kernel(first, last)`` for runs of rows that cover all R, from several threads.

    ``work_R1`` [R+1] ascends: rows 0 to r are as much work as ``work_R1[r]`` tells. ``cost`` is the multiplications of
    all rows together.
    """
    rows = len(work_R1) - 1
    threads = torch.get_num_threads()
    if threads == 1 or cost < SERIAL_WORK:
        kernel(0, rows)
        return
    bounds = np.searchsorted(work_R1, np.linspace(0, work_R1[-1], threads * CHUNKS_A_THREAD + 1))
    bounds[0], bounds[-1] = 0, rows
    runs = pairwise(bounds.tolist())
    helpers = [_helpers(threads - 1).submit(_drain, kernel, runs) for _ in range(threads - 1)]
    _drain(kernel, runs)
    for helper in helpers:
        # One that has not begun by now has nothing left to do.
        if not helper.cancel():
            helper.result()


def _drain(kernel: Callable[[int, int], None], runs: Iterator[tuple[int, int]]) -> None:
    """Take runs, together with other threads, until none is left: ``next`` holds the interpreter's lock."""
    for first, last in runs:
        kernel(first, last)


@lru_cache(maxsize=1)
def _helpers(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="rows")
