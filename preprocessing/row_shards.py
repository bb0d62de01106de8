"""One shard of PPR rows at a time, by whichever process: what it takes, and how it comes whole or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from preprocessing.bundle import Bundle
from preprocessing.kept_rows import Before, KeptRows
from preprocessing.parts import part_name, part_ranges, write_part
from preprocessing.row_parts import rows_table
from preprocessing.row_solver import RowSolver
from preprocessing.settings import PprSettings
from preprocessing.workspace import Rows

__all__ = ["ShardWriter", "ShardsWork", "write_shard"]

Figures = dict[str, float]


@dataclass(frozen=True)
class ShardsWork:
    """The rows of a bundle as parts in ``directory``, all that another process needs to write any of them.

    ``identity`` is the fingerprint of the whole; ``scratch`` a folder of the same file system, which goes in the end;
    ``before`` is there where rows of an earlier graph may be kept.
    """

    identity: str
    bundle: Path
    directory: Path
    scratch: Path
    ppr: PprSettings
    shard_rows: int
    threads: int
    before: Before | None


class ShardWriter:
    """Writes shards. Use it as a context manager."""

    def __init__(self, work: ShardsWork) -> None:
        """O(arcs + N log N), and memory for every thread."""
        self._work, bundle = work, Bundle(work.bundle)
        self._num_nodes = bundle.num_nodes
        self._ranges = part_ranges(bundle.num_nodes, work.shard_rows)
        self._kept = None if work.before is None else KeptRows(work.before)
        # A worker that was given up may still be at the same shard, on another machine: no two write one file.
        self._folder = Path(tempfile.mkdtemp(dir=work.scratch))
        self._solver = RowSolver(bundle.symmetric, work.ppr, work.threads)

    def __enter__(self) -> ShardWriter:
        self._solver.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._solver.__exit__(*raised)

    def write(self, number: int, count: Callable[[int], None]) -> Figures:
        """Write the part ``number``; ``count`` hears how many more rows are there, the answer is what they cost."""
        first, end = self._ranges[number]
        rows, kept = Rows.empty(end - first, self._work.ppr.top_k), None
        missing = np.arange(first, end)
        if self._kept is not None:
            kept = self._kept.fill(first, rows)
            count(int(np.count_nonzero(kept)))
            missing = missing[~kept]
        computed = rows if kept is None else Rows.empty(len(missing), self._work.ppr.top_k)
        for done in self._solver.fill(missing, computed):
            count(done)
        if kept is not None:
            for column, values in zip(rows, computed, strict=True):
                column[~kept] = values
        write_part(self._folder, number, rows_table(first, rows, self._num_nodes, kept))
        (self._folder / part_name(number)).replace(self._work.directory / part_name(number))
        return _figures(rows)


def write_shard(work: ShardsWork, number: int) -> Figures:
    """Write the part ``number`` as a task of its own; a process that is given more of the same work opens it once."""
    return _opened(work).write(number, lambda _: None)


@lru_cache(maxsize=1)
def _opened(work: ShardsWork) -> ShardWriter:
    return ShardWriter(work)


def _figures(rows: Rows) -> Figures:
    """What a shard cost and how much of it is proved."""
    if len(rows.counts) == 0:
        return {}
    return {"exact_share": float(rows.exact.mean()), "edge_visits_per_row": float(rows.visits.mean())}
