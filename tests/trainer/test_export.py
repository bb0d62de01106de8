"""Exports hold every id and vector, whole or not at all."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from labelled_bundles import make_labelled_bundle, write_embeddings

from preprocessing.errors import UsageError
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


def test_an_export_that_was_killed_is_made_anew(tmp_path: Path, embeddings: EmbeddingSet) -> None:
    (tmp_path / ".parts.partial").mkdir()
    (tmp_path / ".parts.partial" / "part-99999.parquet").write_bytes(b"half")
    (tmp_path / ".all.parquet.partial").write_bytes(b"half")
    for name in ("parts", "all.parquet"):
        export({"embeddings": str(embeddings.path), "out": str(tmp_path / name)}, Emitter("export"))
        assert pq.read_table(tmp_path / name)["id"].to_pylist() == NAMES
