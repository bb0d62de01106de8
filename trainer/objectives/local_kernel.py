"""The loss over a query's own anchors on a CPU, query by query: [Q, K, D] is never made."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from numba import njit
from torch import Tensor

from trainer.objectives.divergence import FloatRows, row_divergence
from trainer.row_threads import over_rows

__all__ = ["MASKED", "local_rows"]

MASKED = -1e9
"""A logit whose probability is exactly zero next to any other, and that leaves a row of nothing else finite."""


def local_rows(
    z_QD: Tensor,
    h_QD: Tensor,
    h_nD: Tensor,
    locals_QK: Tensor,
    valid_QK: Tensor,
    scales: tuple[float, float],
    *,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    """The KL of each query, [Q], and its gradient by ``z_QD``; ``scales`` multiply the student's and the teacher's."""
    loss_Q, gradient_QD = torch.empty(len(z_QD)), torch.empty_like(z_QD, memory_format=torch.contiguous_format)
    student_QK, teacher_QK = torch.empty(2, *locals_QK.shape)
    rows = [tensor.detach().contiguous().numpy() for tensor in (z_QD, h_QD, h_nD, locals_QK, valid_QK)]
    results = [tensor.numpy() for tensor in (student_QK, teacher_QK, loss_Q, gradient_QD)]
    kernel = partial(_local_rows, *rows, *scales, reverse, *results)
    over_rows(kernel, np.arange(len(z_QD) + 1), 3 * locals_QK.numel() * z_QD.shape[1])
    return loss_Q, gradient_QD


@njit(
    "void(float32[:, ::1], float32[:, ::1], float32[:, ::1], int64[:, ::1], boolean[:, ::1], float64, float64, boolean,"
    " float32[:, ::1], float32[:, ::1], float32[::1], float32[:, ::1], int64, int64)",
    nogil=True,
    cache=True,
    fastmath={"reassoc", "contract"},
    error_model="numpy",
)
def _local_rows(
    z: FloatRows,
    h_query: FloatRows,
    h: FloatRows,
    places: npt.NDArray[np.int64],
    valid: npt.NDArray[np.bool_],
    student_scale: float,
    teacher_scale: float,
    reverse: bool,
    student: FloatRows,
    teacher: FloatRows,
    loss: npt.NDArray[np.float32],
    gradient: FloatRows,
    first: int,
    last: int,
) -> None:
    width = z.shape[1]
    for query in range(first, last):
        for k in range(places.shape[1]):
            if not valid[query, k]:
                student[query, k] = teacher[query, k] = MASKED
                continue
            anchor = places[query, k]
            student_dot, teacher_dot = np.float32(0), np.float32(0)
            for column in range(width):
                student_dot += z[query, column] * h[anchor, column]
                teacher_dot += h_query[query, column] * h[anchor, column]
            student[query, k], teacher[query, k] = student_dot * student_scale, teacher_dot * teacher_scale
        loss[query] = row_divergence(student, teacher, reverse, query)
        for column in range(width):
            gradient[query, column] = 0
        for k in range(places.shape[1]):
            if valid[query, k]:
                anchor, weight = places[query, k], np.float32(student[query, k] * student_scale)
                for column in range(width):
                    gradient[query, column] += weight * h[anchor, column]
