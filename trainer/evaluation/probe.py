"""The linear probe: how well a linear classifier on frozen vectors names a node's label.

The paper's protocol (section 5, as its code runs it): random 10/10/80 splits of the labelled nodes, and for each one
linear layer under cross entropy, 100 full-batch steps of Adam. The classifiers of all splits are trained side by side
as one batched model: their losses add up, so no classifier's gradient touches another's, and Adam works elementwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from preprocessing.array_types import Int64Array
from trainer.features import Features
from trainer.settings import EvaluateSettings
from trainer.sparse import Pattern, SparseMatrix

__all__ = ["ArrayRows", "ProbeResult", "RowReader", "Splits", "draw_splits", "initial_weights", "probe"]

# Training rows of as many splits as fit here, were they dense, are held at once; those of one split always are.
GATHER_BYTES = 256 << 20
# Rows scored at once.
SCORE_ROWS = 4096


class RowReader(Protocol):
    """One vector a node, read by row; a ``FeatureStore`` is one."""

    @property
    def num_columns(self) -> int:
        """Their width D."""

    def rows(self, rows: Int64Array, device: torch.device | str = "cpu") -> Features:
        """Some nodes' vectors, [n, D]."""


class ArrayRows:
    """Vectors [N, D] of a float array, memory-mapped or not."""

    def __init__(self, vectors: npt.NDArray[Any]) -> None:
        self.vectors = vectors
        self.num_columns: int = vectors.shape[1]

    def rows(self, rows: Int64Array, device: torch.device | str = "cpu") -> Features:
        """Some rows in float32, [n, D]."""
        return Features(torch.from_numpy(np.asarray(self.vectors[rows], dtype=np.float32)).to(device))


@dataclass(frozen=True)
class Splits:
    """Rows of labelled nodes, a line a split: train [S, n], validation [S, v], test [S, t]."""

    train: Int64Array
    validation: Int64Array
    test: Int64Array


@dataclass(frozen=True)
class ProbeResult:
    """Accuracies [S] as fractions, and for each node [N] in how many splits it was tested, and how often wrong."""

    validation: npt.NDArray[np.float64]
    test: npt.NDArray[np.float64]
    tested: Int64Array
    wrong: Int64Array

    def summary(self) -> dict[str, float]:
        """Means and (population) deviations over the splits."""
        return {
            "val_mean": float(self.validation.mean()),
            "val_std": float(self.validation.std()),
            "test_mean": float(self.test.mean()),
            "test_std": float(self.test.std()),
        }


def draw_splits(labelled: Int64Array, settings: EvaluateSettings) -> Splits:
    """Random splits of the ``labelled`` rows: test and validation shares rounded down, what is left trains."""
    rng = np.random.default_rng(settings.seed)
    order = np.stack([rng.permutation(labelled) for _ in range(settings.splits)])
    # 0.8 where 0.1 and 0.1 are taken away, not 0.7999….
    test_share = round(1 - settings.train_share - settings.validation_share, 12)
    test = int(test_share * len(labelled))
    held_out = test + int(settings.validation_share * len(labelled))
    return Splits(order[:, held_out:], order[:, test:held_out], order[:, :test])


def initial_weights(splits: int, dim: int, classes: int, seed: int) -> Tensor:
    """Xavier-uniform weights [S, D, C], as the authors' classifier starts; its biases start at zero."""
    bound = (6 / (dim + classes)) ** 0.5
    generator = torch.Generator().manual_seed(seed)
    return torch.empty(splits, dim, classes).uniform_(-bound, bound, generator=generator)


