"""The relational loss: how far the online network's view of a query's relations is from the target's (paper, Sec. 4.1).

For query i and anchors j the student sees softmax_j(z_i·h_j / τ_θ), the teacher softmax_j(h_i·h_j / τ_ξ); z comes from
one view, every h from the target network and the other view, and all are of length 1, so that a product is a cosine.
Only z takes a gradient, and a query's loss depends on its own z alone. So the gradient is computed with the loss,
query by query, and no matrix of all similarities is kept for the way back.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trainer.objectives.local_kernel import local_similarities, weighted_anchors
from trainer.settings import LossSettings

__all__ = ["global_divergence", "local_divergence"]

MASKED = -1e9
"""A logit whose probability is exactly zero and whose logarithm is still finite."""
BLOCK_SIMILARITIES = 1 << 20
"""Similarities computed at a time: those of a block stay in a CPU's cache."""


def global_divergence(z_QD: Tensor, h_QD: Tensor, anchors_GD: Tensor, settings: LossSettings) -> Tensor:
    """KL of every query over the G anchors that all queries share, [Q]."""
    loss_Q: Tensor = _GlobalDivergence.apply(z_QD, h_QD, anchors_GD, settings)  # type: ignore[no-untyped-call]
    return loss_Q


def local_divergence(
    z_QD: Tensor, h_QD: Tensor, h_nD: Tensor, locals_QK: Tensor, valid_QK: Tensor, settings: LossSettings
) -> Tensor:
    """KL of every query over its own K anchors, rows ``locals_QK`` of ``h_nD``; where ``valid_QK`` is false is none."""
    loss_Q: Tensor = _LocalDivergence.apply(  # type: ignore[no-untyped-call]
        z_QD, h_QD, h_nD, locals_QK, valid_QK, settings
    )
    return loss_Q


class _GlobalDivergence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z_QD: Tensor, h_QD: Tensor, anchors_GD: Tensor, settings: LossSettings) -> Tensor:
        loss_Q, gradient_QD = z_QD.new_empty(len(z_QD)), torch.empty_like(z_QD)
        students_DG = (anchors_GD / settings.tau_online).T.contiguous()
        teachers_DG = (anchors_GD / settings.tau_target_global).T.contiguous()
        size = max(1, BLOCK_SIMILARITIES // len(anchors_GD))
        for first in range(0, len(z_QD), size):
            block = slice(first, first + size)
            loss_b, gradient_bG = _divergence(z_QD[block] @ students_DG, h_QD[block] @ teachers_DG, settings)
            loss_Q[block] = loss_b
            torch.mm(gradient_bG, students_DG.T, out=gradient_QD[block])
        ctx.save_for_backward(gradient_QD)
        return loss_Q

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient_QD,) = ctx.saved_tensors
        return gradient_QD * grads[0][:, None], None, None, None


class _LocalDivergence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        z_QD: Tensor,
        h_QD: Tensor,
        h_nD: Tensor,
        locals_QK: Tensor,
        valid_QK: Tensor,
        settings: LossSettings,
    ) -> Tensor:
        student_QK = local_similarities(z_QD, h_nD, locals_QK) / settings.tau_online
        teacher_QK = local_similarities(h_QD, h_nD, locals_QK) / settings.tau_target_local
        loss_Q, gradient_QK = _divergence(
            student_QK.masked_fill(~valid_QK, MASKED), teacher_QK.masked_fill(~valid_QK, MASKED), settings
        )
        gradient_QK = gradient_QK.masked_fill(~valid_QK, 0) / settings.tau_online
        ctx.save_for_backward(weighted_anchors(gradient_QK, h_nD, locals_QK))
        return loss_Q

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        (gradient_QD,) = ctx.saved_tensors
        return gradient_QD * grads[0][:, None], None, None, None, None, None


def _divergence(student_QA: Tensor, teacher_QA: Tensor, settings: LossSettings) -> tuple[Tensor, Tensor]:
    """The KL of each row's softmaxes, [Q], and its gradient by the student's logits, [Q, A]."""
    log_student_QA, log_teacher_QA = student_QA.log_softmax(dim=1), teacher_QA.log_softmax(dim=1)
    if settings.divergence == "teacher_student":
        teacher_QA = log_teacher_QA.exp()
        loss_Q = torch.linalg.vecdot(teacher_QA, log_teacher_QA.sub_(log_student_QA))
        return loss_Q, log_student_QA.exp_().sub_(teacher_QA)
    difference_QA = log_student_QA - log_teacher_QA
    student_QA = log_student_QA.exp_()
    loss_Q = torch.linalg.vecdot(student_QA, difference_QA)
    return loss_Q, student_QA * (difference_QA - loss_Q[:, None])
