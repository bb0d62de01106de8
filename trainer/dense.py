"""Many rows times a weight: dense products by oneDNN, which multiplies tall matrices faster than MKL does on a CPU, or
of bfloat16 factors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from trainer.precision import rounds_products

__all__ = ["RowsLinear", "rows_times"]

TALL_ROWS = 4096
"""Rows from which oneDNN is faster: 130 against 95 GFLOP/s at 18,333 rows on two cores, and no faster at 2,708."""


def rows_times(x_ND: Tensor, weight_DE: Tensor, bias_E: Tensor | None = None) -> Tensor:
    """x W, or x W + b, [N, E]; differentiable in all.

    Inside ``products_in("bfloat16")`` factors are rounded, on the way back too, and so is each product, once: sums run
    in float32.
    """
    if rounds_products():
        product_NE = linear(x_ND.bfloat16(), weight_DE.T.bfloat16()).to(x_ND.dtype)
        return product_NE if bias_E is None else product_NE + bias_E
    plain = x_ND.device.type == "cpu" and x_ND.dtype == weight_DE.dtype == torch.float32 and weight_DE.numel() > 0
    if not plain or len(x_ND) < TALL_ROWS or not torch._C._has_mkldnn:
        return linear(x_ND, weight_DE.T, bias_E)
    product: Tensor = _TallProduct.apply(x_ND, weight_DE, bias_E)  # type: ignore[no-untyped-call]
    return product


class RowsLinear(nn.Linear):
    """A linear layer by ``rows_times``."""

    def forward(self, x_ND: Tensor) -> Tensor:
        """[N, E]."""
        return rows_times(x_ND, self.weight.T, self.bias)


class _TallProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, weight_DE: Tensor, bias_E: Tensor | None) -> Tensor:
        ctx.save_for_backward(x_ND, weight_DE)
        return _by_onednn(x_ND, weight_DE.T, bias_E)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x_ND, weight_DE = ctx.saved_tensors
        to_x, to_weight, to_bias = ctx.needs_input_grad
        return (
            _by_onednn(grads[0], weight_DE) if to_x else None,
            # [D, N] by [N, E] is wide and not tall: MKL's own.
            x_ND.T @ grads[0] if to_weight else None,
            grads[0].sum(dim=0) if to_bias else None,
        )


def _by_onednn(x_ND: Tensor, weight_ED: Tensor, bias_E: Tensor | None = None) -> Tensor:
    """x Wᵀ + b by torch's one entry to oneDNN for plain float32 tensors."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x_ND, weight_ED, bias_E, "none", [], "")
    return result
