from pathlib import Path

import numpy as np
import pytest
import torch
from training_bundles import every_row, make_bundle

from preprocessing.bundle import DenseFeatures, SparseFeatures
from trainer.features import HASHED_COLUMNS, Features, load_features
from trainer.settings import FeatureSettings
from trainer.sparse import Pattern, SparseMatrix

NODES, COLUMNS = 40, 30


def matrix(kind: str) -> np.ndarray:
    values = np.random.default_rng(5).normal(size=(NODES, COLUMNS)).astype(np.float32)
    if kind == "sparse":
        values[np.random.default_rng(6).random(values.shape) < 0.95] = 0
    values[:, 3] = 2.0 if kind == "dense" else 0.0
    return values


def read(features: Features) -> torch.Tensor:
    return features @ torch.eye(features.shape[1])


def transformed(values: np.ndarray, transform: str) -> np.ndarray:
    if transform == "binarize":
        return (values > 0).astype(np.float32)
    if transform == "standardize":
        deviation = values.std(axis=0)
        return (values - values.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    return values


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("transform", ["none", "binarize", "standardize"])
def test_features_and_their_rows_are_the_transformed_matrix(tmp_path: Path, kind: str, transform: str) -> None:
    bundle = make_bundle(tmp_path, NODES, features=matrix(kind))
    assert isinstance(bundle.features, DenseFeatures if kind == "dense" else SparseFeatures)
    store = load_features(bundle, FeatureSettings(transform=transform))
    expected = torch.from_numpy(transformed(matrix(kind), transform))
    rows = np.array([7, 0, 39, 7])
    assert store.num_columns == COLUMNS
    torch.testing.assert_close(read(every_row(store)), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(read(store.rows(rows)), expected[rows], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("transform", ["none", "standardize"])
@pytest.mark.parametrize(("width", "first"), [(60, True), (6, False)])
def test_what_is_heard_is_the_same_in_either_order(
    tmp_path: Path, kind: str, transform: str, width: int, first: bool
) -> None:
    """Eight nodes hear 20 of the 40 nodes: (A X) W is less work at the larger width."""
    bundle = make_bundle(tmp_path, NODES, features=matrix(kind))
    features = every_row(load_features(bundle, FeatureSettings(transform=transform)))
    keep = torch.ones(COLUMNS)
    keep[[1, 4]] = 0
    rows = np.repeat(np.arange(8), 5)
    dense = torch.zeros(8, NODES)
    columns = np.random.default_rng(1).permuted(np.tile(np.arange(20), (8, 1)), axis=1)[:, :5].reshape(-1)
    dense[rows, columns] = torch.rand(40, generator=torch.Generator().manual_seed(2)) + 0.5
    pattern = Pattern(torch.arange(0, 41, 5), torch.from_numpy(columns.astype(np.int32)), NODES)
    adjacency = SparseMatrix(pattern, dense[rows, columns])
    weight = torch.randn(COLUMNS, width, requires_grad=True, generator=torch.Generator().manual_seed(3))
    heard = features.masked(keep).heard(adjacency, weight)
    expected = dense @ ((read(features) * keep) @ weight)
    torch.testing.assert_close(heard, expected, rtol=1e-4, atol=1e-4)
    towards = torch.randn_like(heard)
    found, wanted = (torch.autograd.grad((out * towards).sum(), weight)[0] for out in (heard, expected))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert (kind == "dense" and first) == (adjacency.pattern.__dict__.get("transposed") is None)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("transform", ["none", "standardize"])
def test_a_masked_view_has_zero_columns_and_their_weights_no_gradient(
    tmp_path: Path, kind: str, transform: str
) -> None:
    bundle = make_bundle(tmp_path, NODES, features=matrix(kind))
    features = every_row(load_features(bundle, FeatureSettings(transform=transform)))
    keep = torch.ones(COLUMNS)
    keep[[1, 4]] = 0
    weight = torch.randn(COLUMNS, 6, requires_grad=True)
    view = read(features) * keep
    product = features.masked(keep) @ weight
    product.square().sum().backward()
    torch.testing.assert_close(product, view @ weight.detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(weight.grad, 2 * view.T @ (view @ weight.detach()), rtol=1e-3, atol=1e-3)
    assert weight.grad[[1, 4]].abs().max() == 0


def test_a_graph_without_features_has_hashed_ppr_rows(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path, NODES, features=np.zeros((NODES, 0), np.float32), top_k=8)
    assert bundle.features is None
    store = load_features(bundle, FeatureSettings())
    x = read(every_row(store))
    assert x.shape == (NODES, HASHED_COLUMNS)
    torch.testing.assert_close(read(store.rows(np.array([5, 2]))), x[[5, 2]])
    ppr = bundle.ppr()
    # A count sketch keeps inner products in the mean; a row's own length is kept but for collisions.
    squared = [float(np.square(ppr.scores[row, : ppr.count[row]]).sum()) for row in range(NODES)]
    torch.testing.assert_close(
        x.square().sum(dim=1).mean(), torch.tensor(np.mean(squared), dtype=torch.float32), rtol=0.2, atol=0
    )
    assert len(np.unique(x.numpy(), axis=0)) > NODES // 2
