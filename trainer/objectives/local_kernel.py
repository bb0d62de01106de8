"""A query's products with anchors of its own, and sums of them: [Q, K, D] is never made on a CPU."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from numba import njit
from torch import Tensor

from trainer.row_threads import over_rows
from trainer.sparse import Pattern, SparseMatrix

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
    """Σ_k weight_ik h_j(i,k), [Q, D]: a sparse matrix of K entries a row, times ``h_nD``."""
    queries, nearest = locals_QK.shape
    indptr = torch.arange(queries + 1, device=h_nD.device) * nearest
    pattern = Pattern(indptr, locals_QK.flatten().to(torch.int32), len(h_nD))
    return SparseMatrix(pattern, weight_QK.flatten()).matmul(h_nD)


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
