"""Zeroed entries: the same for every reader, of the share asked for, and gone before anything else is done."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from training_bundles import every_row, make_bundle

from trainer import zeroed
from trainer.features import FeatureStore, load_features
from trainer.settings import FeatureSettings

NODES, COLUMNS = 60, 50


def matrix(density: float) -> np.ndarray:
    rng = np.random.default_rng(3)
    return np.where(rng.random((NODES, COLUMNS)) < density, rng.uniform(1, 2, (NODES, COLUMNS)), 0).astype(np.float32)


def store(folder: Path, values: np.ndarray, **settings: object) -> FeatureStore:
    return load_features(make_bundle(folder, NODES, features=values), FeatureSettings.model_validate(settings))


def read(features: FeatureStore, rows: np.ndarray | None = None) -> np.ndarray:
    part = every_row(features) if rows is None else features.rows(rows)
    return (part @ torch.eye(COLUMNS)).numpy()


def test_a_share_of_the_entries_is_zero_and_the_rest_untouched(tmp_path: Path) -> None:
    values = matrix(1.0)
    some = read(store(tmp_path, values, zeroed=0.3))
    gone = some == 0
    # 3,000 entries: a deviation is 0.8 percent.
    assert gone.mean() == pytest.approx(0.3, abs=0.03)
    np.testing.assert_array_equal(some[~gone], values[~gone])
    # No row and no column is hit as a whole.
    assert gone.mean(axis=0).max() < 0.7
    assert gone.mean(axis=1).max() < 0.7
    # A larger share takes what the smaller took, another seed takes others.
    assert (read(store(tmp_path / "b", values, zeroed=0.6))[gone] == 0).all()
    other = read(store(tmp_path / "c", values, zeroed=0.3, zeroed_seed=1)) == 0
    assert (gone & other).mean() == pytest.approx(0.09, abs=0.02)


def test_dense_and_sparse_lose_the_same_entries_whoever_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zeroed, "BLOCK_ENTRIES", 7 * COLUMNS)
    gone = read(store(tmp_path / "dense", matrix(1.0), zeroed=0.5)) == 0
    few = matrix(0.05)
    sparse = store(tmp_path / "sparse", few, zeroed=0.5)
    np.testing.assert_array_equal(read(sparse), np.where(gone, 0, few))
    dense = store(tmp_path / "again", matrix(1.0), zeroed=0.5)
    rows = np.array([9, 0, 59, 9, 30])
    np.testing.assert_array_equal(read(dense, rows), np.where(gone, 0, matrix(1.0))[rows])
    np.testing.assert_array_equal(read(sparse, rows), np.where(gone, 0, few)[rows])


def test_transforms_see_the_zeroed_features(tmp_path: Path) -> None:
    values = matrix(1.0)
    remaining = np.where(read(store(tmp_path, values, zeroed=0.5)) == 0, 0, values)
    standard = read(store(tmp_path / "b", values, zeroed=0.5, transform="standardize"))
    np.testing.assert_allclose(standard, (remaining - remaining.mean(0)) / remaining.std(0), rtol=1e-3, atol=1e-4)
