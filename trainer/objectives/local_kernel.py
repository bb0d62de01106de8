"""A query's products with anchors of its own, and sums of them: [Q, K, D] is never made on a CPU."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from numba import njit
from torch import Tensor

from trainer.row_threads import over_rows

__all__ = ["local_similarities", "weighted_anchors"]


def local_similarities(x_QD: Tensor, h_nD: Tensor, locals_QK: Tensor) -> Tensor:
    """x_i · h_j for the K rows j of ``h_nD`` that ``locals_QK`` gives each query, [Q, K]."""
    if x_QD.device.type != "cpu":
        return torch.einsum("qd,qkd->qk", x_QD, h_nD[locals_QK])
    products_QK = torch.empty(locals_QK.shape)
    kernel = partial(_products, *_arrays(x_QD, h_nD), locals_QK.numpy(), products_QK.numpy())
    over_rows(kernel, np.arange(len(x_QD) + 1), locals_QK.numel() * x_QD.shape[1])
    return products_QK


def weighted_anchors(weight_QK: Tensor, h_nD: Tensor, locals_QK: Tensor) -> Tensor:
    """Σ_k weight_ik h_j(i,k), [Q, D]."""
    if weight_QK.device.type != "cpu":
        return torch.einsum("qk,qkd->qd", weight_QK, h_nD[locals_QK])
    sums_QD = torch.zeros(len(locals_QK), h_nD.shape[1])
    kernel = partial(_weighted, *_arrays(weight_QK, h_nD), locals_QK.numpy(), sums_QD.numpy())
    over_rows(kernel, np.arange(len(locals_QK) + 1), locals_QK.numel() * h_nD.shape[1])
    return sums_QD


def _arrays(*tensors: Tensor) -> list[npt.NDArray[np.float32]]:
    return [tensor.detach().contiguous().numpy() for tensor in tensors]


@njit(
    "void(float32[:, ::1], float32[:, ::1], int64[:, ::1], float32[:, ::1], int64, int64)",
    nogil=True,
    cache=True,
    fastmath={"reassoc", "contract"},
)
def _products(
    x: npt.NDArray[np.float32],
    h: npt.NDArray[np.float32],
    places: npt.NDArray[np.int64],
    products: npt.NDArray[np.float32],
    first: int,
    last: int,
) -> None:
    for query in range(first, last):
        for k in range(places.shape[1]):
            anchor = places[query, k]
            total = np.float32(0)
            for column in range(x.shape[1]):
                total += x[query, column] * h[anchor, column]
            products[query, k] = total


@njit(
    "void(float32[:, ::1], float32[:, ::1], int64[:, ::1], float32[:, ::1], int64, int64)",
    nogil=True,
    cache=True,
    fastmath={"contract"},
)
def _weighted(
    weight: npt.NDArray[np.float32],
    h: npt.NDArray[np.float32],
    places: npt.NDArray[np.int64],
    sums: npt.NDArray[np.float32],
    first: int,
    last: int,
) -> None:
    for query in range(first, last):
        for k in range(places.shape[1]):
            anchor, factor = places[query, k], weight[query, k]
            for column in range(h.shape[1]):
                sums[query, column] += factor * h[anchor, column]
