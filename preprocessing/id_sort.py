"""Sorting ids that may not fit into memory: sorted runs on disk, then a merge by ranges of ids.

A range is cut from every run at the same two ids, so that its pieces can be sorted together in memory, and all equal
ids are in one range. Integers go by value, strings by their UTF-8 bytes.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.array_types import Int64Array
from preprocessing.journal import Journal

__all__ = ["IdSorter"]

WORKING_COPIES = 6
"""Memory that sorting takes, in times of the ids' own size."""
SAMPLES_A_RANGE = 8


class IdSorter:
    """``add`` block after block, then ``merged`` yields the ids in order, each with the row it came from.

    In a ``folder`` that a killed build left, ``blocks`` tells how many blocks are in whole runs: begin there.
    """

    def __init__(self, folder: Path, memory: int, *, unique: bool = False) -> None:
        """``memory`` bytes bound what is held at once; with ``unique`` an id is kept once a run."""
        folder.mkdir(exist_ok=True)
        self._folder, self._unique = folder, unique
        self._run_bytes = max(memory // WORKING_COPIES, 1)
        self._journal = Journal(folder / "journal.json")
        self.blocks: int = self._journal.state.get("blocks", 0)
        self.rows: int = self._journal.state.get("rows", 0)
        self._runs: int = self._journal.state.get("runs", 0)
        self._held: list[pa.RecordBatch] = []

    def add(self, ids: pa.Array) -> None:
        """The next block of ids, int64 or ``large_string``."""
        rows = pa.array(np.arange(self.rows, self.rows + len(ids)))
        batch = pa.record_batch({"id": ids, "row": rows})
        self._held.append(_distinct(batch) if self._unique else batch)
        self.blocks += 1
        self.rows += len(ids)
        if sum(batch.nbytes for batch in self._held) >= self._run_bytes:
            self._write_run()

    def merged(self) -> Iterator[tuple[pa.Array, Int64Array]]:
        """Ascending ids in pieces, and their rows; equal ids in the order of their rows, never in two pieces."""
        if self._held:
            self._write_run()
        runs = [_Run(_batch(self._path(number))) for number in range(self._runs)]
        cuts = [[0, *(bisect.bisect_left(run, at) for at in self._splitters(runs)), len(run)] for run in runs]
        for piece in range(len(cuts[0]) - 1 if cuts else 0):
            parts = [
                run.batch.slice(cut[piece], cut[piece + 1] - cut[piece]) for run, cut in zip(runs, cuts, strict=True)
            ]
            whole = parts[0] if len(parts) == 1 else _sorted(pa.concat_batches(parts))
            if len(whole):
                yield whole.column("id"), np.asarray(whole.column("row"))

    def _splitters(self, runs: Sequence[_Run]) -> list[Any]:
        """Ids that cut all runs into ranges of about a run's size; none when there is one run."""
        if len(runs) < 2:
            return []
        ranges = 2 * len(runs)
        sample = sorted(
            run[place] for run in runs for place in range(0, len(run), max(len(run) // (SAMPLES_A_RANGE * ranges), 1))
        )
        return sorted({sample[len(sample) * number // ranges] for number in range(1, ranges)})

    def _write_run(self) -> None:
        batch = pa.concat_batches(self._held)
        batch = _sorted(_distinct(batch) if self._unique else batch)
        with pa.OSFile(str(self._path(self._runs)), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        self._held.clear()
        self._runs += 1
        self._journal.record(blocks=self.blocks, rows=self.rows, runs=self._runs)

    def _path(self, number: int) -> Path:
        return self._folder / f"run-{number:05d}.arrow"


class _Run(Sequence[Any]):
    """A sorted run's ids as plain values that compare as their order does."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        ids = batch.column("id")
        self._values = ids if pa.types.is_int64(ids.type) else ids.view(pa.large_binary())

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Any]: ...
    def __getitem__(self, place: int | slice) -> Any:
        return self._values[place].as_py()


def _batch(path: Path) -> pa.RecordBatch:
    return pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)


def _sorted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """By id, equal ids by row."""
    ids = batch.column("id")
    if pa.types.is_int64(ids.type):
        order = np.argsort(np.asarray(ids), kind="stable")
        return pa.record_batch({name: pa.array(np.asarray(batch.column(name))[order]) for name in ("id", "row")})
    return batch.take(pc.sort_indices(batch, sort_keys=[("id", "ascending"), ("row", "ascending")]))


def _distinct(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Every id once, with its first row: hashing leaves little to sort where ids repeat, as those of edges do."""
    encoded = batch.column("id").dictionary_encode()
    place = np.asarray(encoded.indices)
    first = np.empty(len(encoded.dictionary), dtype=np.int64)
    first[place[::-1]] = np.arange(len(place))[::-1]
    return pa.record_batch({"id": encoded.dictionary, "row": batch.column("row").take(pa.array(first))})
