"""Features on their way to the bundle: rounded to its dtype, checked, and laid out dense or sparse by their density."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from preprocessing.array_file import mapped_npy
from preprocessing.bundle import Float32Array, Int64Array
from preprocessing.errors import InputError

__all__ = ["BLOCK_ROWS", "FeatureDtype", "FeatureSource", "matrix_features", "rounded", "write_features"]

FeatureDtype = Literal["float32", "float16"]

BLOCK_ROWS = 4096
# Below a quarter full, the first layer's sparse product is the faster one (measured: 35 % full costs 74 ms sparse and
# 51 ms dense, and the sparse time is in proportion to the entries), and the file is at most half as long.
SPARSE_BELOW = 0.25


@dataclass(frozen=True)
class FeatureSource:
    """Features [N, columns], checked, to be read once more in blocks.

    ``nonzeros`` [N] counts the entries of every row; ``names`` gives the range of columns a named input became.
    ``blocks`` yields rows [B] and their values [B, columns], float32 as ``rounded`` left them, dense or CSR.
    """

    columns: int
    nonzeros: Int64Array
    names: dict[str, tuple[int, int]]
    blocks: Callable[[], Iterator[tuple[Int64Array, Float32Array | sp.csr_array]]]


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
    else:
        summed = sp.csr_array(matrix, copy=True)
        summed.sum_duplicates()
        held = sp.csr_array((rounded(summed.data, dtype), summed.indices, summed.indptr), shape=summed.shape)
        held.eliminate_zeros()
        nonzeros = np.diff(held.indptr).astype(np.int64)
        bad = np.argwhere(~np.isfinite(held.data))[:1, 0]
        at = [(int(np.searchsorted(held.indptr, i, side="right")) - 1, int(held.indices[i])) for i in bad]
    for row, column in at:
        raise InputError(
            "a feature is not a finite number",
            where=f"{where}, node {row}, feature {column} (both from 0)",
            given=matrix[row, column],
            expected=f"finite numbers that {dtype} holds",
            remedy="replace missing values before ingest",
        )
    columns = int(matrix.shape[1])

    def blocks() -> Iterator[tuple[Int64Array, Float32Array | sp.csr_array]]:
        for first in range(0, len(nonzeros), BLOCK_ROWS):
            block = held[first : first + BLOCK_ROWS]
            yield np.arange(first, first + block.shape[0]), block

    return FeatureSource(columns, nonzeros, {name: (0, columns)}, blocks)


def write_features(
    source: FeatureSource | None, directory: Path, dtype: FeatureDtype, progress: Callable[[int, int], None]
) -> dict[str, Any]:
    """Write ``features/`` under ``directory``; the answer is their entry in the manifest."""
    if source is None:
        return {"layout": "none", "columns": 0, "dtype": None, "density": 0.0, "names": {}}
    total = len(source.nonzeros)
    density = float(source.nonzeros.sum()) / (total * source.columns)
    layout = "sparse" if density < SPARSE_BELOW else "dense"
    (directory / "features").mkdir(exist_ok=True)
    write = (_sparse_writer if layout == "sparse" else _dense_writer)(source, directory / "features", dtype)
    done = 0
    for rows, values in source.blocks():
        write(rows, values)
        done += len(rows)
        progress(done, total)
    return {
        "layout": layout,
        "columns": source.columns,
        "dtype": dtype,
        "density": density,
        "names": {name: list(span) for name, span in source.names.items()},
    }


BlockWriter = Callable[[Int64Array, Float32Array | sp.csr_array], None]


def _dense_writer(source: FeatureSource, directory: Path, dtype: FeatureDtype) -> BlockWriter:
    out = mapped_npy(directory / "dense.npy", dtype, (len(source.nonzeros), source.columns))

    def write(rows: Int64Array, values: Float32Array | sp.csr_array) -> None:
        out[rows] = values if isinstance(values, np.ndarray) else values.toarray()

    return write


def _sparse_writer(source: FeatureSource, directory: Path, dtype: FeatureDtype) -> BlockWriter:
    indptr = np.concatenate([[0], np.cumsum(source.nonzeros)]).astype(np.int64)
    np.save(directory / "indptr.npy", indptr)
    out_indices = mapped_npy(directory / "indices.npy", "int32", (int(indptr[-1]),))
    out_values = mapped_npy(directory / "values.npy", dtype, (int(indptr[-1]),))

    def write(rows: Int64Array, values: Float32Array | sp.csr_array) -> None:
        block = sp.csr_array(values)
        shift = np.repeat(indptr[rows] - block.indptr[:-1], np.diff(block.indptr))
        place = np.arange(block.nnz) + shift
        out_indices[place] = block.indices
        out_values[place] = block.data

    return write
