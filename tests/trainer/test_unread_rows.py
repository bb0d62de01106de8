"""Rows that are summed where they are stored, against the same rows read and multiplied."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from training_bundles import make_bundle, settings_document

from preprocessing.array_file import read_only
from trainer.degrees import degrees_of
from trainer.features import load_features
from trainer.mini_batch import MiniBatch
from trainer.objectives import Step, new_objective
from trainer.settings import TrainSettings
from trainer.sparse import Pattern, SparseMatrix
from trainer.unread_rows import UnreadRows

CPU = torch.device("cpu")


@pytest.mark.parametrize("width", [1, 12, 16, 128, 130])
@pytest.mark.parametrize("threads", [1, 3])
def test_sums_are_the_products_of_the_read_rows_to_the_bit(width: int, threads: int) -> None:
    """Rows of none to many entries, some of them zero; the last entries have nothing after them to be asked for."""
    rng = np.random.default_rng(width)
    stored = rng.normal(size=(900, width)).astype(np.float32)
    rows = rng.permutation(900)[:500]
    lengths = rng.integers(0, 23, 700)
    indptr = torch.from_numpy(np.concatenate([[0], lengths.cumsum()]))
    pattern = Pattern(indptr, torch.from_numpy(rng.integers(0, 500, int(indptr[-1])).astype(np.int32)), 500)
    kept = rng.random((2, pattern.num_entries)) < 0.6
    values = torch.from_numpy((rng.normal(size=kept.shape) * kept).astype(np.float32))
    matrices = [SparseMatrix(pattern, view) for view in values]
    unread = UnreadRows(read_only(stored), rows, lambda chosen: torch.from_numpy(stored[chosen]))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = unread.summed(matrices)
    finally:
        torch.set_num_threads(before)
    for matrix, sums_RF in zip(matrices, found, strict=True):
        assert torch.equal(sums_RF, matrix.matmul(torch.from_numpy(stored[rows])))
        exact = np.zeros((700, width))
        np.add.at(exact, pattern.rows.numpy(), matrix.values.numpy()[:, None] * stored[rows[pattern.indices.numpy()]])
        np.testing.assert_allclose(sums_RF.numpy(), exact, atol=2e-5)


def test_some_unread_rows_are_those_of_the_read() -> None:
    stored = np.arange(40, dtype=np.float32).reshape(10, 4)
    unread = UnreadRows(stored, np.array([7, 2, 9, 0]), lambda chosen: torch.from_numpy(stored[chosen]))
    assert unread[:2].read.tolist() == stored[[7, 2]].tolist()
    assert unread[torch.tensor([3, 1])].read.tolist() == stored[[0, 2]].tolist()
    assert unread[torch.tensor([3, 1])].shape == (2, 4)


def read(step: Step) -> Step:
    """The step with every row in memory and nothing summed."""

    def plain(views):
        return [
            replace(view, features=replace(view.features, stored=view.features.matrix, sums_RF=None)) for view in views
        ]

    return replace(step, views=plain(step.views), query_views=plain(step.query_views))


@pytest.mark.parametrize("transform", ["none", "standardize"])
def test_a_step_of_sums_has_the_loss_and_gradients_of_one_whose_rows_are_read(tmp_path: Path, transform: str) -> None:
    document = settings_document(encoder={"layers": [24, 8]}, batch={"mode": "mini", "size": 8, "fan_out": [3, 3]}) | {
        "features": {"transform": transform},
    }
    settings = TrainSettings.model_validate(document)
    bundle = make_bundle(tmp_path, nodes=80, edges=200)
    store = load_features(bundle, settings.features)
    steps = MiniBatch(bundle, store, settings, device=CPU)
    for number in range(3):
        results = []
        for change in (lambda step: step, read):
            torch.manual_seed(0)
            model = new_objective(store.num_columns, settings)
            step = change(steps.step(1, number))
            assert all((view.features.sums_RF is None) == (change is read) for view in (*step.views, *step.query_views))
            loss = model(step)[0]
            loss.backward()
            results.append((loss.detach(), [p.grad for p in model.parameters() if p.grad is not None]))
        (loss, grads), (read_loss, read_grads) = results
        torch.testing.assert_close(loss, read_loss, rtol=1e-6, atol=1e-6)
        for one, other in zip(grads, read_grads, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        {"encoder": {"kind": "sage_residual", "layers": [16, 16]}},
        {"objective": "dgi"},
        {"features": {"transform": "binarize"}},
        {"features": {"zeroed": 0.3}},
        {"batch": {"mode": "mini", "size": 8, "feature_cache_gib": 0.001}},
        {"encoder": {"layers": [2, 8]}},
    ],
)
def test_rows_are_read_ahead_where_sums_would_not_do(tmp_path: Path, change: dict) -> None:
    document = settings_document(batch={"mode": "mini", "size": 8, "fan_out": [3, 3]})
    for name, part in change.items():
        document[name] = document.get(name, {}) | part if isinstance(part, dict) else part
    settings = TrainSettings.model_validate(document)
    bundle = make_bundle(tmp_path, nodes=80, edges=200)
    step = MiniBatch(bundle, load_features(bundle, settings.features), settings, device=CPU).step(0, 0)
    assert all(isinstance(view.features.stored, torch.Tensor) for view in (*step.views, *step.query_views))


def test_degrees_of_some_nodes(tmp_path: Path) -> None:
    topology = make_bundle(tmp_path).topology
    nodes = np.array([39, 0, 7, 7])
    assert degrees_of(topology, nodes).tolist() == topology.degrees()[nodes].tolist()
    assert degrees_of(topology, nodes[:0]).tolist() == []
