"""Which nodes a filter lets through."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from preprocessing.array_types import Int64Array

__all__ = ["Matches"]


class Matches:
    """``mask`` [N], and how many of it are true."""

    def __init__(self, mask: npt.NDArray[np.bool_]) -> None:
        """The rows of few are kept beside the mask, where they take no more room than it does."""
        self.mask = mask
        self.count = int(np.count_nonzero(mask))
        self._rows = np.flatnonzero(mask) if 8 * self.count <= mask.nbytes else None

    @property
    def rows(self) -> Int64Array:
        """The rows that match, ascending."""
        return np.flatnonzero(self.mask) if self._rows is None else self._rows

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self.mask.nbytes + (0 if self._rows is None else self._rows.nbytes)

    def outside(self, excluded: Int64Array) -> int:
        """How many match that are not among the distinct rows ``excluded``."""
        return self.count - int(np.count_nonzero(self.mask[excluded]))
