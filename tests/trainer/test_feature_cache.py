from pathlib import Path

import numpy as np
import pytest
import torch
from training_bundles import dense, make_bundle, settings_document

from preprocessing.bundle import Bundle
from trainer import feature_cache
from trainer.feature_cache import HITS, ROWS, CachedRows, most_heard
from trainer.features import FeatureStore, load_features
from trainer.mini_batch import MiniBatch
from trainer.settings import FeatureSettings, TrainSettings
from trainer.sparse import SparseMatrix
from trainer.tally import Tally

NODES, COLUMNS = 40, 30
CPU = torch.device("cpu")


def bundle_of(folder: Path, kind: str) -> Bundle:
    values = np.random.default_rng(5).normal(size=(NODES, COLUMNS)).astype(np.float32)
    if kind == "sparse":
        values[np.random.default_rng(6).random(values.shape) < 0.95] = 0
        values[11] = 0
    return make_bundle(folder, features=values[:, :0] if kind == "none" else values, top_k=8)


def exactly_equal(one: torch.Tensor | SparseMatrix, other: torch.Tensor | SparseMatrix) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    assert isinstance(other, SparseMatrix)
    pairs = [(m.pattern.indptr, m.pattern.indices, m.values) for m in (one, other)]
    return one.shape == other.shape and all(torch.equal(a, b) for a, b in zip(*pairs, strict=True))


@pytest.mark.parametrize("kind", ["dense", "sparse", "none"])
@pytest.mark.parametrize("options", [{}, {"transform": "standardize"}, {"transform": "binarize"}, {"zeroed": 0.5}])
@pytest.mark.parametrize("limit", [0, 700, 1 << 20])
def test_what_is_held_changes_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, options: dict, limit: int
) -> None:
    monkeypatch.setattr(feature_cache, "CHUNK_ROWS", 3)
    store = load_features(bundle_of(tmp_path, kind), FeatureSettings(**options))
    order = np.random.default_rng(1).permutation(NODES)
    tally = Tally()
    cached = store.holding(order, limit, CPU, tally)
    asked = [np.random.default_rng(2).permutation(NODES), np.array([7, 0, 39, 7]), order[:2], order[-2:], order[:0]]
    for rows in asked:
        got, expected = cached.rows(rows), store.rows(rows)
        assert exactly_equal(got.matrix, expected.matrix)
        assert (got.scale_F is None) == (expected.scale_F is None)
    told = tally.taken()
    assert told[ROWS] == sum(map(len, asked))
    assert told[HITS] == {0: 0, 1 << 20: told[ROWS]}.get(limit, told[HITS])
    assert limit != 700 or 0 < told[HITS] < told[ROWS]


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_as_many_rows_are_held_as_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(feature_cache, "CHUNK_ROWS", 7)
    store = load_features(bundle_of(tmp_path, kind), FeatureSettings())
    order = np.random.default_rng(1).permutation(NODES)
    stored = np.array([[bool(v) for v in row] for row in (store.rows(order) @ torch.eye(COLUMNS)).tolist()])
    ends = np.cumsum(stored.sum(axis=1) * 8 + 8 if kind == "sparse" else np.full(NODES, 4 * COLUMNS))
    for limit in (0, int(ends[0]) - 1, int(ends[0]), int(ends[6]), int(ends[20]) + 3, int(ends[-1]), 10**9):
        held = CachedRows(store._source, order, limit, CPU, Tally()).num_held
        assert held == (ends <= limit).sum()


@pytest.mark.parametrize("direction", ["undirected", "directed"])
def test_nodes_that_most_hear_stand_first(tmp_path: Path, direction: str) -> None:
    topology = make_bundle(tmp_path, direction=direction).topology
    heard = dense(topology).sum(axis=0)
    order = most_heard([topology])
    assert sorted(order) == list(range(NODES))
    assert np.array_equal(heard[order], -np.sort(-heard))
    both = most_heard([topology, topology])
    assert np.array_equal(both, order)


def test_a_run_tells_how_often_it_found_what_it_looked_for(tmp_path: Path) -> None:
    """Those held are the ones heard most: with half of the rows, more than half of what is read."""
    bundle = make_bundle(tmp_path, edges=200)
    batch = {"mode": "mini", "size": 4, "fan_out": [3, 3], "feature_cache_gib": 20 * 12 * 4 / 2**30}
    chosen = TrainSettings.model_validate(settings_document(batch=batch))
    store = load_features(bundle, chosen.features)
    steps = MiniBatch(bundle, store, chosen, device=CPU)
    hottest, rows, hits = set(most_heard([bundle.topology])[:20].tolist()), 0, 0
    read = FeatureStore.rows

    def counted(self: FeatureStore, nodes: np.ndarray, device: torch.device) -> object:
        nonlocal rows, hits
        rows, hits = rows + len(nodes), hits + len(hottest & set(nodes.tolist()))
        return read(self, nodes, device)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FeatureStore, "rows", counted)
        for number in range(steps.num_steps):
            steps.step(0, number)
    told = steps.told()
    assert set(told) == {HITS, "making_s", "sampling_s", "features_s"}
    assert told[HITS] == hits / rows
    assert told["sampling_s"] + told["features_s"] <= told["making_s"]
    assert steps.told() == {}
