"""Half-Hop: slow nodes in the middle of edges, so that neighbours arrive half and late (Azabou et al., ICML 2023).

A slow node on the arc from j to i has the features a·x_j + (1−a)·x_i. It hears j and i, and i hears it in place of j.
A node is half-hopped with all of its arcs or none, as the authors' code does it. Slow nodes exist in training views
alone, and nothing asks for their embeddings.

With M slow nodes the first layers have N+M rows in place of N and 3M entries more, and the pattern, with its transpose
for the backward pass, is made anew for every view: O(E + M).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from trainer.adjacency import Adjacency
from trainer.features import Features
from trainer.sparse import Pattern, SparseMatrix

__all__ = ["half_hopped"]


def half_hopped(
    features: Features,
    adjacency: Adjacency,
    num_layers: int,
    probability: float,
    mix: float,
    generator: torch.Generator,
) -> tuple[Features, list[Adjacency]]:
    """Features of N+M nodes, the slow ones last, and an adjacency a layer; the last one's rows are the N nodes.

    ``adjacency`` is N×N with self-loops, 0 where an arc is dropped; ``probability`` that a node is half-hopped, ``mix``
    the a above.
    """
    nodes, device = adjacency.pattern.num_rows, adjacency.pattern.device
    kept_E = adjacency.values != 0
    hearing_A, heard_A = adjacency.pattern.rows[kept_E], adjacency.pattern.indices[kept_E]
    chosen_N = torch.rand(nodes, generator=generator, device=device) < probability
    slowed_A = chosen_N[hearing_A] & (hearing_A != heard_A)
    target_M, source_M = hearing_A[slowed_A], heard_A[slowed_A]
    slow_M = torch.arange(nodes, nodes + len(source_M), dtype=torch.int32, device=device)

    heard_of_slow = torch.stack([slow_M, target_M, source_M], dim=1)
    entries = torch.cat([heard_A.masked_scatter(slowed_A, slow_M), heard_of_slow.flatten()])
    counts = torch.cat([torch.bincount(hearing_A, minlength=nodes), torch.full_like(slow_M, 3)])
    whole = _normalized(Pattern(_ends(counts), entries, len(counts)))
    return (
        features.mixed(_mixing(nodes, target_M, source_M, mix)),
        [whole] * (num_layers - 1) + [whole.head(nodes)],
    )


def _mixing(nodes: int, target_M: Tensor, source_M: Tensor, mix: float) -> SparseMatrix:
    """(N+M)×N: the nodes themselves, then their mixes."""
    device = target_M.device
    own_N = torch.arange(nodes, dtype=torch.int32, device=device)
    counts = torch.cat([torch.ones_like(own_N), torch.full_like(target_M, 2)])
    entries = torch.cat([own_N, torch.stack([target_M, source_M], dim=1).flatten()])
    parts = torch.tensor([1 - mix, mix], device=device).repeat(len(target_M))
    return SparseMatrix(Pattern(_ends(counts), entries, nodes), torch.cat([torch.ones(nodes, device=device), parts]))


def _normalized(pattern: Pattern) -> Adjacency:
    root = pattern.indptr.diff().to(torch.float32).rsqrt()
    return SparseMatrix(pattern, root[pattern.rows] * root[pattern.indices])


def _ends(counts: Tensor) -> Tensor:
    """CSR row ends from entries a row, int64."""
    return pad(counts.cumsum(0, dtype=torch.int64), (1, 0))
