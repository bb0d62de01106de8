"""The linear probe: how well a linear classifier on frozen vectors names a node's label.

The paper's protocol (section 5, as its code runs it): for each split of the labelled nodes one linear layer under cross
entropy, 100 full-batch steps of Adam. The classifiers of all splits are trained side by side
as one batched model: their losses add up, so no classifier's gradient touches another's, and Adam works elementwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from preprocessing.array_types import Float64Array, Int64Array
from trainer.evaluation.splits import Splits
from trainer.evaluation.targets import F1Counts, Targets
from trainer.features import Features
from trainer.settings import EvaluateSettings
from trainer.sparse import Pattern, SparseMatrix

__all__ = ["ArrayRows", "ProbeResult", "RowReader", "initial_weights", "probe"]

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
class ProbeResult:
    """Micro-F1 [S] as fractions, for one class a node accuracy, and macro-F1 over the test nodes.

    And for each node [N] in how many splits it was tested, and how often wrong: told any class amiss.
    """

    validation: Float64Array
    test: Float64Array
    test_macro_f1: Float64Array
    tested: Int64Array
    wrong: Int64Array

    def summary(self) -> dict[str, float]:
        """Means and (population) deviations over the splits."""
        return {
            "val_mean": float(self.validation.mean()),
            "val_std": float(self.validation.std()),
            "test_mean": float(self.test.mean()),
            "test_std": float(self.test.std()),
            "test_macro_f1_mean": float(self.test_macro_f1.mean()),
            "test_macro_f1_std": float(self.test_macro_f1.std()),
        }


def initial_weights(splits: int, dim: int, classes: int, seed: int) -> Tensor:
    """Xavier-uniform weights [S, D, C], as the authors' classifier starts; its biases start at zero."""
    bound = (6 / (dim + classes)) ** 0.5
    generator = torch.Generator().manual_seed(seed)
    return torch.empty(splits, dim, classes).uniform_(-bound, bound, generator=generator)


def probe(
    reader: RowReader,
    targets: Targets,
    splits: Splits,
    settings: EvaluateSettings,
    device: torch.device | str = "cpu",
) -> ProbeResult:
    """Train and score one classifier a split."""
    count, size = splits.train.shape
    classes = len(targets.names)
    weight_SDC = initial_weights(count, reader.num_columns, classes, settings.seed).to(device)
    bias_SC = torch.zeros(count, classes, device=device)
    group = max(1, GATHER_BYTES // (4 * size * reader.num_columns))
    for first in range(0, count, group):
        part = slice(first, first + group)
        _train(reader, targets, splits.train[part], weight_SDC[part], bias_SC[part], settings)
    with torch.no_grad():
        validation, test, tested_SN, wrong_SN = _score(reader, targets, splits, weight_SDC, bias_SC)
    return ProbeResult(
        validation.micro, test.micro, test.macro, tested_SN.sum(axis=0), (wrong_SN & tested_SN).sum(axis=0)
    )


def _train(
    reader: RowReader,
    targets: Targets,
    train_Sn: Int64Array,
    weight_SDC: Tensor,
    bias_SC: Tensor,
    settings: EvaluateSettings,
) -> None:
    """Adam from the given weights and biases, in place."""
    rows = _StackedRows(reader.rows(train_Sn.ravel(), weight_SDC.device), *train_Sn.shape)
    parameters = [weight_SDC.requires_grad_(), bias_SC.requires_grad_()]
    optimizer = torch.optim.Adam(parameters, lr=settings.lr)
    for _ in range(settings.steps):
        logits_SnC = rows @ weight_SDC + bias_SC[:, None]
        loss = targets.loss(logits_SnC.flatten(0, 1), train_Sn.ravel()) / train_Sn.shape[1]
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
            self.features = replace(features_MD, stored=SparseMatrix(diagonal, features_MD.matrix.values))

    def __matmul__(self, weight_SDC: Tensor) -> Tensor:
        matrix, scale_D, shift_D = self.features.matrix, self.features.scale_F, self.features.shift_F
        if scale_D is not None:
            weight_SDC = scale_D[:, None] * weight_SDC
        if isinstance(matrix, SparseMatrix):
            product_SnC = matrix.matmul(weight_SDC.flatten(0, 1)).reshape(*self.shape, -1)
        else:
            # Transposed, so that the way back multiplies by rows as they lie, at a quarter of the time.
            product_SnC = (weight_SDC.mT @ matrix.reshape(*self.shape, -1).mT).mT
        return product_SnC if shift_D is None else product_SnC - (shift_D @ weight_SDC)[:, None]


def _score(
    reader: RowReader, targets: Targets, splits: Splits, weight_SDC: Tensor, bias_SC: Tensor
) -> tuple[F1Counts, F1Counts, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Counts over validation and over test nodes, and which nodes [S, N] are tested, and which a split errs on."""
    count, dim, classes = weight_SDC.shape
    weight_DM = weight_SDC.permute(1, 0, 2).reshape(dim, count * classes)
    validated_SN, tested_SN, wrong_SN = (np.zeros((count, targets.num_nodes), dtype=np.bool_) for _ in range(3))
    np.put_along_axis(validated_SN, splits.validation, True, axis=1)
    np.put_along_axis(tested_SN, splits.test, True, axis=1)
    validation, test = F1Counts(count, classes), F1Counts(count, classes)
    for first in range(0, len(targets.labelled), SCORE_ROWS):
        rows = targets.labelled[first : first + SCORE_ROWS]
        scores_nSC = (reader.rows(rows, weight_DM.device) @ weight_DM).reshape(-1, count, classes) + bias_SC
        decided_nSC, members_nC = targets.decided(scores_nSC), targets.members(rows, weight_DM.device)
        for counts, counted_SN in ((validation, validated_SN), (test, tested_SN)):
            counted_nS = torch.from_numpy(counted_SN[:, rows].T.copy()).to(weight_DM.device)
            counts.add(decided_nSC, members_nC, counted_nS)
        wrong_SN[:, rows] = (decided_nSC != members_nC[:, None]).any(dim=2).cpu().numpy().T
    return validation, test, tested_SN, wrong_SN
