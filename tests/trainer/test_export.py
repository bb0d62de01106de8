"""Exports hold every id and vector, whole or not at all."""

from __future__ import annotations

import csv
import errno
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labelled_bundles import make_labelled_bundle, write_embeddings

from preprocessing.errors import Interrupted, UsageError
from preprocessing.stage import Emitter
from trainer import embedding_set
from trainer.embedding_set import EmbeddingSet
from trainer.export import export

NAMES = [f'say "{i}", please' for i in range(10, 50)]


@pytest.fixture
def embeddings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddingSet:
    monkeypatch.setattr(embedding_set, "PART_ROWS", 15)
    write_embeddings(tmp_path / "emb", make_labelled_bundle(tmp_path, NAMES))
    return EmbeddingSet(tmp_path / "emb")


@pytest.mark.parametrize("name", ["all.parquet", "all.csv", "parts"])
def test_rows_in_every_format(tmp_path: Path, embeddings: EmbeddingSet, name: str) -> None:
    out = tmp_path / "exports" / name
    summary = export({"embeddings": str(embeddings.path), "out": str(out)}, Emitter("export"))
    assert summary == {"out": str(out), "nodes": 40, "dim": 8}
    if out.suffix == ".csv":
        with out.open(newline="") as file:
            header, *rows = csv.reader(file)
        assert header == ["id", *(f"v{i}" for i in range(8))]
        ids, vectors = [row[0] for row in rows], [row[1:] for row in rows]
    else:
        table = pq.read_table(sorted(out.iterdir()) if out.is_dir() else out)
        ids, vectors = table["id"].to_pylist(), table["vector"].to_pylist()
        assert not out.is_dir() or len(list(out.iterdir())) == 3
    assert ids == NAMES
    np.testing.assert_array_equal(np.array(vectors, dtype=np.float32), embeddings.vectors)
    assert [path.name for path in out.parent.iterdir()] == [name]


def test_refusals_leave_everything_as_it_was(tmp_path: Path, embeddings: EmbeddingSet) -> None:
    taken = tmp_path / "taken.csv"
    taken.write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        export({"embeddings": str(embeddings.path), "out": str(taken)}, Emitter("export"))
    with pytest.raises(UsageError, match=r"end in \.parquet or \.csv|ends in \.parquet or \.csv"):
        export({"embeddings": str(embeddings.path), "out": str(tmp_path / "all.xlsx")}, Emitter("export"))
    assert taken.read_text() == "mine"
    assert not (tmp_path / "all.xlsx").exists()


@pytest.mark.parametrize("name", ["all.parquet", "all.csv", "parts"])
@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left on device"), Interrupted("asked to end")])
def test_an_export_that_fails_half_way_leaves_nothing(
    tmp_path: Path, embeddings: EmbeddingSet, monkeypatch: pytest.MonkeyPatch, name: str, fault: BaseException
) -> None:
    tables = EmbeddingSet.tables

    def breaking(self: EmbeddingSet) -> Iterator[pa.Table]:
        yield next(tables(self))
        assert list(out.parent.iterdir()), "something is written by now"
        raise fault

    monkeypatch.setattr(EmbeddingSet, "tables", breaking)
    out = tmp_path / "exports" / name
    with pytest.raises(type(fault)):
        export({"embeddings": str(embeddings.path), "out": str(out)}, Emitter("export"))
    assert list(out.parent.iterdir()) == []


def test_an_export_that_was_killed_is_made_anew(tmp_path: Path, embeddings: EmbeddingSet) -> None:
    (tmp_path / ".parts.partial").mkdir()
    (tmp_path / ".parts.partial" / "part-99999.parquet").write_bytes(b"half")
    (tmp_path / ".all.parquet.partial").write_bytes(b"half")
    for name in ("parts", "all.parquet"):
        export({"embeddings": str(embeddings.path), "out": str(tmp_path / name)}, Emitter("export"))
        assert pq.read_table(tmp_path / name)["id"].to_pylist() == NAMES
