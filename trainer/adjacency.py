"""Adjacency matrices as the encoder multiplies by them: self-loops, symmetric normalisation, edge dropping.

A row is a node that hears, a column a node that is heard; ``a_ij = 1 / sqrt(d_i d_j)`` and ``a_ii = w / d_i``, where
``d_i`` counts the neighbours that i hears from and w, the weight of its self-loop: 1 (Kipf & Welling, 2017), 2 in PyG's
"improved" GCN. Dropping an edge leaves the pattern and changes values alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from preprocessing.bundle import Topology
from trainer.arcs import Arcs
from trainer.binomial import binomial
from trainer.part import Part
from trainer.sampler import Sample
from trainer.sparse import Pattern, SparseMatrix

__all__ = [
    "Adjacency",
    "GraphAdjacency",
    "PartAdjacency",
    "SampledAdjacency",
    "SymmetricAggregator",
    "drawn",
    "heads",
    "layered",
]

Adjacency = SparseMatrix
"""R×C, its rows the first R of its columns: ``matmul(x_CD) -> [R, D]``, differentiable in x."""


@dataclass(frozen=True)
class SymmetricAggregator:
    """A of a graph convolution, whole, sampled, or some rows of it."""

    self_loop_weight: float = 1.0

    def whole(self, topology: Topology, device: torch.device | str = "cpu") -> GraphAdjacency:
        """Of all nodes."""
        return GraphAdjacency(topology, device, self_loop_weight=self.self_loop_weight)

    def sampled(
        self, sample: Sample, degree_n: npt.NDArray[np.int64], device: torch.device | str = "cpu"
    ) -> SampledAdjacency:
        """Of sampled neighbourhoods."""
        return SampledAdjacency(sample, degree_n, device, self_loop_weight=self.self_loop_weight)

    def weights(self, topology: Topology, indptr: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Some rows of ``whole``, every edge kept: the weights of their neighbours, [E], and of themselves, [R].

        Degrees of neighbours are read where the topology is stored: of all nodes they may be more than memory.
        """
        heard = indices.numpy()
        degree_E = torch.from_numpy(topology.indptr[1:][heard] - topology.indptr[heard])
        root_R, root_E = (
            (degree + self.self_loop_weight).to(torch.float32).rsqrt() for degree in (indptr.diff(), degree_E)
        )
        return torch.repeat_interleave(root_R, indptr.diff()) * root_E, self.self_loop_weight * root_R.square()


class GraphAdjacency:
    """The whole graph, N×N: the same matrix for every layer."""

    def __init__(
        self, topology: Topology, device: torch.device | str = "cpu", *, self_loop_weight: float = 1.0
    ) -> None:
        self.self_loop_weight = self_loop_weight
        self.pattern = _with_self_loops(topology.indptr, topology.indices, topology.num_nodes, device)

    def normalized(self) -> Adjacency:
        """Every edge kept: the matrix of evaluation and inference."""
        return self._normalized(torch.ones(self.pattern.num_entries, dtype=torch.bool, device=self.pattern.device))

    def dropped(self, probability: float | Tensor, generator: torch.Generator) -> Adjacency:
        """Every directed arc dropped with ``probability``, or [N] that of the node that hears; self-loops stay.

        Degrees are those of the kept arcs.
        """
        return self._normalized(_keep(self.pattern, probability, generator))

    def _normalized(self, keep_E: Tensor) -> Adjacency:
        kept_N = self.pattern.row_sums(keep_E) - 1
        return SparseMatrix(
            self.pattern, _symmetric(self.pattern, keep_E.to(torch.float32), kept_N, self.self_loop_weight)
        )


