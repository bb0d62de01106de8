"""Features on their way to the bundle: rounded to its dtype, checked, and laid out dense or sparse by their density."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from preprocessing.array_file import mapped_npy
from preprocessing.array_types import Float32Array, Int64Array
from preprocessing.errors import InputError
from preprocessing.journal import Journal
from preprocessing.prefetch import ahead
from preprocessing.tables import BATCH_ROWS

__all__ = ["BLOCK_ROWS", "Block", "FeatureDtype", "FeatureSource", "matrix_features", "rounded", "write_features"]

FeatureDtype = Literal["float32", "float16"]

BLOCK_ROWS = 4096
JOURNAL_BLOCKS = 32
# Below a quarter full, the first layer's sparse product is the faster one (measured: 35 % full costs 74 ms sparse and
# 51 ms dense, and the sparse time is in proportion to the entries), and the file is at most half as long.
SPARSE_BELOW = 0.25


Block = tuple[Int64Array, Float32Array | sp.csr_array]


@dataclass(frozen=True)
class FeatureSource:
    """Features [N, columns], checked, to be read once more in blocks.

    ``nonzeros`` [N] counts the entries of every row; ``names`` gives the range of columns a named input became, and
    ``constant`` how many of them, where any, hold one value in all rows. ``blocks`` yields for every block a function
    that makes it: rows [B] and their values [B, columns], float32 as ``rounded`` left them, dense or CSR.
    """

    columns: int
    nonzeros: Int64Array
    names: dict[str, tuple[int, int]]
    constant: dict[str, int]
    blocks: Callable[[], Iterator[Callable[[], Block]]]


def rounded(values: npt.NDArray[Any], dtype: FeatureDtype) -> Float32Array:
    """The values that ``dtype`` will hold, as float32; one too large for it becomes infinite."""
    with np.errstate(over="ignore"):
        return values.astype(dtype).astype(np.float32)


def matrix_features(
    matrix: npt.NDArray[Any] | sp.csr_array, dtype: FeatureDtype, name: str, where: str
) -> FeatureSource:
    """A whole matrix [N, columns], dense or CSR, as a source; ``InputError`` at its first entry that is not finite."""
    if isinstance(matrix, np.ndarray):
        held = rounded(matrix, dtype)
        nonzeros = np.count_nonzero(held, axis=1).astype(np.int64)
        at = [(int(row), int(column)) for row, column in np.argwhere(~np.isfinite(held))[:1]]
        same = held.min(axis=0) == held.max(axis=0) if len(held) else np.empty(0)
    else:
        summed = sp.csr_array(matrix, copy=True)
        summed.sum_duplicates()
        held = sp.csr_array((rounded(summed.data, dtype), summed.indices, summed.indptr), shape=summed.shape)
        held.eliminate_zeros()
        nonzeros = np.diff(held.indptr).astype(np.int64)
        bad = np.argwhere(~np.isfinite(held.data))[:1, 0]
        at = [(int(np.searchsorted(held.indptr, i, side="right")) - 1, int(held.indices[i])) for i in bad]
        same = held.min(axis=0).toarray() == held.max(axis=0).toarray() if held.shape[0] else np.empty(0)
    for row, column in at:
        raise InputError(
            "a feature is not a finite number",
            where=f"{where}, node {row}, feature {column} (both from 0)",
            given=matrix[row, column],
            expected=f"finite numbers that {dtype} holds",
            remedy="replace missing values before ingest",
        )
    columns, constant = int(matrix.shape[1]), int(np.count_nonzero(same))

    def block(first: int) -> Block:
        values = held[first : first + BLOCK_ROWS]
        return np.arange(first, first + values.shape[0]), values

    def blocks() -> Iterator[Callable[[], Block]]:
        return (partial(block, first) for first in range(0, len(nonzeros), BLOCK_ROWS))

    return FeatureSource(columns, nonzeros, {name: (0, columns)}, {name: constant} if constant else {}, blocks)


def write_features(
    source: FeatureSource | None,
    directory: Path,
    dtype: FeatureDtype,
    journal: Journal,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """Write ``features/`` under ``directory``; the answer is their entry in the manifest.

    What a killed run wrote, as its ``journal`` tells, is gone on from.
    """
    if source is None:
        return {"layout": "none", "columns": 0, "dtype": None, "density": 0.0, "names": {}}
    total = len(source.nonzeros)
    density = float(source.nonzeros.sum()) / (total * source.columns)
    layout = "sparse" if density < SPARSE_BELOW else "dense"
    (directory / "features").mkdir(exist_ok=True)
    state = journal.state or {"blocks": 0, "rows": 0}
    writer = _sparse_writer if layout == "sparse" else _dense_writer
    write = writer(source, directory / "features", dtype, state["blocks"] > 0)
    with closing(ahead(make() for make in islice(source.blocks(), state["blocks"], None))) as coming:
        for rows, values in coming:
            write(rows, values)
            state = {"blocks": state["blocks"] + 1, "rows": state["rows"] + len(rows)}
            if state["blocks"] % JOURNAL_BLOCKS == 0 or state["rows"] == total:
                journal.record(**state)
            progress(state["rows"], total)
    return {
        "layout": layout,
        "columns": source.columns,
        "dtype": dtype,
        "density": density,
        "names": {name: list(span) for name, span in source.names.items()},
    }


BlockWriter = Callable[[Int64Array, Float32Array | sp.csr_array], None]


def _dense_writer(source: FeatureSource, directory: Path, dtype: FeatureDtype, begun: bool) -> BlockWriter:
    out = _mapped(directory / "dense.npy", dtype, (len(source.nonzeros), source.columns), begun)

    def write(rows: Int64Array, values: Float32Array | sp.csr_array) -> None:
        out[rows] = values if isinstance(values, np.ndarray) else values.toarray()

    return write


def _sparse_writer(source: FeatureSource, directory: Path, dtype: FeatureDtype, begun: bool) -> BlockWriter:
    indptr = _indptr(source.nonzeros, directory / "indptr.npy")
    out_indices = _mapped(directory / "indices.npy", "int32", (int(indptr[-1]),), begun)
    out_values = _mapped(directory / "values.npy", dtype, (int(indptr[-1]),), begun)

    def write(rows: Int64Array, values: Float32Array | sp.csr_array) -> None:
        block = sp.csr_array(values)
        shift = np.repeat(indptr[rows] - block.indptr[:-1], np.diff(block.indptr))
        place = np.arange(block.nnz) + shift
        out_indices[place] = block.indices
        out_values[place] = block.data

    return write


def _indptr(nonzeros: Int64Array, file: Path) -> Int64Array:
    indptr = mapped_npy(file, np.int64, (len(nonzeros) + 1,))
    for first in range(0, len(nonzeros), BATCH_ROWS):
        ends = indptr[first] + np.cumsum(nonzeros[first : first + BATCH_ROWS], dtype=np.int64)
        indptr[first + 1 : first + 1 + len(ends)] = ends
    return indptr


def _mapped(file: Path, dtype: str, shape: tuple[int, ...], begun: bool) -> npt.NDArray[Any]:
    """A new array on disk, or the one that a killed run began."""
    if begun and 0 not in shape:
        array: npt.NDArray[Any] = np.load(file, mmap_mode="r+", allow_pickle=False)
        return array
    return mapped_npy(file, dtype, shape)
