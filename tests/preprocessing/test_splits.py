from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preprocessing.bundle import Bundle
from preprocessing.errors import InputError
from preprocessing.ingest import ingest
from preprocessing.stage import Emitter


def run(folder: Path, split: list[str | None] | pa.Array) -> Bundle:
    """Ids are given backwards."""
    pq.write_table(pa.table({"id": [5, 4, 3, 2, 1], "part": split}), folder / "nodes.parquet")
    pq.write_table(pa.table({"source": [1, 2], "target": [2, 3]}), folder / "edges.parquet")
    tables = {name: str(folder / f"{name}.parquet") for name in ("nodes", "edges")}
    source = {"kind": "tables", **tables, "split": "part"}
    ingest({"out": folder / "bundle", "settings": {"source": source}}, Emitter("ingest"))
    return Bundle(folder / "bundle")


@pytest.mark.parametrize("dictionary", [False, True])
def test_a_column_of_words_follows_its_ids(tmp_path: Path, dictionary: bool) -> None:
    words = pa.array(["train", "val", None, "test", "validation"])
    bundle = run(tmp_path, words.dictionary_encode() if dictionary else words)
    column = pq.read_table(bundle.path / "splits.parquet")["split"].to_pylist()
    assert column == ["validation", "test", None, "validation", "train"]
    assert bundle.manifest["split"] == {"train": 1, "validation": 2, "test": 1}


def test_other_words_and_types_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"row 3 .*no part of a split is called so\n  given: dev"):
        run(tmp_path, ["train", "val", "dev", "test", None])
    with pytest.raises(InputError, match="this column can be no split"):
        run(tmp_path, [1, 2, 3, 4, 5])
    assert not (tmp_path / "bundle").exists()
