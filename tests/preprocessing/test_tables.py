from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preprocessing.errors import InputError
from preprocessing.input_files import InputFile
from preprocessing.tables import Table, open_table


def cells(table: Table, size: int = 2) -> dict[str, list[Any]]:
    """Every column, gathered from batches, whose first rows must count on."""
    names = list(table.types)
    gathered: dict[str, list[Any]] = {name: [] for name in names}
    for first, batch in table.batches(names, size):
        assert first == len(gathered[names[0]])
        assert 0 < batch.num_rows <= size
        for name in names:
            gathered[name] += batch[name].to_pylist()
    return gathered


def write(path: Path, columns: dict[str, list[Any]]) -> None:
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    else:
        lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
        path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_directory_is_its_parts_in_natural_order(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "_SUCCESS").touch()
    write(tmp_path / f".hidden{suffix}", {"a": [9]})
    for part, values in (("part-10", [5, 6]), ("part-2", [3, 4]), ("part-1", [0, 1, 2])):
        write(tmp_path / f"{part}{suffix}", {"a": values})
    table = open_table(InputFile.at(tmp_path))
    assert [int(value) for value in cells(table)["a"]] == [0, 1, 2, 3, 4, 5, 6]
    assert table.place(4) == str(tmp_path / f"part-2{suffix}") + (
        ", row 2 (the first row is 1)" if suffix == ".parquet" else ", line 3 (the header is line 1)"
    )
    assert table.place(5).startswith(str(tmp_path / f"part-10{suffix}, "))


def test_csv_cells_are_trimmed_text_and_empty_ones_null(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes("\ufeffid, text\r\n1, x y \r\n NA ,\r\n\r\n3,  \r\n".encode())
    table = open_table(InputFile.at(file))
    assert cells(table) == {"id": ["1", "NA", "3"], "text": ["x y", None, None]}
    assert table.place(2) == f"{file}, line 5 (the header is line 1)"


def test_lines_are_counted_as_an_editor_counts_them(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('id,text\n1,"two\nlines"\n\n2,"a ""b"", c"\n')
    table = open_table(InputFile.at(file))
    assert cells(table) == {"id": ["1", "2"], "text": ["two\nlines", 'a "b", c']}
    assert table.place(0) == f"{file}, line 2 (the header is line 1)"
    assert table.place(1) == f"{file}, line 5 (the header is line 1)"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1,2\n\n1,2,3\n", ("line 4 (the header is line 1)", "wrong number of fields", "3 fields: 1,2,3")),
        (b'a,b\n1,"x\ny"\n1\n', ("line 4", "wrong number of fields", "1 fields: 1", "2 fields, as the header has")),
        (b"a,b\n1,2\n3,\xff\n", ("line 3", "not UTF-8")),
        (b"a,\xff\n1,2\n", ("line 1", "not UTF-8")),
        (b"", ("cannot be read", "a header line")),
        (b"a,b\n", ("the table is empty",)),
        (b"a,a\n1,2\n", ("two columns have one name", "'a'")),
    ],
)
def test_faults_of_csv_files(tmp_path: Path, content: bytes, message: tuple[str, ...]) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(content)
    with pytest.raises(InputError) as raised:
        cells(open_table(InputFile.at(file)))
    for part in (str(file), *message):
        assert part in raised.value.text()


def test_faults_of_parquet_files(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    write(file, {"a": list(range(100_000))})
    whole = file.read_bytes()
    damaged = bytearray(whole)
    damaged[100:5000] = bytes(4900)
    for content in (whole[: len(whole) // 2], b"a,b\n1,2\n", b"", bytes(damaged)):
        file.write_bytes(content)
        with pytest.raises(InputError, match="no Parquet, or it is truncated or damaged") as raised:
            cells(open_table(InputFile.at(file)), size=1 << 20)
        assert raised.value.where == str(file)
    write(file, {"a": []})
    with pytest.raises(InputError, match="the table is empty"):
        open_table(InputFile.at(file))


def test_faults_of_paths(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        open_table(InputFile.at(tmp_path / "absent.csv"))
    (tmp_path / "a.txt").touch()
    with pytest.raises(InputError, match="no table by its suffix"):
        open_table(InputFile.at(tmp_path / "a.txt"))
    with pytest.raises(InputError, match="no part"):
        open_table(InputFile.at(tmp_path))
    write(tmp_path / "a.csv", {"a": [1]})
    write(tmp_path / "a.parquet", {"a": [1]})
    with pytest.raises(InputError, match="Parquet and CSV parts"):
        open_table(InputFile.at(tmp_path))


def test_parts_must_agree(tmp_path: Path) -> None:
    write(tmp_path / "1.parquet", {"a": [1], "b": ["x"]})
    write(tmp_path / "2.parquet", {"a": [1.5], "b": ["x"]})
    with pytest.raises(InputError) as raised:
        open_table(InputFile.at(tmp_path))
    for part in ("2.parquet, column 'a'", "type double", "type int64"):
        assert part in raised.value.text()
