"""The batched probe against the authors' protocol written as a plain loop of torch.optim.Adam."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import sparse
from sklearn.metrics import f1_score
from torch import nn

from preprocessing.bundle import DenseFeatures, Labels, LabelSets, SparseFeatures, Split
from preprocessing.errors import UsageError
from trainer.evaluation import probe as probe_module
from trainer.evaluation.probe import ArrayRows, RowReader, initial_weights, probe
from trainer.evaluation.splits import Splits, draw_splits, probe_splits
from trainer.evaluation.targets import ClassTargets, SetTargets
from trainer.features import FeatureStore, _DenseSource, _SparseSource
from trainer.settings import EvaluateSettings, FeatureSettings

# These matrices are too small to share among threads.
torch.set_num_threads(1)


def blobs(n: int = 120, dim: int = 9, classes: int = 3) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Words of a class are likelier in its nodes, so that a probe learns something and not everything."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, classes, n)
    likely = np.where(np.arange(dim) % classes == codes[:, None], 0.6, 0.2)
    values = (rng.random((n, dim)) < likely) * rng.integers(1, 4, (n, dim))
    codes[rng.permutation(n)[: n // 10]] = -1
    return values.astype(np.float32), codes


def classes(codes: npt.NDArray[np.int64]) -> ClassTargets:
    return ClassTargets(Labels(codes, [str(code) for code in range(codes.max() + 1)]))


def plain_loop(
    values: npt.NDArray[np.float32], codes: npt.NDArray[np.int64], splits: Splits, settings: EvaluateSettings
) -> tuple[list[float], list[float], list[float], npt.NDArray[np.int64]]:
    classes = int(codes.max()) + 1
    weights = initial_weights(len(splits.train), values.shape[1], classes, settings.seed)
    x, y = torch.from_numpy(values), torch.from_numpy(codes)
    validation, test, macro, wrong = [], [], [], np.zeros(len(codes), dtype=np.int64)
    for s in range(len(splits.train)):
        linear = nn.Linear(values.shape[1], classes)
        with torch.no_grad():
            linear.weight.copy_(weights[s].T)
            linear.bias.zero_()
        optimizer = torch.optim.Adam(linear.parameters(), lr=settings.lr)
        for _ in range(settings.steps):
            loss = nn.CrossEntropyLoss()(linear(x[splits.train[s]]), y[splits.train[s]])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        told = linear(x).argmax(dim=1)
        macro.append(f1_score(codes[splits.test[s]], told[splits.test[s]], average="macro"))
        right = (told == y).numpy()
        validation.append(right[splits.validation[s]].mean())
        test.append(right[splits.test[s]].mean())
        wrong[splits.test[s]] += ~right[splits.test[s]]
    return validation, test, macro, wrong


def readers(transform: str) -> dict[str, RowReader]:
    values, _ = blobs()
    compressed = sparse.csr_array(values)
    settings = FeatureSettings(transform=transform)
    stored = SparseFeatures(
        compressed.indptr.astype(np.int64), compressed.indices.astype(np.int32), compressed.data, values.shape
    )
    return {
        "dense": FeatureStore(_DenseSource(DenseFeatures(values)), len(values), settings),
        "sparse": FeatureStore(_SparseSource(stored), len(values), settings),
    }


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("transform", ["none", "binarize", "standardize"])
def test_equals_the_plain_loop(layout: str, transform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values, codes = blobs()
    settings = EvaluateSettings(splits=5, steps=40, seed=11)
    splits = draw_splits(np.flatnonzero(codes >= 0), settings)
    # Two splits at once, then two, then one; and labelled nodes scored in several parts.
    monkeypatch.setattr(probe_module, "GATHER_BYTES", 2 * 4 * splits.train.shape[1] * values.shape[1])
    monkeypatch.setattr(probe_module, "SCORE_ROWS", 50)
    result = probe(readers(transform)[layout], classes(codes), splits, settings)

    seen = values if transform == "none" else (values > 0).astype(np.float32)
    if transform == "standardize":
        seen = ((values - values.mean(axis=0)) / values.std(axis=0)).astype(np.float32)
    validation, test, macro, wrong = plain_loop(seen, codes, splits, settings)
    assert 0.4 < np.mean(test) < 0.95
    np.testing.assert_allclose(result.validation, validation, atol=1e-12)
    np.testing.assert_allclose(result.test, test, atol=1e-12)
    np.testing.assert_allclose(result.test_macro_f1, macro, atol=1e-12)
    np.testing.assert_array_equal(result.wrong, wrong)
    np.testing.assert_array_equal(result.tested, np.bincount(splits.test.ravel(), minlength=len(codes)))
    assert result.summary() == pytest.approx(
        {
            "val_mean": np.mean(validation),
            "val_std": np.std(validation),
            "test_mean": np.mean(test),
            "test_std": np.std(test),
            "test_macro_f1_mean": np.mean(macro),
            "test_macro_f1_std": np.std(macro),
        }
    )


def test_trained_weights_equal_the_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    values, codes = blobs()
    settings = EvaluateSettings(splits=3)
    splits = draw_splits(np.flatnonzero(codes >= 0), settings)
    weight = initial_weights(3, 9, 3, 0)
    bias = torch.zeros(3, 3)
    probe_module._train(ArrayRows(values), classes(codes), splits.train, weight, bias, settings)
    start = initial_weights(3, 9, 3, 0)
    for s in range(3):
        w, b = start[s].clone().requires_grad_(), torch.zeros(3, requires_grad=True)
        optimizer = torch.optim.Adam([w, b], lr=0.01)
        for _ in range(100):
            optimizer.zero_grad()
            logits = torch.from_numpy(values[splits.train[s]]) @ w + b
            nn.functional.cross_entropy(logits, torch.from_numpy(codes[splits.train[s]])).backward()
            optimizer.step()
        assert not torch.allclose(w, start[s], atol=0.1)
        torch.testing.assert_close(weight[s], w.detach(), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(bias[s], b.detach(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("labelled", "sizes"), [(2708, (272, 270, 2166)), (10, (1, 1, 8)), (19, (3, 1, 15))])
def test_split_sizes(labelled: int, sizes: tuple[int, int, int]) -> None:
    rows = np.arange(labelled) * 3 + 1
    splits = draw_splits(rows, EvaluateSettings(splits=4, seed=2))
    assert (splits.train.shape[1], splits.validation.shape[1], splits.test.shape[1]) == sizes
    for line in np.concatenate([splits.train, splits.validation, splits.test], axis=1):
        assert sorted(line) == rows.tolist()
    assert len({tuple(line) for line in splits.test}) == (4 if labelled > 10 else len({tuple(x) for x in splits.test}))
    again = draw_splits(rows, EvaluateSettings(splits=4, seed=2))
    np.testing.assert_array_equal(splits.test, again.test)


def test_initial_weights_are_xavier_uniform() -> None:
    weights = initial_weights(4, 200, 50, seed=0)
    reference = nn.init.xavier_uniform_(torch.empty(50, 200))
    bound = (6 / 250) ** 0.5
    assert weights.abs().max() <= bound
    assert weights.std().item() == pytest.approx(reference.std().item(), rel=0.03)
    assert weights.mean().item() == pytest.approx(0, abs=0.01 * bound)


def test_label_sets_are_logistic_regressions_scored_by_f1(monkeypatch: pytest.MonkeyPatch) -> None:
    values, codes = blobs()
    members = np.stack([codes == 0, codes <= 1, values[:, 4] > 0, np.zeros(len(codes), bool)], axis=1)
    known = np.arange(len(codes)) % 7 > 0
    settings = EvaluateSettings(splits=2, steps=60, lr=0.05)
    splits = draw_splits(np.flatnonzero(known), settings)
    monkeypatch.setattr(probe_module, "SCORE_ROWS", 50)
    result = probe(ArrayRows(values), SetTargets(LabelSets(members, known, list("abcd"))), splits, settings)

    start, x, y = initial_weights(2, 9, 4, 0), torch.from_numpy(values), torch.from_numpy(members).float()
    tested, wrong = np.zeros(len(codes), int), np.zeros(len(codes), int)
    for s in range(2):
        w, b = start[s].clone().requires_grad_(), torch.zeros(4, requires_grad=True)
        optimizer = torch.optim.Adam([w, b], lr=0.05)
        for _ in range(60):
            optimizer.zero_grad()
            probability = torch.sigmoid(x[splits.train[s]] @ w + b)
            nn.functional.binary_cross_entropy(probability, y[splits.train[s]]).backward()
            optimizer.step()
        told = (torch.sigmoid(x @ w + b) > 0.5).numpy()
        for rows, found in ((splits.validation[s], result.validation[s]), (splits.test[s], result.test[s])):
            assert found == pytest.approx(f1_score(members[rows], told[rows], average="micro"), abs=1e-9)
        # scikit-learn counts the class that no node is of and none is told to be of as 0; here it is left out.
        seen = (members | told)[splits.test[s]].any(axis=0)
        rows = np.ix_(splits.test[s], np.flatnonzero(seen))
        assert result.test_macro_f1[s] == pytest.approx(f1_score(members[rows], told[rows], average="macro"), abs=1e-9)
        tested[splits.test[s]] += 1
        wrong[splits.test[s]] += (told != members)[splits.test[s]].any(axis=1)
    assert 0.6 < result.test.mean() < 1
    np.testing.assert_array_equal(result.tested, tested)
    np.testing.assert_array_equal(result.wrong, wrong)


def test_the_published_split_is_taken_where_there_is_one() -> None:
    labelled = np.array([0, 1, 2, 4, 5, 7])
    published = Split(np.array([0, 3]), np.array([1, 4]), np.array([5, 6, 7]))
    splits = probe_splits(labelled, published, EvaluateSettings(splits=3))
    assert (splits.protocol, splits.train.tolist()) == ("fixed", [[0]] * 3)
    assert (splits.validation.tolist(), splits.test.tolist()) == ([[1, 4]] * 3, [[5, 7]] * 3)
    for chosen, known in ((EvaluateSettings(protocol="random"), published), (EvaluateSettings(), None)):
        drawn = probe_splits(labelled, known, chosen)
        assert (drawn.protocol, drawn.test.tolist()) == ("random", draw_splits(labelled, chosen).test.tolist())
    with pytest.raises(UsageError, match="no published split"):
        probe_splits(labelled, None, EvaluateSettings(protocol="fixed"))
