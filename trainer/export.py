"""The export stage: an embedding set as plain Parquet or CSV, here or in an object store."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from preprocessing.artifact import make_folder
from preprocessing.errors import UsageError
from preprocessing.input_files import InputFile
from preprocessing.settings import Settings
from preprocessing.stage import Emitter
from trainer.embedding_set import EmbeddingSet

__all__ = ["ExportSpec", "export"]

_WRITERS: dict[str, Any] = {".parquet": pq.ParquetWriter, ".csv": pyarrow.csv.CSVWriter}


class ExportSpec(Settings):
    """What ``python -m trainer export`` reads.

    ``out`` ends in ``.parquet`` or ``.csv`` for one file, or has no suffix for a directory of Parquet parts. One
    file may be a URI that ``pyarrow.fs`` opens (s3://, gs://).
    """

    embeddings: Path
    out: str


def export(spec: dict[str, Any], emitter: Emitter) -> Mapping[str, Any]:
    """Write ``id`` and ``vector`` (Parquet), or ``id, v0, v1, …`` (CSV), whole or not at all.

    ``UsageError`` when ``out`` exists, has another suffix, or is a URI that cannot be written to.
    """
    request = ExportSpec.model_validate(spec)
    embeddings = EmbeddingSet(request.embeddings)
    tables = _watched(embeddings, emitter)
    (_to_uri if "://" in request.out else _to_path)(request.out, tables)
    return {"out": request.out, "nodes": len(embeddings.ids), "dim": embeddings.vectors.shape[1]}


def _to_path(named: str, tables: Iterator[pa.Table]) -> None:
    out = Path(named)
    _check_suffix(out.name, out.suffix, (*_WRITERS, ""))
    if out.exists():
        raise _exists(named)
    make_folder(out.parent)
    # One that a kill left is of the same name, and replaced.
    partial = out.parent / f".{out.name}.partial"
    _remove(partial)
    try:
        if out.suffix == "":
            partial.mkdir()
            for number, table in enumerate(tables):
                pq.write_table(table, partial / f"part-{number:05d}.parquet")
        else:
            _write_file(out.suffix, partial, tables)
        partial.rename(out)
    except BaseException:
        _remove(partial)
        raise


def _remove(partial: Path) -> None:
    if partial.is_dir():
        shutil.rmtree(partial)
    else:
        partial.unlink(missing_ok=True)


def _to_uri(named: str, tables: Iterator[pa.Table]) -> None:
    """An object store shows an object once it is closed. One that had to be closed half way is removed again."""
    out = InputFile.at(named)
    _check_suffix(named, out.suffix, tuple(_WRITERS))
    if out.exists():
        raise _exists(named)
    try:
        stream = out.filesystem.open_output_stream(out.path)
        try:
            with stream:
                _write_file(out.suffix, stream, tables)
        except BaseException:
            with suppress(OSError, pa.ArrowException):
                out.filesystem.delete_file(out.path)
            raise
    except (OSError, pa.ArrowException) as error:
        raise UsageError(
            f"the export cannot be written ({error})",
            given=named,
            expected="a place that can be written to from here",
            remedy="check the bucket, the network, and the region and credentials in the environment",
            pointer="/out",
        ) from error


def _check_suffix(name: str, suffix: str, taken: Sequence[str]) -> None:
    if suffix not in taken:
        folder = ", or one without a suffix for a directory of Parquet parts" if "" in taken else ""
        raise UsageError(
            "exports are Parquet or CSV",
            given=name,
            expected=f"a name that ends in .parquet or .csv{folder}",
            pointer="/out",
        )


def _exists(named: str) -> UsageError:
    return UsageError(
        "the output exists already",
        given=named,
        expected="a path that does not exist",
        remedy="name another path, or delete this one",
        pointer="/out",
    )


def _watched(embeddings: EmbeddingSet, emitter: Emitter) -> Iterator[pa.Table]:
    done = 0
    for table in embeddings.tables():
        yield table
        done += len(table)
        emitter.progress(done, len(embeddings.ids), "nodes")


def _write_file(suffix: str, target: Any, tables: Iterator[pa.Table]) -> None:
    rows = map(_flat, tables) if suffix == ".csv" else tables
    first = next(rows)
    with _WRITERS[suffix](target, first.schema) as writer:
        for table in chain([first], rows):
            writer.write_table(table)


def _flat(table: pa.Table) -> pa.Table:
    """A column a dimension: CSV has no lists."""
    vectors = table["vector"].combine_chunks()
    values = vectors.flatten().to_numpy().reshape(len(table), -1)
    columns = {f"v{i}": np.ascontiguousarray(values[:, i]) for i in range(values.shape[1])}
    return pa.table({"id": table["id"], **columns})
