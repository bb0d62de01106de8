from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocessing.errors import ArtifactError
from preprocessing.ids import IdMap

INTEGERS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)


def string_map(ids: list[str]) -> IdMap:
    return IdMap(pa.array(ids, pa.large_string()))


@given(ids=st.sets(INTEGERS, max_size=40), others=st.lists(INTEGERS, max_size=10))
def test_integer_rows_are_those_of_a_dict(ids: set[int], others: list[int]) -> None:
    ascending = sorted(ids)
    oracle = {value: row for row, value in enumerate(ascending)}
    ids_N = IdMap(np.array(ascending, dtype=np.int64))
    asked = [*ascending, *others]
    expected = [oracle.get(value, -1) for value in asked]
    assert ids_N.rows(asked).tolist() == expected
    assert ids_N.rows([str(value) for value in asked]).tolist() == expected
    assert ids_N.rows(np.array(asked, dtype=np.int64)).tolist() == expected
    assert ids_N.rows(pa.array(asked, pa.int64())).tolist() == expected
    assert [ids_N.row(value) for value in asked] == [oracle.get(value) for value in asked]
    assert [ids_N.row(str(value)) for value in asked] == [oracle.get(value) for value in asked]
    assert ids_N.external(np.arange(len(ids))) == [str(value) for value in ascending]


@given(ids=st.sets(TEXTS, max_size=40), others=st.lists(TEXTS, max_size=10), skipped=st.integers(0, 3))
def test_one_string_is_found_as_many_are(ids: set[str], others: list[str], skipped: int) -> None:
    ascending = sorted(ids, key=str.encode)
    # A slice of a longer array, as ids lie in a file that holds more.
    ids_N = IdMap(pa.array([*[""] * skipped, *ascending], pa.large_string())[skipped:])
    oracle = {value: row for row, value in enumerate(ascending)}
    for value in [*ascending, *others, "\ud800"]:
        assert ids_N.row(value) == oracle.get(value)


@given(ids=st.sets(TEXTS, max_size=60), others=st.lists(TEXTS, max_size=10), share=st.integers(3, 60))
def test_string_rows_are_those_of_a_dict(ids: set[str], others: list[str], share: int) -> None:
    ascending = sorted(ids, key=lambda text: text.encode())
    oracle = {value: row for row, value in enumerate(ascending)}
    ids_N = string_map(ascending)
    asked = [*ascending, *others]
    # Few at a time are bisected, many are hashed: both must agree with the dict.
    for batch in (asked, *(asked[i : i + 1] for i in range(0, len(asked), share))):
        assert ids_N.rows(batch).tolist() == [oracle.get(value, -1) for value in batch]
    assert ids_N.rows(pa.array(asked, pa.string())).tolist() == [oracle.get(value, -1) for value in asked]
    assert ids_N.external(list(range(len(ids)))) == ascending


def test_an_id_has_one_spelling() -> None:
    ids = IdMap(np.array([-7, 0, 7], dtype=np.int64))
    assert (
        ids.rows(["7", "07", "+7", " 7", "7.0", "-0", "-7", "٧", "", "x", "9" * 30]).tolist()
        == [2] + [-1] * 5 + [0] + [-1] * 4
    )
    assert ids.rows([7, 2**70, -(2**70)]).tolist() == [2, -1, -1]


def test_integers_find_strings_and_strings_find_integers() -> None:
    assert string_map(["07", "7", "é"]).rows([7, "07", "é", 8]).tolist() == [1, 0, 2, -1]
    assert IdMap(np.array([5, 7])).rows(["7", 5, "é"]).tolist() == [1, 0, -1]


def test_text_that_is_no_unicode_is_unknown() -> None:
    assert string_map(["a", "b"]).rows(["\ud800", "b"]).tolist() == [-1, 1]


@pytest.mark.parametrize(
    ("ids", "identity"), [([0, 1, 2, 3], True), ([0, 1, 2, 4], False), ([1, 2, 3], False), ([-1, 0, 1], False)]
)
def test_identity_is_seen_and_answers_alike(ids: list[int], identity: bool) -> None:
    ids_N = IdMap(np.array(ids, dtype=np.int64))
    assert ids_N.identity is identity
    for probe in range(-3, 7):
        assert ids_N.row(probe) == (ids.index(probe) if probe in ids else None)


@pytest.mark.parametrize(
    "ids", [np.array([-3, 4, 10], dtype=np.int64), pa.array(["", "Zürich", "zebra", "𝔘"], pa.large_string())]
)
def test_saved_map_opens_as_it_was(tmp_path: Path, ids: np.ndarray | pa.Array) -> None:
    made = IdMap(ids)
    made.save(tmp_path)
    opened = IdMap.open(tmp_path)
    assert opened.kind == made.kind
    assert len(opened) == len(made)
    assert opened.column().equals(made.column())
    assert opened.rows(opened.external([2, 0])).tolist() == [2, 0]
    assert opened.column([1]).to_pylist() == made.column().to_pylist()[1:2]
    assert pq.read_table(tmp_path / "ids.parquet")["id"].to_pylist() == made.column().to_pylist()


def test_opened_strings_stay_on_disk(tmp_path: Path) -> None:
    string_map([f"{i:020}" for i in range(50_000)]).save(tmp_path)
    before = pa.total_allocated_bytes()
    opened = IdMap.open(tmp_path)
    assert opened.row(f"{49_999:020}") == 49_999
    assert pa.total_allocated_bytes() - before < 50_000


def test_empty_maps_know_nothing() -> None:
    assert IdMap(np.array([], dtype=np.int64)).rows([0, "0"]).tolist() == [-1, -1]
    assert string_map([]).rows(["", "a"]).tolist() == [-1, -1]


def test_absent_or_damaged_ids_are_artifact_errors(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no ids here"):
        IdMap.open(tmp_path)
    string_map(["a", "b"]).save(tmp_path)
    whole = (tmp_path / "ids.arrow").read_bytes()
    (tmp_path / "ids.arrow").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ArtifactError, match="cannot be read"):
        IdMap.open(tmp_path)
    (tmp_path / "ids.npy").write_bytes(b"no array")
    with pytest.raises(ArtifactError, match="cannot be read"):
        IdMap.open(tmp_path)


def test_imports_are_light() -> None:
    code = "import sys, preprocessing.ids; print({'numba', 'torch', 'scipy', 'pandas'} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"
