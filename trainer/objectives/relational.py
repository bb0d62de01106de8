"""The relational loss: how far the online network's view of a query's relations is from the target's (paper, Sec. 4.1).

For query i and anchors j the student sees softmax_j(z_i·h_j / τ_θ), the teacher softmax_j(h_i·h_j / τ_ξ); z comes from
one view, every h from the target network and the other view, and all are of length 1, so that a product is a cosine.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainer.settings import LossSettings

__all__ = ["global_divergence", "local_divergence"]

MASKED = -1e9
"""A logit whose probability is exactly zero and whose logarithm is still finite."""


def global_divergence(z_QD: Tensor, h_QD: Tensor, anchors_GD: Tensor, settings: LossSettings) -> Tensor:
    """KL of every query over the G anchors that all queries share, [Q]."""
    student_QG = z_QD @ anchors_GD.T / settings.tau_online
    teacher_QG = h_QD @ anchors_GD.T / settings.tau_target_global
    return _divergence(student_QG, teacher_QG, settings)


def local_divergence(
    z_QD: Tensor, h_QD: Tensor, anchors_QKD: Tensor, valid_QK: Tensor, settings: LossSettings
) -> Tensor:
    """KL of every query over its own K anchors, [Q]; where ``valid_QK`` is false there is no anchor."""
    student_QK = torch.einsum("qd,qkd->qk", z_QD, anchors_QKD) / settings.tau_online
    teacher_QK = torch.einsum("qd,qkd->qk", h_QD, anchors_QKD) / settings.tau_target_local
    return _divergence(student_QK.masked_fill(~valid_QK, MASKED), teacher_QK.masked_fill(~valid_QK, MASKED), settings)


def _divergence(student_QA: Tensor, teacher_QA: Tensor, settings: LossSettings) -> Tensor:
    log_student_QA = student_QA.log_softmax(dim=1)
    log_teacher_QA = teacher_QA.log_softmax(dim=1)
    if settings.divergence == "teacher_student":
        return (log_teacher_QA.exp() * (log_teacher_QA - log_student_QA)).sum(dim=1)
    return (log_student_QA.exp() * (log_student_QA - log_teacher_QA)).sum(dim=1)
