"""How far two softmaxes of the same row are from each other, and the gradient by the student's logits, in one go.

On a CPU a row is read twice, where torch's own operations read it a dozen times. With d = t − s for student logits s
and teacher logits t, KL(teacher ‖ student) = Σ p_t d − lse t + lse s, whose gradient by s is p_s − p_t; the other way
round it is −Σ p_s d + lse t − lse s, whose gradient is p_s ⊙ (lse t − lse s − d − KL).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba import njit
from torch import Tensor

__all__ = ["FloatRows", "divergence", "divergence_rows", "row_divergence"]

FloatRows = npt.NDArray[np.float32]


def divergence(student_QA: Tensor, teacher_QA: Tensor, *, reverse: bool) -> tuple[Tensor, Tensor]:
    """The KL of each row, [Q], and its gradient by the student's logits, [Q, A], by torch's operations.

    KL(teacher ‖ student), or with ``reverse`` KL(student ‖ teacher).
    """
    log_student_QA, log_teacher_QA = student_QA.log_softmax(dim=1), teacher_QA.log_softmax(dim=1)
    student_QA, teacher_QA = log_student_QA.exp(), log_teacher_QA.exp()
    difference_QA = log_teacher_QA - log_student_QA
    if not reverse:
        return torch.linalg.vecdot(teacher_QA, difference_QA), student_QA - teacher_QA
    loss_Q = -torch.linalg.vecdot(student_QA, difference_QA)
    return loss_Q, -student_QA * (difference_QA + loss_Q[:, None])


ZERO, ONE, HALF, LOWEST = (np.float32(value) for value in (0, 1, 0.5, -87))
LOG2_E = np.float32(np.log2(np.e))
# ln 2 as a number of nine bits, whose products with whole numbers are exact, and the rest.
LN2_HIGH = np.float32(355 / 512)
LN2_LOW = np.float32(np.log(2) - 355 / 512)
# 1/3! … 1/7!: the series of e^r on |r| ≤ ln 2 / 2 is off by 5e-9 there.
E3, E4, E5, E6, E7 = (np.float32(1 / factorial) for factorial in (6, 24, 120, 720, 5040))
EXPONENT_BIAS, MANTISSA_BITS = np.int32(127), np.int32(23)


@njit("float32(float32)", nogil=True, cache=True, fastmath={"contract"}, error_model="numpy")
def _exp(x: Any) -> Any:
    """e^x for x ≤ 0, e^-87 below -87, nan of nan: without a branch or a call, so that loops of it are vectorised."""
    x = LOWEST if x < LOWEST else x
    power = np.floor(x * LOG2_E + HALF)
    r = x - power * LN2_HIGH - power * LN2_LOW
    series = (((((E7 * r + E6) * r + E5) * r + E4) * r + E3) * r + HALF) * r * r + r + ONE
    bits = np.int32((np.int32(power) + EXPONENT_BIAS) << MANTISSA_BITS)
    return series * bits.view(np.float32)


@njit("float32(float32[:, ::1], int64)", nogil=True, cache=True, fastmath={"reassoc", "nnan", "nsz"})
def _largest(x: FloatRows, row: int) -> Any:
    """Of a row without nan; in a row with one, any, and what is made with it is nan all the same."""
    largest = x[row, 0]
    for column in range(x.shape[1]):
        largest = x[row, column] if x[row, column] > largest else largest
    return largest


@njit(
    "float32(float32[:, ::1], float32[:, ::1], boolean, int64)",
    nogil=True,
    cache=True,
    fastmath={"reassoc", "contract"},
    error_model="numpy",
)
def row_divergence(student: FloatRows, teacher: FloatRows, reverse: bool, row: int) -> Any:
    """The KL of a row of [Q, A] logits, A ≥ 1; the student's become the gradient, the teacher's are overwritten."""
    width = student.shape[1]
    most_student, most_teacher = _largest(student, row), _largest(teacher, row)
    student_sum, teacher_sum, weighted = ZERO, ZERO, ZERO
    for column in range(width):
        # Below their row's largest, so that large logits leave the differences their digits.
        student_below, teacher_below = student[row, column] - most_student, teacher[row, column] - most_teacher
        difference = teacher_below - student_below
        student_exp, teacher_exp = _exp(student_below), _exp(teacher_below)
        student_sum += student_exp
        teacher_sum += teacher_exp
        weighted += (student_exp if reverse else teacher_exp) * difference
        student[row, column] = student_exp
        teacher[row, column] = difference if reverse else teacher_exp
    apart = np.log(teacher_sum) - np.log(student_sum)
    student_scale, teacher_scale = ONE / student_sum, ONE / teacher_sum
    if not reverse:
        for column in range(width):
            student[row, column] = student[row, column] * student_scale - teacher[row, column] * teacher_scale
        return weighted * teacher_scale - apart
    loss = apart - weighted * student_scale
    for column in range(width):
        student[row, column] *= (apart - teacher[row, column] - loss) * student_scale
    return loss


@njit(
    "void(float32[:, ::1], float32[:, ::1], boolean, float32[::1], int64, int64)",
    nogil=True,
    cache=True,
    error_model="numpy",
)
def divergence_rows(
    student: FloatRows, teacher: FloatRows, reverse: bool, loss: npt.NDArray[np.float32], first: int, last: int
) -> None:
    """``row_divergence`` of some rows, the losses into ``loss`` [Q]."""
    for row in range(first, last):
        loss[row] = row_divergence(student, teacher, reverse, row)
