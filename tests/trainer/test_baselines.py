"""PPR-smoothed features against plain sums, and the random encoder's steadiness."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from labelled_bundles import make_labelled_bundle, write_embeddings
from training_bundles import every_row, make_bundle

from trainer.embedding_set import EmbeddingSet
from trainer.evaluation.baselines import PprSmoothed, random_encoder
from trainer.features import load_features
from trainer.settings import FeatureSettings


@pytest.mark.parametrize("transform", ["none", "binarize", "standardize"])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_smoothed_features_are_weighted_means(tmp_path: Path, layout: str, transform: str) -> None:
    rng = np.random.default_rng(4)
    values = rng.normal(size=(40, 12)) * (rng.random((40, 12)) < (0.1 if layout == "sparse" else 2))
    bundle = make_bundle(tmp_path, features=values.astype(np.float32))
    assert bundle.manifest["features"]["layout"] == layout
    store = load_features(bundle, FeatureSettings(transform=transform))
    ppr = bundle.ppr()
    # Node 5 has no PPR neighbours at all: it keeps what it has.
    neighbors = ppr.neighbors.copy()
    neighbors[5] = -1
    count = (neighbors >= 0).sum(axis=1)
    smoothed = PprSmoothed(store, replace(ppr, neighbors=neighbors))
    rows = np.array([39, 5, 0, 5, 17])
    found = smoothed.rows(rows) @ torch.eye(12)

    seen = (every_row(store) @ torch.eye(12)).numpy()
    for line, row in zip(found.numpy(), rows, strict=True):
        near, scores = ppr.neighbors[row, : count[row]], ppr.scores[row, : count[row]]
        expected = seen[row] if row == 5 else sum(s * seen[j] for j, s in zip(near, scores, strict=True)) / scores.sum()
        np.testing.assert_allclose(line, expected, atol=1e-5)


def test_random_encoder_is_always_the_same_and_another_than_the_trained(tmp_path: Path) -> None:
    bundle = make_labelled_bundle(tmp_path, list(range(40)))
    write_embeddings(tmp_path / "emb", bundle)
    embeddings = EmbeddingSet(tmp_path / "emb")
    store = embeddings.model.features(bundle)
    state = torch.random.get_rng_state()
    first, second = (random_encoder(bundle, store, embeddings, tmp_path, "cpu").vectors for _ in range(2))
    assert torch.equal(state, torch.random.get_rng_state())
    np.testing.assert_array_equal(first, second)
    assert first.shape == embeddings.vectors.shape
    assert np.abs(first - embeddings.vectors).max() > 0.01
