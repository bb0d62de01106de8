"""Adjacency matrices that average: a node hears the mean of its neighbours (GraphSAGE; Hamilton et al., 2017).

``a_ij = 1 / d_i`` for each of the d_i neighbours that i hears from. There is no self-loop, and the row of a node
without neighbours is zero. Dropping an edge leaves the pattern and changes values alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from preprocessing.bundle import Topology
from trainer.adjacency import Adjacency, PartAdjacency, drawn, heads, layered
from trainer.arcs import Arcs
from trainer.part import Part
from trainer.sampler import Sample
from trainer.sparse import Pattern, SparseMatrix

__all__ = ["MeanAggregator", "MeanGraphAdjacency", "MeanSampledAdjacency"]


class MeanAggregator:
    """A of a mean over neighbours, whole, sampled, or some rows of it."""

    def whole(self, topology: Topology, device: torch.device | str = "cpu") -> MeanGraphAdjacency:
        """Of all nodes."""
        return MeanGraphAdjacency(topology, device)

    def sampled(
        self, sample: Sample, degree_n: npt.NDArray[np.int64], device: torch.device | str = "cpu"
    ) -> MeanSampledAdjacency:
        """Of sampled neighbourhoods."""
        return MeanSampledAdjacency(sample, degree_n, device)

    def weights(self, _topology: Topology, indptr: Tensor, _indices: Tensor) -> tuple[Tensor, Tensor]:
        """Some rows of ``whole``, every edge kept: the weights of their neighbours, [E], and of themselves, [R]."""
        inverse_R = 1 / indptr.diff().to(torch.float32)
        return torch.repeat_interleave(inverse_R, indptr.diff()), torch.zeros_like(inverse_R)


class MeanGraphAdjacency:
    """The whole graph, N×N: the same matrix for every layer."""

    def __init__(self, topology: Topology, device: torch.device | str = "cpu") -> None:
        self.pattern = _pattern(topology.indptr, topology.indices, topology.num_nodes, device)

    def normalized(self) -> Adjacency:
        """Every edge kept: the matrix of evaluation and inference."""
        return SparseMatrix(self.pattern, _means(self.pattern, _all_kept(self.pattern)))

    def dropped(self, probability: float | Tensor, generator: torch.Generator) -> Adjacency:
        """Every directed arc dropped with ``probability``, or [N] that of the node that hears; means over the kept."""
        return SparseMatrix(self.pattern, _means(self.pattern, drawn(self.pattern, probability, generator)))


class MeanSampledAdjacency:
    """Sampled neighbourhoods as one matrix a layer, outermost hop first.

    The mean of sampled neighbours estimates the mean of all without bias. Where edges are dropped, a row of d
    neighbours loses them all with chance p^d, but its k sampled ones with p^k: their mean is scaled by
    (1 − p^d) / (1 − p^k), so that in expectation it is the row of the dropped graph. An arc that was sampled more than
    once has an entry a draw; it is dropped or kept as one, and counts once in k.
    """

    def __init__(self, sample: Sample, degree_n: npt.NDArray[np.int64], device: torch.device | str = "cpu") -> None:
        """``degree_n`` [n]: for every node of the sample, the neighbours it hears from in the graph."""
        ends = sample.hop_ends
        pattern = _pattern(sample.indptr, sample.indices, ends[-1], device)
        self.degree_R = torch.from_numpy(degree_n[: pattern.num_rows].astype(np.int64)).to(pattern.device)
        self.patterns = heads(pattern, ends)
        self._arcs = Arcs(self.patterns[0])

    def normalized(self) -> list[Adjacency]:
        """Every sampled edge kept."""
        return layered(self.patterns, _means(self.patterns[0], _all_kept(self.patterns[0])))

    def dropped(self, probability: float | Tensor, generator: torch.Generator) -> list[Adjacency]:
        """One dropped graph seen by every layer; compare ``MeanGraphAdjacency.dropped``."""
        pattern = self.patterns[0]
        mean_E = _means(pattern, self._arcs.as_one(drawn(pattern, probability, generator)))
        lost_R = probability[: pattern.num_rows] if isinstance(probability, Tensor) else probability
        scale_R = (1 - lost_R**self.degree_R) / (1 - lost_R ** self._arcs.per_row())
        return layered(self.patterns, mean_E * scale_R.to(torch.float32)[pattern.rows])

    def part(self, part: Part) -> PartAdjacency:
        """What the first seeds need of these matrices."""
        within, device = part.sample, self.patterns[0].device
        pattern = _pattern(within.indptr, within.indices, within.hop_ends[-1], device)
        return PartAdjacency(heads(pattern, within.hop_ends), torch.from_numpy(part.entries).to(device))


def _pattern(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    num_columns: int,
    device: torch.device | str,
) -> Pattern:
    return Pattern(
        torch.from_numpy(np.array(indptr)).to(device),
        torch.from_numpy(np.array(indices, dtype=np.int32)).to(device),
        num_columns,
    )


def _all_kept(pattern: Pattern) -> Tensor:
    return torch.ones(pattern.num_entries, dtype=torch.bool, device=pattern.device)


def _means(pattern: Pattern, keep_E: Tensor) -> Tensor:
    """Each row's weight shared by its kept entries, [E]."""
    return keep_E / pattern.row_sums(keep_E).clamp(min=1).to(torch.float32)[pattern.rows]
