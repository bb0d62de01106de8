"""The loss over anchors that all queries share, on a CPU: every thread multiplies, compares and sums blocks of its own.

A block's similarities stay in a core's cache from the products to the gradient, and threads meet once at the end, not
after every operation. The products are numpy's: torch's would start threads of their own in each of ours.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from trainer.objectives.divergence import FloatRows, divergence_rows
from trainer.row_threads import over_rows

__all__ = ["global_rows"]

BLOCK_SIMILARITIES = 1 << 19
"""Of a student's or a teacher's block: 2 MiB."""


def global_rows(
    z_QD: Tensor, h_QD: Tensor, anchors_GD: Tensor, scales: tuple[float, float], *, reverse: bool
) -> tuple[Tensor, Tensor]:
    """The KL of each query, [Q], and its gradient by ``z_QD``; ``scales`` multiply the student's and the teacher's."""
    loss_Q, gradient_QD = torch.empty(len(z_QD)), torch.empty(z_QD.shape)
    z, h, anchors = (tensor.detach().contiguous().numpy() for tensor in (z_QD, h_QD, anchors_GD))
    student_anchors, teacher_anchors = anchors * np.float32(scales[0]), anchors * np.float32(scales[1])
    loss, gradient = loss_Q.numpy(), gradient_QD.numpy()
    size = max(1, BLOCK_SIMILARITIES // len(anchors))

    def kernel(first: int, last: int) -> None:
        blocks: FloatRows = np.empty((2, min(size, last - first), len(anchors)), np.float32)
        for start in range(first, last, size):
            block = slice(start, min(start + size, last))
            student, teacher = blocks[:, : block.stop - start]
            np.matmul(z[block], student_anchors.T, out=student)
            np.matmul(h[block], teacher_anchors.T, out=teacher)
            divergence_rows(student, teacher, reverse, loss[block], 0, len(student))
            np.matmul(student, student_anchors, out=gradient[block])

    over_rows(kernel, np.arange(len(z) + 1), 3 * len(z) * anchors.size)
    return loss_Q, gradient_QD
