"""Whether embeddings carry information: figures of collapse, none of which reads a label.

One pass over the vectors in parts gives all of them, from sums and second moments in float64.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from preprocessing.errors import ArtifactError

__all__ = ["CollapseFigures", "collapse_figures"]

PART_ROWS = 65_536

# Vectors whose mean cosine is above this all point one way; those of an effective rank below this lie on one line.
ALIKE_COSINE = 0.99
ONE_LINE_RANK = 1.5
# A dimension is idle when its deviation is below this share of 1/√D, what directions spread evenly would have.
IDLE_SHARE = 0.1


@dataclass(frozen=True)
class CollapseFigures:
    """``effective_rank`` of the vectors as they are, not centred; all else is of the vectors scaled to length 1.

    ``std_*``: standard deviation over nodes, a dimension each (Chen & He, 2021, section 4.1): about
    ``std_even`` = 1/√D for directions spread evenly, 0 when all are the same. ``idle_share``: dimensions below a tenth
    of that. ``mean_cosine``: over all pairs of distinct nodes. ``collapsed`` by ``rule``.
    """

    effective_rank: float
    dim: int
    std_min: float
    std_mean: float
    std_even: float
    idle_share: float
    mean_cosine: float
    collapsed: bool
    rule: str

    def as_dict(self) -> dict[str, Any]:
        """For the report."""
        return asdict(self)


def collapse_figures(vectors_ND: npt.NDArray[Any]) -> CollapseFigures:
    """Figures of [N, D] vectors, memory-mapped or not, N ≥ 1; zero vectors count as pointing nowhere.

    ``ArtifactError`` for one that is not finite.
    """
    nodes, dim = vectors_ND.shape
    gram_DD, total_D, squares_D = np.zeros((dim, dim)), np.zeros(dim), np.zeros(dim)
    for first in range(0, nodes, PART_ROWS):
        part_nD = np.asarray(vectors_ND[first : first + PART_ROWS], dtype=np.float64)
        if not np.isfinite(part_nD).all():
            row = first + int(np.flatnonzero(~np.isfinite(part_nD).all(axis=1))[0])
            raise ArtifactError(
                "a vector is not finite", given=f"row {row}", expected="numbers", remedy="make the embedding set anew"
            )
        gram_DD += part_nD.T @ part_nD
        length_n = np.linalg.norm(part_nD, axis=1, keepdims=True)
        unit_nD = part_nD / np.where(length_n > 0, length_n, 1)
        total_D += unit_nD.sum(axis=0)
        squares_D += np.square(unit_nD).sum(axis=0)
    deviation_D = np.sqrt(np.maximum(squares_D / nodes - np.square(total_D / nodes), 0))
    # Σ_{i≠j} u_i·u_j = |Σ u_i|² − Σ |u_i|².
    pairs = nodes * (nodes - 1)
    cosine = float((total_D @ total_D - squares_D.sum()) / pairs) if pairs else 1.0
    rank = _effective_rank(np.linalg.eigvalsh(gram_DD))
    even = dim**-0.5
    return CollapseFigures(
        effective_rank=rank,
        dim=dim,
        std_min=float(deviation_D.min()),
        std_mean=float(deviation_D.mean()),
        std_even=even,
        idle_share=float((deviation_D < IDLE_SHARE * even).mean()),
        mean_cosine=cosine,
        collapsed=cosine > ALIKE_COSINE or rank < min(ONE_LINE_RANK, dim),
        rule=f"mean_cosine > {ALIKE_COSINE}, or effective_rank < {ONE_LINE_RANK} (1 in one dimension)",
    )


def _effective_rank(squares_D: npt.NDArray[np.floating[Any]]) -> float:
    """exp of the entropy of the singular values' shares of their sum, from their squares; 0 when all are 0.

    Roy & Vetterli, 2007; RankMe (Garrido et al., 2023) finds that it goes with downstream accuracy. Square roots of
    Gram eigenvalues are exact to about 1e-8 of the largest.
    """
    values_D = np.sqrt(np.maximum(squares_D, 0))
    if values_D.sum() == 0:
        return 0.0
    share_D = values_D[values_D > 0] / values_D.sum()
    return float(np.exp(-(share_D * np.log(share_D)).sum()))
