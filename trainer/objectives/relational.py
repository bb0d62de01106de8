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

from trainer.objectives.divergence import divergence
from trainer.objectives.global_kernel import global_rows
from trainer.objectives.local_kernel import MASKED, local_rows
from trainer.settings import LossSettings

__all__ = ["global_divergence", "local_divergence"]

BLOCK_SIMILARITIES = 1 << 24
"""Similarities that torch computes at a time: 64 MiB each for student and teacher."""


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
        compute = global_rows if _has_kernels(z_QD) else _global_by_torch
        scales = 1 / settings.tau_online, 1 / settings.tau_target_global
        loss_Q, gradient_QD = compute(z_QD, h_QD, anchors_GD, scales, reverse=_reverse(settings))
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
        compute = local_rows if _has_kernels(z_QD) else _local_by_torch
        scales = 1 / settings.tau_online, 1 / settings.tau_target_local
        loss_Q, gradient_QD = compute(z_QD, h_QD, h_nD, locals_QK, valid_QK, scales, reverse=_reverse(settings))
        ctx.save_for_backward(gradient_QD)
        return loss_Q

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        (gradient_QD,) = ctx.saved_tensors
        return gradient_QD * grads[0][:, None], None, None, None, None, None


def _has_kernels(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.dtype == torch.float32


def _global_by_torch(
    z_QD: Tensor, h_QD: Tensor, anchors_GD: Tensor, scales: tuple[float, float], *, reverse: bool
) -> tuple[Tensor, Tensor]:
    """As ``global_rows``, by torch's operations, block by block."""
    loss_Q, gradient_QD = z_QD.new_empty(len(z_QD)), torch.empty_like(z_QD)
    students_GD, teachers_GD = (anchors_GD * scale for scale in scales)
    size = max(1, BLOCK_SIMILARITIES // len(anchors_GD))
    for first in range(0, len(z_QD), size):
        block = slice(first, first + size)
        loss_Q[block], gradient_bG = divergence(
            z_QD[block] @ students_GD.T, h_QD[block] @ teachers_GD.T, reverse=reverse
        )
        gradient_QD[block] = gradient_bG @ students_GD
    return loss_Q, gradient_QD


def _local_by_torch(
    z_QD: Tensor,
    h_QD: Tensor,
    h_nD: Tensor,
    locals_QK: Tensor,
    valid_QK: Tensor,
    scales: tuple[float, float],
    *,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    """As ``local_rows``, by torch's operations: anchors as [Q, K, D]."""
    anchors_QKD = h_nD[locals_QK]
    student_QK, teacher_QK = (
        torch.einsum("qd,qkd->qk", x_QD, anchors_QKD).mul_(scale).masked_fill_(~valid_QK, MASKED)
        for x_QD, scale in zip((z_QD, h_QD), scales, strict=True)
    )
    loss_Q, gradient_QK = divergence(student_QK, teacher_QK, reverse=reverse)
    return loss_Q, torch.einsum("qk,qkd->qd", gradient_QK.masked_fill(~valid_QK, 0) * scales[0], anchors_QKD)


def _reverse(settings: LossSettings) -> bool:
    return settings.divergence == "student_teacher"
