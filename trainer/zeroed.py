"""Features of which a fixed random share of the entries is zero: how much a method leans on them (paper, Sec. 5.2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from preprocessing.array_types import Int64Array, IntArray
from trainer.randomness import mixed
from trainer.sparse import SparseMatrix

__all__ = ["Source", "Zeroed"]

BLOCK_ENTRIES = 1 << 22


class Source(Protocol):
    """Raw features: a tensor or sparse matrix of some rows."""

    @property
    def num_columns(self) -> int:
        """F."""

    def read(self, rows: Int64Array, device: torch.device | str) -> SparseMatrix | Tensor:
        """[n, F], in the order given; of the type that is stored."""


class Zeroed:
    """A source whose entries are zero with probability ``share``, each by a hash of its row, its column and the seed.

    Whoever reads an entry, in whatever order, finds the same.
    """

    def __init__(self, source: Source, share: float, seed: int) -> None:
        self._source = source
        self._threshold = np.uint64(share * 2**64)
        self._key = mixed(np.array([seed]))
        self.num_columns = source.num_columns

    def read(self, rows: Int64Array, device: torch.device | str) -> SparseMatrix | Tensor:
        """As the source has it, less the entries that are zero."""
        matrix = self._source.read(rows, device)
        if isinstance(matrix, SparseMatrix):
            columns = matrix.pattern.indices.cpu().numpy()
            keep_E = self._kept(rows[matrix.pattern.rows.cpu().numpy()], columns)
            return replace(matrix, values=matrix.values * torch.from_numpy(keep_E).to(device))
        step = max(1, BLOCK_ENTRIES // self.num_columns)
        for first in range(0, len(rows), step):
            keep_nF = self._kept(rows[first : first + step, None], np.arange(self.num_columns))
            matrix[first : first + step] *= torch.from_numpy(keep_nF).to(device)
        return matrix

    def _kept(self, rows: Int64Array, columns: IntArray) -> npt.NDArray[np.bool_]:
        """Whether entries stay, of the shape that rows and columns have together."""
        kept: npt.NDArray[np.bool_] = mixed(self._key + mixed(rows * self.num_columns + columns)) >= self._threshold
        return kept
