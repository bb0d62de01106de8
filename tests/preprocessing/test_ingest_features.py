from __future__ import annotations

import decimal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from preprocessing.feature_columns import choose_features, table_features
from preprocessing.features import BLOCK_ROWS, FeatureSource, matrix_features, rounded, write_features
from preprocessing.input_files import InputFile
from preprocessing.journal import Journal
from preprocessing.tables import open_table


def read(directory: Path, entry: dict[str, Any], rows: int) -> np.ndarray:
    if entry["layout"] == "dense":
        return np.load(directory / "features" / "dense.npy").astype(float)
    indptr, indices, values = (
        np.load(directory / "features" / f"{name}.npy") for name in ("indptr", "indices", "values")
    )
    assert (values != 0).all()
    return sp.csr_array((values.astype(float), indices, indptr), shape=(rows, entry["columns"])).toarray()


def written(source: FeatureSource, directory: Path, dtype: Any) -> dict[str, Any]:
    (directory / "written.json").unlink(missing_ok=True)
    return write_features(source, directory, dtype, Journal(directory / "written.json"), lambda *_: None)


def from_table(tmp_path: Path, columns: dict[str, Any], names: list[str] | None = None, dtype: Any = "float32") -> Any:
    pq.write_table(pa.table(columns), tmp_path / "n.parquet")
    table = open_table(InputFile.at(tmp_path / "n.parquet"))
    rank = np.arange(table.rows)[::-1].copy()
    chosen = choose_features(table, ["id"]) if names is None else names
    (tmp_path / "features-checked.json").unlink(missing_ok=True)
    source = table_features(table, chosen, rank, dtype, tmp_path, lambda *_: None)
    entry = written(source, tmp_path, dtype)
    return entry, read(tmp_path, entry, table.rows)[::-1].tolist()


def test_every_kind_of_column_becomes_its_numbers(tmp_path: Path) -> None:
    entry, values = from_table(
        tmp_path,
        {
            "id": [1, 2],
            "int": pa.array([3, -4], pa.int16()),
            "half": pa.array(np.array([0.5, 0.25], np.float16)),
            "decimal": [decimal.Decimal("1.50"), decimal.Decimal("-2.25")],
            "bool": [True, False],
            "text of numbers": ["1e2", " +.5 "],
            "vector": [[1.5, 2.5], [3.5, 4.5]],
            "fixed": pa.array([[7, 8], [9, 10]], pa.list_(pa.int32(), 2)),
            "flags": [[True, False], [True, True]],
            "words": pa.array([[1], [0, 2]], pa.large_list(pa.uint32())),
            "town": ["Oslo", "Bern"],
            "day": pa.array([1, 2], pa.date32()),
            "__index_level_0__": [0, 1],
        },
    )
    assert values == [
        [3, 0.5, 1.5, 1, 100, 1.5, 2.5, 7, 8, 1, 0, 0, 1, 0],
        [-4, 0.25, -2.25, 0, 0.5, 3.5, 4.5, 9, 10, 1, 1, 1, 0, 1],
    ]
    assert entry["names"] == {
        "int": [0, 1],
        "half": [1, 2],
        "decimal": [2, 3],
        "bool": [3, 4],
        "text of numbers": [4, 5],
        "vector": [5, 7],
        "fixed": [7, 9],
        "flags": [9, 11],
        "words": [11, 14],
    }


def test_integer_lists_of_one_length_are_words_and_float_lists_a_vector(tmp_path: Path) -> None:
    assert from_table(tmp_path, {"x": [[2, 0], [1, 2]]})[1] == [[1, 0, 1], [0, 1, 1]]
    assert from_table(tmp_path, {"x": [[2.0, 0.0], [1.0, 2.0]]})[1] == [[2, 0], [1, 2]]


def test_features_asked_for_come_in_the_order_asked(tmp_path: Path) -> None:
    entry, values = from_table(tmp_path, {"a": [1, 2], "b": ["3", "4"], "c": [5, 6]}, names=["c", "b"])
    assert values == [[5, 3], [6, 4]]
    assert entry["columns"] == 2


@pytest.mark.parametrize(("nonzeros", "layout"), [(24, "sparse"), (25, "dense")])
def test_layout_is_sparse_below_a_quarter(tmp_path: Path, nonzeros: int, layout: str) -> None:
    matrix = np.zeros((10, 10))
    matrix.flat[:nonzeros] = 2
    for given_matrix in (matrix, sp.csr_array(matrix)):
        entry = written(matrix_features(given_matrix, "float32", "x", "here"), tmp_path, "float32")
        assert (entry["layout"], entry["density"]) == (layout, nonzeros / 100)
        assert read(tmp_path, entry, 10).tolist() == matrix.tolist()


