from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from preprocessing.bundle import SparseFeatures
from trainer import row_reader
from trainer.row_reader import RowReader, empty_for


@pytest.fixture(params=[0, 1 << 18])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> RowReader:
    """By threads however few the rows are, or by the caller's own."""
    monkeypatch.setattr(row_reader, "SERIAL_BYTES", request.param)
    return RowReader(3)


def stored(folder: Path, values: np.ndarray) -> Any:
    """Memory-mapped, as bundles have it."""
    np.save(folder / "values.npy", values)
    return np.load(folder / "values.npy", mmap_mode="r")


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("count", [0, 1, 5, 400])
def test_rows_are_those_asked_for_bit_by_bit(tmp_path: Path, reader: RowReader, dtype: Any, count: int) -> None:
    rng = np.random.default_rng(count)
    values = stored(tmp_path, (100 * rng.normal(size=(50, 7))).astype(dtype))
    rows = rng.integers(0, 50, count)
    read = reader.dense(values, rows, "cpu")
    assert read.numpy().dtype == dtype
    assert np.array_equal(read.numpy(), values[rows])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("count", [0, 1, 5, 400])
def test_sparse_rows_are_those_asked_for(reader: RowReader, dtype: Any, count: int) -> None:
    """Rows without an entry, and rows asked for twice, among them."""
    rng = np.random.default_rng(count)
    whole = rng.normal(size=(50, 9)).astype(dtype)
    whole[rng.random(whole.shape) < 0.7] = 0
    whole[[0, 17, 49]] = 0
    entries = np.nonzero(whole)
    indptr = np.concatenate([[0], np.cumsum((whole != 0).sum(axis=1))])
    features = SparseFeatures(indptr, entries[1].astype(np.int32), whole[entries], whole.shape)
    rows = rng.integers(0, 50, count)
    read = reader.sparse(features, rows, "cpu")
    assert read.shape == (count, 9)
    assert read.values.numpy().dtype == dtype
    assert read.pattern.indices.dtype == torch.int32
    made = np.zeros((count, 9), dtype)
    made[read.pattern.rows, read.pattern.indices] = read.values.numpy()
    assert np.array_equal(made, whole[rows])
    assert read.pattern.num_entries == (whole[rows] != 0).sum()


@given(arrays.arrays(np.int64, st.integers(0, 60), elements=st.integers(0, 19)))
def test_any_order_of_rows(rows: np.ndarray) -> None:
    values = np.arange(20 * 3, dtype=np.float32).reshape(20, 3)
    assert np.array_equal(RowReader(2).dense(values, rows, "cpu").numpy(), values[rows])


def test_files_are_read_forwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every thread's rows ascend, and so do the threads' first rows."""
    seen = []
    copy = row_reader._copy

    def watched(source: Any, starts: Any, ends: Any, order: Any, copied: Any, first: int, last: int) -> None:
        seen.append((first, starts[order[first:last]]))
        copy(source, starts, ends, order, copied, first, last)

    monkeypatch.setattr(row_reader, "_copy", watched)
    monkeypatch.setattr(row_reader, "SERIAL_BYTES", 0)
    rows = np.random.default_rng(0).permutation(200)
    RowReader(4).dense(np.zeros((200, 5), np.float32), rows, "cpu")
    assert len(seen) == 4 * row_reader.CHUNKS_A_THREAD
    starts = np.concatenate([part for _, part in sorted(seen, key=lambda pair: pair[0])])
    assert np.array_equal(starts, 5 * np.arange(200))


def test_memory_for_a_gpu_is_page_locked_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    empty = torch.empty

    def watched(*shape: Any, pin_memory: bool, **options: Any) -> torch.Tensor:
        asked.append(pin_memory)
        return empty(*shape, **options)

    monkeypatch.setattr(torch, "empty", watched)
    monkeypatch.setattr(row_reader, "PAGE_LOCKED_BYTES", 80)
    for device in ("cpu", torch.device("cpu"), "cuda:1", torch.device("cuda")):
        assert empty_for(device, 10, np.float64).dtype == torch.float64
    empty_for("cuda", 11, np.float64)
    empty_for("cuda", 11, np.float32)
    assert asked == [False, False, True, True, False, True]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_rows_on_a_gpu_are_those_of_the_file_step_after_step() -> None:
    """Memory that is read into again and again is not overwritten under a copy that is under way."""
    values = np.random.default_rng(0).normal(size=(5000, 64)).astype(np.float16)
    reader = RowReader(3)
    asked = [np.random.default_rng(seed).integers(0, 5000, 4000) for seed in range(50)]
    read = [reader.dense(values, rows, "cuda") for rows in asked]
    assert all(np.array_equal(got.cpu().numpy(), values[rows]) for got, rows in zip(read, asked, strict=True))
