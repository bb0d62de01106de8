"""InfoNCE over very many keys, streamed: no Q×K matrix is ever held."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["contrast"]

BLOCK_LOGITS = 1 << 22
"""Logits held at a time (16 MiB)."""


def contrast(queries_QD: Tensor, keys_KD: Tensor, positive_Q: Tensor, excluded_Q: Tensor) -> Tensor:
    """Σ_i −log( e^(q_i·k_p(i)) / Σ_{j ≠ x(i)} e^(q_i·k_j) ), a scalar, differentiable in queries and keys.

    ``positive_Q`` is each query's positive key, among the negatives' sum too; ``excluded_Q`` the key that it is not
    compared with. The gradient is computed with the loss, a block of queries at a time, so that nothing is computed
    twice: three products of 2·Q·K·D operations for forward and backward together, and memory for one block of logits
    and two gradients.
    """
    loss: Tensor = _Contrast.apply(queries_QD, keys_KD, positive_Q, excluded_Q)  # type: ignore[no-untyped-call]
    return loss


class _Contrast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries_QD: Tensor, keys_KD: Tensor, positive_Q: Tensor, excluded_Q: Tensor) -> Tensor:
        loss = queries_QD.new_zeros(())
        grad_QD, grad_KD = torch.zeros_like(queries_QD), torch.zeros_like(keys_KD)
        size = max(1, BLOCK_LOGITS // len(keys_KD))
        for first in range(0, len(queries_QD), size):
            block = slice(first, first + size)
            queries_BD = queries_QD[block]
            positive_B1, excluded_B1 = positive_Q[block, None], excluded_Q[block, None]
            logits_BK = (queries_BD @ keys_KD.T).scatter_(1, excluded_B1, -torch.inf)
            total_B1 = logits_BK.logsumexp(dim=1, keepdim=True)
            loss += (total_B1 - logits_BK.gather(1, positive_B1)).sum()
            # ∂loss/∂logits is the softmax less one at the positive.
            slope_BK = logits_BK.sub_(total_B1).exp_()
            slope_BK.scatter_add_(1, positive_B1, torch.full_like(total_B1, -1.0))
            grad_QD[block] = slope_BK @ keys_KD
            grad_KD.addmm_(slope_BK.T, queries_BD)
        ctx.save_for_backward(grad_QD, grad_KD)
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_QD, grad_KD = ctx.saved_tensors
        return grads[0] * grad_QD, grads[0] * grad_KD, None, None
