"""The export stage: an embedding set as plain Parquet or CSV."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from preprocessing.errors import UsageError
from preprocessing.settings import Settings
from preprocessing.stage import Emitter
from trainer.embedding_set import EmbeddingSet

__all__ = ["ExportSpec", "export"]


class ExportSpec(Settings):
    """What ``python -m trainer export`` reads.

    ``out`` ends in ``.parquet`` or ``.csv`` for one file, or has no suffix for a directory of Parquet parts.
    """

    embeddings: Path
    out: Path


def export(spec: dict[str, Any], emitter: Emitter) -> Mapping[str, Any]:
    """Write ``id`` and ``vector`` (Parquet), or ``id, v0, v1, …`` (CSV), whole or not at all.

    ``UsageError`` when ``out`` exists or has another suffix.
    """
    request = ExportSpec.model_validate(spec)
    embeddings = EmbeddingSet(request.embeddings)
    out = request.out
    if out.suffix not in (".parquet", ".csv", ""):
        raise UsageError(
            "exports are Parquet or CSV",
            given=out.name,
            expected="a name that ends in .parquet or .csv, or one without a suffix for a directory of Parquet parts",
            pointer="/out",
        )
    if out.exists():
        raise UsageError(
            "the output exists already",
            given=out,
            expected="a path that does not exist",
            remedy="name another path, or delete this one",
            pointer="/out",
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.parent / f".{out.name}.partial"
    tables = _watched(embeddings, emitter)
    if out.suffix == "":
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        for number, table in enumerate(tables):
            pq.write_table(table, partial / f"part-{number:05d}.parquet")
    elif out.suffix == ".csv":
        _write_file(pyarrow.csv.CSVWriter, partial, (_flat(table) for table in tables))
    else:
        _write_file(pq.ParquetWriter, partial, tables)
    partial.rename(out)
    return {"out": str(out), "nodes": len(embeddings.ids), "dim": embeddings.vectors.shape[1]}


def _watched(embeddings: EmbeddingSet, emitter: Emitter) -> Iterator[pa.Table]:
    done = 0
    for table in embeddings.tables():
        yield table
        done += len(table)
        emitter.progress(done, len(embeddings.ids), "nodes")


def _write_file(writer_type: Any, path: Path, tables: Iterator[pa.Table]) -> None:
    first = next(tables)
    with writer_type(path, first.schema) as writer:
        for table in chain([first], tables):
            writer.write_table(table)


def _flat(table: pa.Table) -> pa.Table:
    """A column a dimension: CSV has no lists."""
    vectors = table["vector"].combine_chunks()
    values = vectors.flatten().to_numpy().reshape(len(table), -1)
    columns = {f"v{i}": np.ascontiguousarray(values[:, i]) for i in range(values.shape[1])}
    return pa.table({"id": table["id"], **columns})
