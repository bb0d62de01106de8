"""The transductive encoder: graph convolutions with BatchNorm and PReLU, as BGRL's (Thakoor et al., 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from trainer.activation import affine_prelu
from trainer.adjacency import SymmetricAggregator
from trainer.encoders.base import Aggregated, Encoder, State

__all__ = ["GcnEncoder", "GcnLayer"]


class GcnLayer(nn.Module):
    """PReLU(BatchNorm(A X W + b)), whose A X W is made outside."""

    def __init__(self, in_dim: int, out_dim: int, momentum: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_dim, out_dim))
        self.bias = nn.Parameter(torch.zeros(out_dim))
        self.norm = nn.BatchNorm1d(out_dim, momentum=momentum)
        self.activation = nn.PReLU()
        nn.init.xavier_uniform_(self.weight)

    def activate(self, aggregated_RD: Tensor) -> Tensor:
        """What follows A X W: bias, BatchNorm, PReLU. By fixed statistics the first two are one affine map."""
        norm = self.norm
        assert norm.running_mean is not None
        assert norm.running_var is not None
        if norm.training:
            normal_RD = norm(aggregated_RD + self.bias)
            return affine_prelu(normal_RD, torch.ones_like(self.bias), torch.zeros_like(self.bias), self.slope)
        scale_D = norm.weight * (norm.running_var + norm.eps).rsqrt()
        shift_D = norm.bias + (self.bias - norm.running_mean) * scale_D
        return affine_prelu(aggregated_RD, scale_D, shift_D, self.slope)

    @property
    def slope(self) -> Tensor:
        """What negative activations are multiplied by, [1]."""
        return self.activation.weight


class GcnEncoder(Encoder):
    """Graph convolutions of the widths ``layers``; the last is the embedding's."""

    def __init__(
        self, in_dim: int, layers: Sequence[int], momentum: float = 0.01, self_loop_weight: float = 1.0
    ) -> None:
        super().__init__()
        self.aggregator = SymmetricAggregator(self_loop_weight)
        self.layers = nn.ModuleList(
            GcnLayer(width, following, momentum) for width, following in pairwise([in_dim, *layers])
        )

    def weight(self, number: int) -> Tensor:
        """That of the layer."""
        return self._layer(number).weight

    def advance(self, number: int, nodes: Aggregated) -> State:
        """A node keeps nothing of its own: its self-loop is in A."""
        return State(self._layer(number).activate(nodes.heard_RD))

    def _layer(self, number: int) -> GcnLayer:
        return cast(GcnLayer, self.layers[number])
