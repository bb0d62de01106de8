"""The part of a sampled neighbourhood that its first seeds need.

Queries stand before the anchors among the seeds. The target network embeds them all, the online network the queries
alone: what only anchors hear need not pass it, nor be kept for the way back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt
from numba import types

from trainer.sampler import Sample

__all__ = ["Part", "part_of"]


@dataclass(frozen=True)
class Part:
    """A sample within a sample: ``nodes`` [m] and ``entries`` [E] are positions in the whole one's arrays.

    ``sample.nodes`` are the same node numbers as the whole sample's.
    """

    sample: Sample
    nodes: npt.NDArray[np.int64]
    entries: npt.NDArray[np.int64]


def part_of(sample: Sample, seeds: int) -> Part:
    """What the first ``seeds`` seeds need of a sample, in hop order, with every neighbour that was sampled for it.

    A node is expanded here where it was expanded there: no node is farther from all seeds than from some of them.
    """
    total = len(sample.nodes)
    nodes = np.empty(total, dtype=np.int64)
    place = np.full(total, -1, dtype=np.int32)
    indptr = np.empty(len(sample.indptr), dtype=np.int64)
    indices = np.empty(len(sample.indices), dtype=np.int32)
    entries = np.empty(len(sample.indices), dtype=np.int64)
    hop_ends = np.empty(len(sample.hop_ends), dtype=np.int64)
    _walk(sample.indptr, sample.indices, seeds, nodes, place, indptr, indices, entries, hop_ends)
    rows, found = hop_ends[-2], hop_ends[-1]
    kept = slice(0, indptr[rows])
    return Part(
        Sample(sample.nodes[nodes[:found]], hop_ends.tolist(), indptr[: rows + 1], indices[kept]),
        nodes[:found],
        entries[kept],
    )


_INT32S, _INT64S = types.int32[::1], types.int64[::1]


@numba.njit(
    types.void(_INT64S, _INT32S, types.int64, _INT64S, _INT32S, _INT64S, _INT32S, _INT64S, _INT64S),
    nogil=True,
    cache=True,
)
def _walk(
    whole_indptr: npt.NDArray[np.int64],
    whole_indices: npt.NDArray[np.int32],
    seeds: int,
    nodes: npt.NDArray[np.int64],
    place: npt.NDArray[np.int32],
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32],
    entries: npt.NDArray[np.int64],
    hop_ends: npt.NDArray[np.int64],
) -> None:
    """Breadth first from the first seeds, every node once; ``place`` is −1 for a node not met."""
    for seed in range(seeds):
        nodes[seed] = seed
        place[seed] = seed
    found, row, entry = seeds, 0, 0
    indptr[0] = 0
    hop_ends[0] = found
    for hop in range(1, len(hop_ends)):
        for _ in range(row, found):
            for e in range(whole_indptr[nodes[row]], whole_indptr[nodes[row] + 1]):
                column = whole_indices[e]
                if place[column] < 0:
                    place[column] = found
                    nodes[found] = column
                    found += 1
                indices[entry] = place[column]
                entries[entry] = e
                entry += 1
            row += 1
            indptr[row] = entry
        hop_ends[hop] = found