def probe(
    reader: RowReader,
    codes: Int64Array,
    splits: Splits,
    settings: EvaluateSettings,
    device: torch.device | str = "cpu",
) -> ProbeResult:
    """Train and score one classifier a split; ``codes`` [N] are the nodes' classes, −1 for none."""
    count, size = splits.train.shape
    classes = int(codes.max()) + 1
    weight_SDC = initial_weights(count, reader.num_columns, classes, settings.seed).to(device)
    bias_SC = torch.zeros(count, classes, device=device)
    group = max(1, GATHER_BYTES // (4 * size * reader.num_columns))
    for first in range(0, count, group):
        part = slice(first, first + group)
        _train(reader, codes, splits.train[part], weight_SDC[part], bias_SC[part], settings)
    wrong_SN = _mistakes(reader, codes, weight_SDC, bias_SC)
    tested_SN = np.zeros_like(wrong_SN)
    np.put_along_axis(tested_SN, splits.test, True, axis=1)
    return ProbeResult(
        1 - np.take_along_axis(wrong_SN, splits.validation, axis=1).mean(axis=1),
        1 - np.take_along_axis(wrong_SN, splits.test, axis=1).mean(axis=1),
        tested_SN.sum(axis=0),
        (wrong_SN & tested_SN).sum(axis=0),
    )


def _train(
    reader: RowReader,
    codes: Int64Array,
    train_Sn: Int64Array,
    weight_SDC: Tensor,
    bias_SC: Tensor,
    settings: EvaluateSettings,
) -> None:
    """Adam from the given weights and biases, in place."""
    rows = _StackedRows(reader.rows(train_Sn.ravel(), weight_SDC.device), *train_Sn.shape)
    targets = torch.from_numpy(codes[train_Sn.ravel()]).to(weight_SDC.device)
    parameters = [weight_SDC.requires_grad_(), bias_SC.requires_grad_()]
    optimizer = torch.optim.Adam(parameters, lr=settings.lr)
    for _ in range(settings.steps):
        logits_SnC = rows @ weight_SDC + bias_SC[:, None]
        loss = cross_entropy(logits_SnC.flatten(0, 1), targets, reduction="sum") / train_Sn.shape[1]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class _StackedRows:
    """The rows of S splits, n each, as ``rows @ weight_SDC -> [S, n, C]``.

    Sparse rows become one block-diagonal matrix, so that every split's product is part of one sparse product.
    """

    def __init__(self, features_MD: Features, splits: int, size: int) -> None:
        self.shape = (splits, size)
        self.features = features_MD
        if isinstance(features_MD.matrix, SparseMatrix):
            pattern, (_, columns) = features_MD.matrix.pattern, features_MD.matrix.shape
            block = torch.div(pattern.rows, size, rounding_mode="floor")
            diagonal = Pattern(pattern.indptr, pattern.indices + columns * block, splits * columns)
            self.features = replace(features_MD, matrix=SparseMatrix(diagonal, features_MD.matrix.values))

    def __matmul__(self, weight_SDC: Tensor) -> Tensor:
        matrix, scale_D, shift_D = self.features.matrix, self.features.scale_F, self.features.shift_F
        if scale_D is not None:
            weight_SDC = scale_D[:, None] * weight_SDC
        if isinstance(matrix, SparseMatrix):
            product_SnC = matrix.matmul(weight_SDC.flatten(0, 1)).reshape(*self.shape, -1)
        else:
            product_SnC = matrix.reshape(*self.shape, -1) @ weight_SDC
        return product_SnC if shift_D is None else product_SnC - (shift_D @ weight_SDC)[:, None]


def _mistakes(reader: RowReader, codes: Int64Array, weight_SDC: Tensor, bias_SC: Tensor) -> npt.NDArray[np.bool_]:
    """Where each split's classifier errs, [S, N]; nodes without a label are False."""
    splits, dim, classes = weight_SDC.shape
    weight_DM = weight_SDC.permute(1, 0, 2).reshape(dim, splits * classes)
    wrong_SN = np.zeros((splits, len(codes)), dtype=np.bool_)
    labelled = np.flatnonzero(codes >= 0)
    for first in range(0, len(labelled), SCORE_ROWS):
        rows = labelled[first : first + SCORE_ROWS]
        scores_nSC = (reader.rows(rows, weight_DM.device) @ weight_DM).reshape(-1, splits, classes) + bias_SC
        wrong_SN[:, rows] = (scores_nSC.argmax(dim=2).cpu().numpy() != codes[rows, None]).T
    return wrong_SN
