"""PReLU of a row-wise affine map, the way every layer here ends: bias and BatchNorm by fixed statistics are affine.

y = PReLU(x ⊙ scale + shift). Torch takes a pass over memory for each of bias, normalisation and activation, and more on
the way back; on a CPU one kernel makes one pass each way.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba import njit
from torch import Tensor
from torch.nn.functional import prelu

from trainer.row_threads import over_rows

__all__ = ["affine_prelu"]

FloatArray = npt.NDArray[np.float32]
SUM_ROWS = 256
"""Rows that are summed up by themselves, so that a sum over many rows stays exact to float32."""


def affine_prelu(x_nD: Tensor, scale_D: Tensor, shift_D: Tensor, slope_1: Tensor) -> Tensor:
    """[n, D], differentiable in all four; ``slope_1`` [1] multiplies what is negative."""
    if x_nD.device.type != "cpu" or x_nD.dtype != torch.float32:
        return prelu(torch.addcmul(shift_D, x_nD, scale_D), slope_1)
    result: Tensor = _AffinePrelu.apply(x_nD, scale_D, shift_D, slope_1)  # type: ignore[no-untyped-call]
    return result


class _AffinePrelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_nD: Tensor, scale_D: Tensor, shift_D: Tensor, slope_1: Tensor) -> Tensor:
        x_nD = x_nD.contiguous()
        ctx.save_for_backward(x_nD, scale_D, shift_D, slope_1)
        y_nD = torch.empty_like(x_nD)
        kernel = partial(_forward, *_arrays(x_nD, scale_D, shift_D), float(slope_1), y_nD.numpy())
        over_rows(kernel, np.arange(len(x_nD) + 1), x_nD.numel())
        return y_nD

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x_nD, scale_D, shift_D, slope_1 = ctx.saved_tensors
        grad_nD = grads[0].contiguous()
        dx_nD = torch.empty_like(x_nD)
        runs = max(1, -(-len(x_nD) // SUM_ROWS))
        sums_B3D = torch.zeros(runs, 3, x_nD.shape[1])
        arrays = _arrays(x_nD, scale_D, shift_D)
        kernel = partial(_backward, *arrays, float(slope_1), grad_nD.numpy(), dx_nD.numpy(), sums_B3D.numpy())
        over_rows(kernel, np.arange(runs + 1), x_nD.numel())
        dscale_D, dshift_D, dslope_D = sums_B3D.sum(dim=0)
        return dx_nD, dscale_D, dshift_D, dslope_D.sum().reshape(slope_1.shape)


def _arrays(*tensors: Tensor) -> list[FloatArray]:
    return [tensor.detach().numpy() for tensor in tensors]


@njit(
    "void(float32[:, ::1], float32[::1], float32[::1], float64, float32[:, ::1], int64, int64)", nogil=True, cache=True
)
def _forward(
    x: FloatArray, scale: FloatArray, shift: FloatArray, slope: float, y: FloatArray, first: int, last: int
) -> None:
    below = np.float32(slope)
    for row in range(first, last):
        for column in range(x.shape[1]):
            value = x[row, column] * scale[column] + shift[column]
            y[row, column] = value if value > 0 else value * below


@njit(
    "void(float32[:, ::1], float32[::1], float32[::1], float64, float32[:, ::1], float32[:, ::1],"
    " float32[:, :, ::1], int64, int64)",
    nogil=True,
    cache=True,
)
def _backward(
    x: FloatArray,
    scale: FloatArray,
    shift: FloatArray,
    slope: float,
    grad: FloatArray,
    dx: FloatArray,
    sums: FloatArray,
    first: int,
    last: int,
) -> None:
    """``sums`` [B, 3, D]: of each run of ``SUM_ROWS`` rows what scale, shift and slope get, a column each."""
    below = np.float32(slope)
    for run in range(first, last):
        for row in range(run * SUM_ROWS, min(len(x), (run + 1) * SUM_ROWS)):
            for column in range(x.shape[1]):
                value = x[row, column] * scale[column] + shift[column]
                positive = value > 0
                passed = grad[row, column] * (np.float32(1) if positive else below)
                dx[row, column] = passed * scale[column]
                sums[run, 0, column] += passed * x[row, column]
                sums[run, 1, column] += passed
                sums[run, 2, column] += np.float32(0) if positive else grad[row, column] * value
