"""The inductive encoders: mean-pooling GraphSAGE (Hamilton et al., 2017) with LayerNorm and PReLU, as BGRL's.

LayerNorm is each node's own. That of BGRL's code is over all nodes of a graph at once, so that a node's embedding would
depend on the company it is computed in: neither sampled neighbourhoods nor chunks of rows could give it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from trainer.dense import rows_times
from trainer.encoders.base import Aggregated, Encoder, FeatureRows, State
from trainer.mean_adjacency import MeanAggregator

__all__ = ["SageEncoder", "SageLayer", "SageResidualEncoder", "SageSkipEncoder"]


class SageLayer(nn.Module):
    """h = PReLU(LayerNorm(A U W + U W' + b)), A the mean over neighbours, whose A U W is made outside."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.weight_heard = nn.Parameter(torch.empty(in_dim, out_dim))
        self.weight_own = nn.Parameter(torch.empty(in_dim, out_dim))
        self.bias = nn.Parameter(torch.zeros(out_dim))
        self.norm = nn.LayerNorm(out_dim)
        self.activation = nn.PReLU()
        nn.init.xavier_uniform_(self.weight_heard)
        nn.init.xavier_uniform_(self.weight_own)

    def activate(self, aggregated_RD: Tensor, input_R: FeatureRows) -> Tensor:
        """What follows A U W, given the nodes' own inputs U."""
        own_RD = rows_times(input_R, self.weight_own) if isinstance(input_R, Tensor) else input_R @ self.weight_own
        return cast(Tensor, self.activation(self.norm(aggregated_RD + own_RD + self.bias)))


class SageEncoder(Encoder):
    """Layers of the widths ``layers``; the two forms differ in what goes from one to the next."""

    aggregator = MeanAggregator()

    def __init__(self, in_dim: int, layers: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(SageLayer(width, following) for width, following in pairwise([in_dim, *layers]))

    def weight(self, number: int) -> Tensor:
        """That of the layer for what is heard."""
        return self._layer(number).weight_heard

    def _layer(self, number: int) -> SageLayer:
        return cast(SageLayer, self.layers[number])


class SageResidualEncoder(SageEncoder):
    """For one large graph: u₁ = h₁(X), u_l = u_{l−1} + h_l(u_{l−1}); all layers are of one width."""

    def advance(self, number: int, nodes: Aggregated) -> State:
        """A node keeps u."""
        if number == 0:
            output_RD = self._layer(0).activate(nodes.heard_RD, nodes.x)
        else:
            (input_RD,) = nodes.own
            output_RD = input_RD + self._layer(number).activate(nodes.heard_RD, input_RD)
        return State(output_RD, () if number + 1 == self.num_layers else (output_RD,))


class SageSkipEncoder(SageEncoder):
    """For many graphs: layer l hears h₁ + … + h_{l−1} + X S_l; the embedding is the last h, the others have one width.

    ``skips``: S_2, S_3, …, linear maps of the features without bias.
    """

    def __init__(self, in_dim: int, layers: Sequence[int]) -> None:
        super().__init__(in_dim, layers)
        self.skips = nn.ParameterList(nn.init.xavier_uniform_(torch.empty(in_dim, width)) for width in layers[:-1])

    def advance(self, number: int, nodes: Aggregated) -> State:
        """A node keeps its input of the layer, and the sum of its outputs so far."""
        hidden_RD = self._layer(number).activate(nodes.heard_RD, nodes.own[0] if number > 0 else nodes.x)
        if number + 1 == self.num_layers:
            return State(hidden_RD)
        sum_RD = nodes.own[1] + hidden_RD if number > 0 else hidden_RD
        input_RD = sum_RD + nodes.x @ self.skips[number]
        return State(input_RD, (input_RD, sum_RD))
