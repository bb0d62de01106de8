"""External sort of ids: against Python's own, whatever the memory, and after a kill."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocessing.errors import InputError
from preprocessing.id_sort import IdSorter
from preprocessing.ids import IdKind
from preprocessing.sorted_ids import sorted_ids

TYPES = {"int64": pa.int64(), "string": pa.large_string()}
INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5)
STRINGS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5) | st.sampled_from(["a", "b", "ä"])


def in_order(values: list[int] | list[str]) -> list:
    return sorted(values, key=lambda value: value.encode() if isinstance(value, str) else value)


def blocks(values: list, kind: IdKind, length: int) -> list[pa.Array]:
    return [pa.array(values[i : i + length], TYPES[kind]) for i in range(0, len(values), length)]


@pytest.mark.parametrize("memory", [1, 500, 1 << 20])
@pytest.mark.parametrize(("kind", "values"), [("int64", INTEGERS), ("string", STRINGS)])
@given(data=st.data(), length=st.integers(1, 20))
def test_distinct_ids_in_order_with_the_row_where_each_comes_first(
    memory: int, kind: IdKind, values: st.SearchStrategy, data: st.DataObject, length: int
) -> None:
    given = data.draw(st.lists(values, min_size=1, max_size=60))
    with tempfile.TemporaryDirectory() as folder:
        ids, order = sorted_ids(lambda: iter(blocks(given, kind, length)), kind, Path(folder) / "ids", memory)
        assert ids.column().to_pylist() == in_order(list(set(given)))
        assert order.tolist() == [given.index(value) for value in ids.column().to_pylist()]
        assert ids.rows(pa.array(given, TYPES[kind])).tolist() == [in_order(list(set(given))).index(v) for v in given]


@pytest.mark.parametrize("memory", [1, 1 << 20])
@pytest.mark.parametrize(("kind", "given"), [("int64", [4, 9, 2, 9, 4]), ("string", ["d", "i", "b", "i", "d"])])
def test_a_repeat_is_the_error_of_its_rows(tmp_path: Path, memory: int, kind: IdKind, given: list) -> None:
    def repeated(node: int | str, before: int, row: int) -> InputError:
        return InputError(f"{node} in {before} and {row}")

    with pytest.raises(InputError, match=f"{given[0]} in 0 and 4"):
        sorted_ids(lambda: iter(blocks(given, kind, 2)), kind, tmp_path / "ids", memory, repeated)


@pytest.mark.parametrize("kind", ["int64", "string"])
def test_a_killed_sort_goes_on_after_its_last_whole_run(tmp_path: Path, kind: IdKind) -> None:
    numbers = np.random.default_rng(0).permutation(1000)
    given = [int(n) if kind == "int64" else f"n{n}" for n in numbers]
    read: list[int] = []

    def dying(last: int) -> Iterator[pa.Array]:
        for number, block in enumerate(blocks(given, kind, 10)):
            if number == last:
                raise KeyboardInterrupt
            read.append(number)
            yield block

    memory = 6 * 16 * 70
    with pytest.raises(KeyboardInterrupt):
        sorted_ids(lambda: dying(50), kind, tmp_path / "ids", memory)
    assert 40 < IdSorter(tmp_path / "ids", memory).blocks <= 50
    ids, order = sorted_ids(lambda: dying(1000), kind, tmp_path / "ids", memory)
    assert ids.column().to_pylist() == in_order(given)
    assert [given[row] for row in order] == in_order(given)
    read.clear()
    again, _ = sorted_ids(lambda: dying(0), kind, tmp_path / "ids", memory)
    assert again.column().equals(ids.column())