class SampledAdjacency:
    """Sampled neighbourhoods as one matrix a layer, outermost hop first.

    Where the fan-out cut a row, its kept neighbours are scaled up to stand for all that the row keeps in the graph, so
    a layer estimates the whole row's sum. With every neighbour sampled the matrices are exact rows of
    ``GraphAdjacency``, except that a node that is only heard, whose own neighbours were never looked at, has its kept
    degree drawn from Binomial(degree, 1 − probability). An arc that was sampled more than once has an entry a draw;
    it is dropped or kept as one.
    """

    def __init__(
        self,
        sample: Sample,
        degree_n: npt.NDArray[np.int64],
        device: torch.device | str = "cpu",
        *,
        self_loop_weight: float = 1.0,
    ) -> None:
        """``degree_n`` [n]: for every node of the sample, the neighbours it hears from in the graph."""
        self.self_loop_weight = self_loop_weight
        ends = sample.hop_ends
        pattern = _with_self_loops(sample.indptr, sample.indices, ends[-1], device)
        self.degree_n = torch.from_numpy(degree_n.astype(np.int64)).to(pattern.device)
        self.patterns = heads(pattern, ends)
        self._arcs = Arcs(self.patterns[0])

    def normalized(self) -> list[Adjacency]:
        """Every edge kept."""
        return self._normalized(torch.ones_like(self.patterns[0].indices, dtype=torch.bool), self.degree_n)

    def dropped(self, probability: float | Tensor, generator: torch.Generator) -> list[Adjacency]:
        """One dropped graph seen by every layer; compare ``GraphAdjacency.dropped``. A tensor is one [n]."""
        pattern, arcs = self.patterns[0], self._arcs
        keep_E = arcs.as_one(_keep(pattern, probability, generator))
        unseen_n = self.degree_n.clone()
        unseen_n[: pattern.num_rows] -= arcs.per_row() - 1
        kept_n = binomial(unseen_n, 1 - probability, generator)
        kept_n[: pattern.num_rows] += arcs.per_row(keep_E) - 1
        return self._normalized(keep_E, kept_n)

    def _normalized(self, keep_E: Tensor, kept_n: Tensor) -> list[Adjacency]:
        """``kept_n``: the neighbours that each node keeps in the whole graph, sampled or not."""
        pattern = self.patterns[0]
        sampled_R = (pattern.row_sums(keep_E) - 1).clamp(min=1)
        scale_E = (kept_n[: pattern.num_rows] / sampled_R)[pattern.rows]
        weight_E = _symmetric(pattern, keep_E * scale_E, kept_n, self.self_loop_weight)
        return layered(self.patterns, weight_E)

    def part(self, part: Part) -> PartAdjacency:
        """What the first seeds need of these matrices."""
        ends, within = part.sample.hop_ends, part.sample
        pattern = _with_self_loops(within.indptr, within.indices, ends[-1], self.patterns[0].device)
        whole_indptr = self.patterns[0].indptr.cpu().numpy()
        rows = part.nodes[: len(within.indptr) - 1]
        # In the whole sample, too, a row's self-loop stands before its entries.
        others = part.entries + np.repeat(rows + 1, np.diff(within.indptr))
        _, entries = _loops_first(within.indptr, others, whole_indptr[rows], np.int64)
        return PartAdjacency(heads(pattern, ends), torch.from_numpy(entries).to(pattern.device))


@dataclass(frozen=True)
class PartAdjacency:
    """Where the matrices of a part are in those of the whole sample: ``entries`` [E] of the first layer's."""

    patterns: list[Pattern]
    entries: Tensor

    def of(self, layers: Sequence[Adjacency]) -> list[Adjacency]:
        """The part of the whole sample's layers, one dropped graph or another."""
        return layered(self.patterns, layers[0].values[self.entries])


def heads(pattern: Pattern, hop_ends: Sequence[int]) -> list[Pattern]:
    """One pattern a layer: layer l computes the nodes within L−1−l hops of the seeds from those within L−l."""
    return [pattern.head(rows, columns) for rows, columns in zip(hop_ends[-2::-1], hop_ends[:0:-1], strict=True)]


def layered(patterns: Sequence[Pattern], weight_E: Tensor) -> list[Adjacency]:
    """The layers' matrices, whose weights are those of the first, as far as they go."""
    return [SparseMatrix(layer, weight_E[: layer.num_entries]) for layer in patterns]


def _with_self_loops(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    num_columns: int,
    device: torch.device | str,
) -> Pattern:
    """The pattern with the diagonal first in every row."""
    looped, entries = _loops_first(indptr, indices, np.arange(len(indptr) - 1, dtype=np.int32), np.int32)
    return Pattern(torch.from_numpy(looped).to(device), torch.from_numpy(entries).to(device), num_columns)


def _loops_first(
    indptr: npt.NDArray[np.int64], others: npt.NDArray[Any], loop_R: npt.NDArray[Any], dtype: npt.DTypeLike
) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """What is of a self-loop set before what is of a row's ``others`` [E]: indptr [R+1] and all of it, [E + R]."""
    looped = np.asarray(indptr) + np.arange(len(indptr))
    entries = np.empty(len(others) + len(loop_R), dtype)
    is_other = np.ones(len(entries), bool)
    is_other[looped[:-1]] = False
    entries[is_other] = others
    entries[looped[:-1]] = loop_R
    return looped, entries


def drawn(pattern: Pattern, probability: float | Tensor, generator: torch.Generator) -> Tensor:
    """Which entries are kept where each is dropped with ``probability``, or that of its row; truths [E]."""
    if isinstance(probability, Tensor):
        probability = probability[pattern.rows]
    return torch.rand(pattern.num_entries, generator=generator, device=pattern.device) >= probability


def _keep(pattern: Pattern, probability: float | Tensor, generator: torch.Generator) -> Tensor:
    keep_E = drawn(pattern, probability, generator)
    keep_E[pattern.indptr[:-1]] = True
    return keep_E


def _symmetric(pattern: Pattern, weight_E: Tensor, kept_C: Tensor, self_loop_weight: float) -> Tensor:
    """Weights normalised, [E]; the diagonal's are set. ``kept_C``: the neighbours that each node keeps."""
    weight_E[pattern.indptr[:-1]] = self_loop_weight
    root_C = (kept_C + self_loop_weight).to(torch.float32).rsqrt()
    return weight_E * root_C[pattern.rows] * root_C[pattern.indices]
