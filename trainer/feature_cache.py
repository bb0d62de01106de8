"""Features of the most visited nodes, held where training computes.

A neighbour is sampled about as often as there are nodes that hear it, so the nodes heard by most are held and stay so
(PaGraph; Lin et al., 2020). On R-MAT that is within 0.03 of the best that a fixed choice can do. On a GPU a hit saves
the way there; on a CPU it saves a page fault, where the file does not fit in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numba
import numpy as np
import numpy.typing as npt
import torch
from numba import types
from torch import Tensor
from torch.nn.functional import pad

from preprocessing.array_file import read_only
from preprocessing.array_types import Int64Array, IntArray
from preprocessing.bundle import Topology
from preprocessing.topology import index_dtype
from trainer.sparse import Pattern, SparseMatrix
from trainer.tally import Tally
from trainer.zeroed import Source

__all__ = ["HITS", "ROWS", "CachedRows", "most_heard"]

CHUNK_ROWS = 65_536
HITS, ROWS = "feature_cache_hits", "feature_cache_rows"

Matrix = Tensor | SparseMatrix


class CachedRows:
    """A source of which ``device`` holds the first nodes of ``order``, as many as fit into ``limit`` bytes.

    Filling takes the main memory of twice as many bytes. ``tally`` counts rows read and rows found.
    """

    def __init__(self, source: Source, order: Int64Array, limit: int, device: torch.device | str, tally: Tally) -> None:
        self.num_columns = source.num_columns
        self._source, self._tally = source, tally
        held = _joined(list(_first_rows(source, order, limit)))
        self.num_held = held.shape[0]
        self._held = _moved(held, device)
        self._place_N = np.full(len(order), -1, dtype=index_dtype(len(order)))
        self._place_N[order[: self.num_held]] = np.arange(self.num_held)

    def read(self, rows: Int64Array, device: torch.device | str) -> Matrix:
        """As the source has them; ``device`` is that of the rows held."""
        place_n: Int64Array = self._place_N[rows].astype(np.int64)
        found, others = np.flatnonzero(place_n >= 0), np.flatnonzero(place_n < 0)
        self._tally.add(ROWS, len(rows))
        self._tally.add(HITS, len(found))
        read = self._source.read(rows[others], device)
        held_places = torch.from_numpy(place_n[found]).to(device)
        if isinstance(read, Tensor):
            assert isinstance(self._held, Tensor)
            matrix = read.new_empty(len(rows), self.num_columns)
            matrix[torch.from_numpy(found).to(device)] = self._held[held_places]
            matrix[torch.from_numpy(others).to(device)] = read
            return matrix
        assert isinstance(self._held, SparseMatrix)
        order = torch.from_numpy(np.argsort(np.concatenate([found, others]))).to(device)
        return _joined_sparse([self._held.take(held_places), read]).take(order)


def most_heard(topologies: Sequence[Topology]) -> Int64Array:
    """All nodes, [N], those that most others hear from first."""
    heard_N = np.zeros(topologies[0].num_nodes, dtype=np.int64)
    for topology in topologies:
        _count(read_only(topology.indices), heard_N)
    order: Int64Array = np.argsort(-heard_N, kind="stable")
    return order


def _first_rows(source: Source, order: Int64Array, limit: int) -> Iterator[Matrix]:
    """Matrices of the first nodes, down to the last that fits; one of no rows at least."""
    for first in range(0, len(order), CHUNK_ROWS):
        part = source.read(order[first : first + CHUNK_ROWS], "cpu")
        ends = _bytes(part).cumsum(0)
        fitting = int(torch.searchsorted(ends, limit, right=True))
        yield part[:fitting] if isinstance(part, Tensor) else part.head(fitting)
        if fitting < len(ends):
            return
        limit -= int(ends[-1])


def _bytes(matrix: Matrix) -> Tensor:
    """What every row takes, [n]."""
    if isinstance(matrix, Tensor):
        return torch.full((len(matrix),), matrix.shape[1] * matrix.element_size())
    pattern = matrix.pattern
    entry = pattern.indices.element_size() + matrix.values.element_size()
    return pattern.indptr.diff() * entry + pattern.indptr.element_size()


def _joined(parts: list[Matrix]) -> Matrix:
    dense = [part for part in parts if isinstance(part, Tensor)]
    return torch.cat(dense) if dense else _joined_sparse([part for part in parts if isinstance(part, SparseMatrix)])


def _joined_sparse(parts: Sequence[SparseMatrix]) -> SparseMatrix:
    """Matrices of as many columns, one below the other."""
    patterns = [part.pattern for part in parts]
    lengths = torch.cat([pattern.indptr.diff() for pattern in patterns])
    indices = torch.cat([pattern.indices for pattern in patterns])
    values = torch.cat([part.values for part in parts])
    return SparseMatrix(Pattern(pad(lengths.cumsum(0), (1, 0)), indices, patterns[0].num_columns), values)


def _moved(matrix: Matrix, device: torch.device | str) -> Matrix:
    if isinstance(matrix, Tensor):
        return matrix.to(device)
    pattern = matrix.pattern
    moved = Pattern(pattern.indptr.to(device), pattern.indices.to(device), pattern.num_columns)
    return SparseMatrix(moved, matrix.values.to(device))


@numba.njit(
    [types.void(types.Array(of, 1, "C", readonly=True), types.int64[::1]) for of in (types.int32, types.int64)],
    nogil=True,
    cache=True,
)
def _count(indices: IntArray, count_N: npt.NDArray[np.int64]) -> None:
    for entry in range(len(indices)):
        count_N[indices[entry]] += 1
