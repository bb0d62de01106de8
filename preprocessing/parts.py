"""Tables written as numbered Parquet parts, each whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.errors import UsageError

__all__ = ["fixed_lists", "part_name", "part_ranges", "write_part"]

MAX_PARTS = 100_000
"""Five digits: names in the order of letters are in the order of rows."""


def part_ranges(num_rows: int, shard_rows: int) -> list[tuple[int, int]]:
    """First row and end of every part; an empty table has one empty part."""
    starts = range(0, max(num_rows, 1), shard_rows)
    if len(starts) > MAX_PARTS:
        raise UsageError(
            "the shards are too small for this graph",
            given=f"shard_rows = {shard_rows} for {num_rows} nodes",
            expected=f"at most {MAX_PARTS} shards",
            remedy=f"set shard_rows to {-(-num_rows // MAX_PARTS)} or more",
            pointer="/settings/shard_rows",
        )
    return [(first, min(first + shard_rows, num_rows)) for first in starts]


def part_name(number: int) -> str:
    """``part-00000.parquet`` and so on."""
    return f"part-{number:05d}.parquet"


def write_part(directory: Path, number: int, table: pa.Table) -> None:
    """Write under a temporary name, flush, and rename; what a killed process left of that name is overwritten."""
    temporary = directory / f".{part_name(number)}.partial"
    with temporary.open("wb") as file:
        pq.write_table(table, file, compression="zstd")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(directory / part_name(number))


def fixed_lists(values: npt.NDArray[np.generic]) -> pa.FixedSizeListArray:
    """A matrix [R, K] as one column of lists of length K."""
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
