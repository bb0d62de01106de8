"""PPR rows as parts of ``ppr/``: written with every rounding on the safe side, and read back row by row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.array_file import mapped_npy
from preprocessing.array_types import Float32Array, Float64Array, Int64Array
from preprocessing.bundle import NEIGHBORS, SCORES
from preprocessing.parts import fixed_lists, part_name
from preprocessing.topology import index_dtype
from preprocessing.workspace import Rows

__all__ = ["count_marked", "read_rows", "rows_table", "write_matrices"]

BoolArray = npt.NDArray[np.bool_]


def rows_table(first: int, rows: Rows, num_nodes: int, kept: BoolArray | None = None) -> pa.Table:
    """The rows of the nodes from ``first`` on; ``kept`` [R] marks those from before a change, where there was one.

    Rounding to float32 keeps scores lower bounds, and errors and gaps upper ones.
    """
    scores = _round(rows.scores, down=True)
    lost = (rows.scores - scores).max(axis=1, initial=0.0)
    # By the scores as stored, then by row number; −1 is the largest unsigned number, so the padding stays last.
    order = np.lexsort((rows.neighbors.view(np.uint64), -scores), axis=1)
    scores = np.take_along_axis(scores, order, axis=1)
    neighbors = np.take_along_axis(rows.neighbors, order, axis=1)
    return pa.table(
        {
            "node": np.arange(first, first + len(rows.counts)),
            "neighbors": fixed_lists(neighbors.astype(index_dtype(num_nodes))),
            "scores": fixed_lists(scores),
            "count": rows.counts,
            "exact": rows.exact,
            "gap": _round(rows.gap, down=False),
            "error": _round(rows.error + lost, down=False),
            "tied": rows.tied,
            "capped": rows.capped,
            **({} if kept is None else {"kept": kept}),
        }
    )


def read_rows(part: Path, places: Int64Array) -> Rows:
    """The rows at ``places`` of one part; ``visits`` are 0, for nothing was looked at."""
    names = ["neighbors", "scores", "count", "exact", "gap", "error", "tied", "capped"]
    table = pq.read_table(part, columns=names).take(places)
    top_k = table.schema.field("neighbors").type.list_size

    def matrix(name: str) -> npt.NDArray[Any]:
        values: npt.NDArray[Any] = table[name].combine_chunks().flatten().to_numpy()
        return values.reshape(-1, top_k)

    return Rows(
        neighbors=matrix("neighbors").astype(np.int64),
        scores=matrix("scores").astype(np.float64),
        counts=table["count"].to_numpy(),
        exact=table["exact"].to_numpy(),
        gap=table["gap"].to_numpy().astype(np.float64),
        error=table["error"].to_numpy().astype(np.float64),
        tied=table["tied"].to_numpy(),
        capped=table["capped"].to_numpy(),
        visits=np.zeros(len(places), dtype=np.int64),
    )


def write_matrices(directory: Path, ranges: Sequence[tuple[int, int]], top_k: int) -> None:
    """The parts' neighbours and scores once more, as matrices [N, K] that any row can be read from."""
    num_nodes = ranges[-1][1]
    neighbors = mapped_npy(directory / NEIGHBORS, index_dtype(num_nodes), (num_nodes, top_k))
    scores = mapped_npy(directory / SCORES, np.float32, (num_nodes, top_k))
    for number, (first, end) in enumerate(ranges):
        table = pq.read_table(directory / part_name(number), columns=["neighbors", "scores"])
        for name, matrix in (("neighbors", neighbors), ("scores", scores)):
            matrix[first:end] = table[name].combine_chunks().flatten().to_numpy().reshape(-1, top_k)


def count_marked(directory: Path, parts: int, column: str) -> int:
    """How many rows of the first ``parts`` parts have a true ``column``."""
    names = (directory / part_name(number) for number in range(parts))
    return sum(int(np.count_nonzero(pq.read_table(name, columns=[column])[column].to_numpy())) for name in names)


def _round(values: Float64Array, *, down: bool) -> Float32Array:
    """To float32, never up (``down``) or never down."""
    rounded = values.astype(np.float32)
    wrong = rounded > values if down else rounded < values
    return np.where(wrong, np.nextafter(rounded, np.float32(-np.inf if down else np.inf)), rounded)