def test_what_rounds_to_zero_is_not_stored(tmp_path: Path) -> None:
    matrix = sp.csr_array(np.array([[1.0, 1e-30, 0, 0, 0, 0, 0, 0, 0]]))
    entry = written(matrix_features(matrix, "float16", "x", "here"), tmp_path, "float16")
    assert np.load(tmp_path / "features" / "values.npy").tolist() == [1.0]
    assert np.load(tmp_path / "features" / "values.npy").dtype == np.float16
    assert entry["density"] == 1 / 9


def test_repeated_entries_of_a_csr_matrix_are_summed(tmp_path: Path) -> None:
    matrix = sp.csr_array((np.array([1.0, 2.0, 3.0, -3.0]), np.array([4, 4, 1, 1]), np.array([0, 4])), shape=(1, 9))
    entry = written(matrix_features(matrix, "float32", "x", "here"), tmp_path, "float32")
    assert read(tmp_path, entry, 1).tolist() == [[0, 0, 0, 0, 3, 0, 0, 0, 0]]


def test_all_zero_features_are_kept_as_none_stored(tmp_path: Path) -> None:
    entry = written(matrix_features(np.zeros((3, 2)), "float32", "x", "here"), tmp_path, "float32")
    assert (entry["layout"], entry["density"]) == ("sparse", 0.0)
    assert read(tmp_path, entry, 3).tolist() == [[0, 0]] * 3


def test_many_blocks_land_in_their_rows(tmp_path: Path) -> None:
    rows = 10_000
    entry, values = from_table(tmp_path, {"x": np.arange(rows, dtype=np.float64), "w": [[i % 7] for i in range(rows)]})
    assert entry["columns"] == 8
    assert [row[0] for row in values] == list(range(rows))
    assert [row[1:].index(1) for row in values] == [i % 7 for i in range(rows)]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_rounded_is_numpys_rounding(value: float) -> None:
    with np.errstate(over="ignore"):
        assert rounded(np.array([value]), "float16")[0] == np.float16(value)
        assert rounded(np.array([value]), "float32")[0] == np.float32(value)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_writing_goes_on_at_the_block_a_kill_left(tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("preprocessing.features.JOURNAL_BLOCKS", 1)
    matrix = np.zeros((2 * BLOCK_ROWS + 5, 8))
    matrix[:, : 1 if layout == "sparse" else 8] = np.arange(1, len(matrix) + 1)[:, np.newaxis]
    source = matrix_features(matrix, "float32", "x", "here")
    made: list[int] = []

    def watched(fail_at: int | None) -> FeatureSource:
        def blocks() -> Iterator[Any]:
            for number, make in enumerate(source.blocks()):
                yield partial(counted, number, make, fail_at)

        return replace(source, blocks=blocks)

    def counted(number: int, make: Any, fail_at: int | None) -> Any:
        if number == fail_at:
            raise KeyboardInterrupt
        made.append(number)
        return make()

    journal = tmp_path / "written.json"
    with pytest.raises(KeyboardInterrupt):
        write_features(watched(1), tmp_path, "float32", Journal(journal), lambda *_: None)
    entry = write_features(watched(None), tmp_path, "float32", Journal(journal), lambda *_: None)
    assert made == [0, 1, 2]
    assert entry["layout"] == layout
    assert read(tmp_path, entry, len(matrix)).tolist() == matrix.tolist()


def test_constant_features_are_counted(tmp_path: Path) -> None:
    columns = {
        "id": [1, 2, 3],
        "same": [7.0, 7.0, 7.0],
        "other": [7.0, 7.0, 8.0],
        "vector": [[1.0, 2.0, 3.0], [1.0, 5.0, 3.0], [1.0, 2.0, 3.0]],
        "words": [[0], [0], [0, 2]],
    }
    pq.write_table(pa.table(columns), tmp_path / "n.parquet")
    table = open_table(InputFile.at(tmp_path / "n.parquet"))
    chosen = ["same", "other", "vector", "words"]
    source = table_features(table, chosen, np.arange(3), "float32", tmp_path, lambda *_: None)
    assert source.constant == {"same": 1, "vector": 2}


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_constant_columns_of_a_matrix_are_counted(form: Any) -> None:
    matrix = form(np.array([[0.0, 2, 0, 5], [0, 2, 0, 5], [0, 2, 1, 6]]))
    assert matrix_features(matrix, "float32", "x", "here").constant == {"x": 2}
    assert matrix_features(matrix[:0], "float32", "x", "here").constant == {}
