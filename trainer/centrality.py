"""Adaptive augmentation: what matters little is dropped likelier, by degree centrality (GCA; Zhu et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from preprocessing.array_types import Int64Array
from preprocessing.bundle import Topology
from trainer.features import CHUNK_ROWS, Features, FeatureStore

__all__ = ["DropFactors", "drop_factors"]

CUT = 0.7
"""The highest probability that anything is dropped with, GCA's p_τ."""


@dataclass(frozen=True)
class DropFactors:
    """Multiples of a view's drop probabilities: of arcs by the node that hears, [N], 1 in the mean over the graph's
    arcs; and of columns, [F], 1 in the mean.
    """

    hearing_N: Tensor
    columns_F: Tensor

    def of(self, nodes: Int64Array) -> DropFactors:
        """Those of some nodes, in the order given."""
        return replace(self, hearing_N=self.hearing_N[torch.from_numpy(nodes).to(self.hearing_N.device)])

    def edges(self, probability: float) -> Tensor:
        """The probability that an arc is dropped, by the node that hears; [N]."""
        return (probability * self.hearing_N).clamp(max=CUT)

    def columns(self, probability: float) -> Tensor:
        """The probability that a column is dropped, [F]."""
        return (probability * self.columns_F).clamp(max=CUT)


def drop_factors(topology: Topology, store: FeatureStore, device: torch.device | str = "cpu") -> DropFactors:
    """(s_max − s) / (s_max − s_mean) for the logarithm s of a centrality.

    An arc's is the degree of the node that hears; a column's is Σ_i degree_i |x_ic|, in one pass over the features.
    Degrees count whom a node hears from.
    """
    degree_N = torch.from_numpy(topology.degrees()).double()
    # No arc is heard by a node without neighbours: its factor is never used.
    score_N = degree_N.clamp(min=1).log()
    mean_of_arcs = float((score_N * degree_N).sum() / degree_N.sum().clamp(min=1))
    mass_F = _column_masses(store, degree_N)
    used_F = mass_F[mass_F > 0]
    # A column of zeros is as unimportant as any.
    score_F = mass_F.clamp(min=float(used_F.min()) if len(used_F) else 1.0).log()
    return DropFactors(_factors(score_N, mean_of_arcs).to(device), _factors(score_F, float(score_F.mean())).to(device))


def _factors(score: Tensor, mean: float) -> Tensor:
    spread = float(score.max()) - mean
    # All equally important but for rounding.
    if spread < 1e-9:
        return torch.ones_like(score, dtype=torch.float32)
    return ((score.max() - score) / spread).float()


def _column_masses(store: FeatureStore, degree_N: Tensor) -> Tensor:
    total_F = torch.zeros(store.num_columns, dtype=torch.float64)
    for first in range(0, len(degree_N), CHUNK_ROWS):
        degree_n = degree_N[first : first + CHUNK_ROWS]
        total_F += _column_mass(store.rows(np.arange(first, first + len(degree_n))), degree_n)
    return total_F


def _column_mass(features: Features, degree_n: Tensor) -> Tensor:
    """Σ_i degree_i |(x_ic − μ_c) / σ_c|, [F] float64."""
    matrix = features.matrix
    shift_F = torch.zeros(features.shape[1]) if features.shift_F is None else features.shift_F
    if isinstance(matrix, Tensor):
        mass_F = degree_n @ (matrix - shift_F).abs().double()
    else:
        # Where nothing is stored x is 0.
        columns, rows = matrix.pattern.indices, matrix.pattern.rows
        excess_E = (matrix.values - shift_F[columns]).abs() - shift_F[columns].abs()
        mass_F = degree_n.sum() * shift_F.abs().double()
        mass_F.index_add_(0, columns, degree_n[rows] * excess_E)
    return mass_F if features.scale_F is None else mass_F * features.scale_F
