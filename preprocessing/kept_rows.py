"""PPR rows of the graph before a change, taken over where the change moves them little, with claims that still hold.

An entry of a row that moves by at most b leaves a score less b a lower bound, short by 2b more than it was, and the gap
between what is kept and what is left out at most 2b wider. A row that loses its proof by this, or whose K-th place was
a tie, is not taken over: a tie of twins may be one no more. A row that nothing moves (b = 0) is the same row.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from preprocessing.array_types import Float64Array, Int64Array
from preprocessing.bundle import Bundle
from preprocessing.incremental import Progress, compare, row_bounds
from preprocessing.parts import part_name
from preprocessing.row_parts import read_rows
from preprocessing.settings import PprSettings
from preprocessing.workspace import Rows

__all__ = ["Before", "KeptRows", "Tally", "tally_rows", "write_change"]

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Before:
    """``rows``: the ``ppr/`` before the change; ``change``: what ``write_change`` wrote; ``tolerance``: most bound."""

    rows: Path
    change: Path
    tolerance: float


def write_change(
    change: Path, old: Bundle, new: Bundle, settings: PprSettings, tolerance: float, progress: Progress
) -> None:
    """Write what the new graph changes into the folder ``change``, unless it is there: a killed run looks once."""
    last = change / "bounds.npy"
    if last.exists():
        return
    change.mkdir(exist_ok=True)
    self_loop = float(settings.self_loops)
    moved = compare(old, new, self_loop)
    bounds = row_bounds(moved, new.symmetric, settings.teleport, self_loop, tolerance, progress)
    for file, array in ((change / "old_row.npy", moved.old_row), (change / "new_row.npy", moved.new_row)):
        _save(file, array)
    # Last and by a rename: when it is there, so are the others.
    partial = change / "bounds.partial.npy"
    _save(partial, bounds)
    partial.replace(last)


@dataclass(frozen=True)
class Tally:
    """How many rows were ``kept`` and ``recomputed``, these by why: of ``new`` nodes, ``moved`` perhaps by more than
    the tolerance, or ``unproved``: rows that lose their proof by the move, with a tie at the K-th place, with too few
    neighbours or with one that is gone.
    """

    kept: int
    recomputed: int
    new: int
    moved: int
    unproved: int

    def text(self, tolerance: float) -> str:
        """In words."""
        reasons = (
            (self.new, "are of new nodes"),
            (self.moved, f"may have moved by more than the tolerance, {tolerance:g} (a larger one keeps more)"),
            (
                self.unproved,
                "lose their proof, or have a tie at the last place, too few neighbours or one that is gone",
            ),
        )
        why = "; ".join(f"{count:,} {reason}" for count, reason in reasons if count)
        return f"{self.kept:,} of {self.kept + self.recomputed:,} rows were kept. Of the others, {why}"


def tally_rows(before: Before, kept: int) -> Tally:
    """Why all rows but ``kept`` were not, by what ``write_change`` wrote."""
    bounds = np.load(before.change / "bounds.npy", mmap_mode="r", allow_pickle=False)
    new, beyond = int(np.isinf(bounds).sum()), int((bounds > before.tolerance).sum())
    return Tally(kept, len(bounds) - kept, new, beyond - new, len(bounds) - kept - beyond)


class KeptRows:
    """Reads old rows part by part: rows ascend by external id in both graphs, so a shard's old rows lie together."""

    def __init__(self, before: Before) -> None:
        """Memory-maps the change; the first part tells how many rows a part has."""
        self._rows, self._tolerance = before.rows, before.tolerance
        self._part_rows = pq.read_metadata(before.rows / part_name(0)).num_rows
        self._old_row, self._new_row, self._bounds = (
            np.load(before.change / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            for name in ("old_row", "new_row", "bounds")
        )

    def fill(self, first: int, rows: Rows) -> BoolArray:
        """Fill those of ``rows``, the nodes from ``first`` on, that are kept; the answer [R] marks them."""
        size = len(rows.counts)
        bounds, kept = self._bounds[first : first + size], np.zeros(size, dtype=np.bool_)
        near = np.flatnonzero(bounds <= self._tolerance)
        part, place = np.divmod(self._old_row[first + near], self._part_rows)
        for number in np.unique(part):
            here = part == number
            before = read_rows(self._rows / part_name(number), place[here])
            after, sound = _moved(before, self._new_row, bounds[near[here]])
            places = near[here][sound]
            for column in range(len(rows)):
                rows[column][places] = after[column][sound]
            kept[places] = True
        return kept


def _moved(before: Rows, new_row: Int64Array, bounds: Float64Array) -> tuple[Rows, BoolArray]:
    """The rows as the new graph numbers them, claiming what holds after a move by ``bounds`` [R]; which may be kept."""
    present = before.neighbors >= 0
    neighbors = np.where(present, new_row[before.neighbors], -1)
    still, whole = bounds == 0, before.counts == before.neighbors.shape[1]
    # A node that is new had a score of 0, which nodes left out before need not have had.
    gap = np.where(still, before.gap, np.maximum(before.gap, -before.scores[:, -1]) + 2 * bounds)
    after = before._replace(
        neighbors=neighbors,
        scores=np.where(present, np.maximum(before.scores - bounds[:, None], 0.0), 0.0),
        gap=gap,
        exact=gap <= 0,
        error=before.error + 2 * bounds,
    )
    gone = (present & (neighbors < 0)).any(axis=1)
    claims = whole & ~before.tied & (after.exact | ~before.exact)
    return after, ~gone & (still | claims)


def _save(file: Path, array: npt.NDArray[Any]) -> None:
    with file.open("wb") as out:
        np.save(out, array, allow_pickle=False)
        out.flush()
        os.fsync(out.fileno())
