"""What a probe is to tell of a node, and the scores of what it told: one class, or any number of them."""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, one_hot

from preprocessing.array_types import Float64Array, Int64Array
from preprocessing.bundle import Labels, LabelSets

__all__ = ["ClassTargets", "F1Counts", "SetTargets", "Targets"]


class Targets(Protocol):
    """Labels of all nodes. ``metric`` names what ``F1Counts.micro`` is of them; ``loss_name`` the classifier's loss."""

    metric: ClassVar[str]
    loss_name: ClassVar[str]
    num_nodes: int
    labelled: Int64Array
    names: list[str]

    def loss(self, logits_MC: Tensor, rows_M: Int64Array) -> Tensor:
        """Summed over the nodes ``rows_M``."""

    def decided(self, scores: Tensor) -> Tensor:
        """Scores [..., C] as truths: the classes that a node is told to be of."""

    def members(self, rows_n: Int64Array, device: torch.device) -> Tensor:
        """The classes that nodes are of, truths [n, C]."""


class ClassTargets:
    """One class a node: the one of the largest score. Micro-F1 is accuracy then."""

    metric: ClassVar[str] = "accuracy"
    loss_name: ClassVar[str] = "cross entropy"

    def __init__(self, labels: Labels) -> None:
        self.num_nodes, self.names = len(labels.codes), labels.names
        self.codes = torch.from_numpy(labels.codes)
        self.labelled: Int64Array = np.flatnonzero(labels.codes >= 0)

    def loss(self, logits_MC: Tensor, rows_M: Int64Array) -> Tensor:
        """Cross entropy."""
        return cross_entropy(logits_MC, self.codes[rows_M].to(logits_MC.device), reduction="sum")

    def decided(self, scores: Tensor) -> Tensor:
        """The largest score."""
        return one_hot(scores.argmax(dim=-1), scores.shape[-1]).bool()

    def members(self, rows_n: Int64Array, device: torch.device) -> Tensor:
        """One truth a row."""
        return one_hot(self.codes[rows_n], len(self.names)).bool().to(device)


class SetTargets:
    """Any number of classes a node: those of probability above ½, each by a logistic regression of its own."""

    metric: ClassVar[str] = "micro_f1"
    loss_name: ClassVar[str] = "binary cross entropy, mean over classes"

    def __init__(self, sets: LabelSets) -> None:
        self.num_nodes, self.names = len(sets.labelled), sets.names
        self.truth = torch.from_numpy(sets.members)
        self.labelled: Int64Array = np.flatnonzero(sets.labelled)

    def loss(self, logits_MC: Tensor, rows_M: Int64Array) -> Tensor:
        """Binary cross entropy, mean over classes."""
        truth_MC = self.members(rows_M, logits_MC.device).to(torch.float32)
        return binary_cross_entropy_with_logits(logits_MC, truth_MC, reduction="sum") / len(self.names)

    def decided(self, scores: Tensor) -> Tensor:
        """Positive scores."""
        return scores > 0

    def members(self, rows_n: Int64Array, device: torch.device) -> Tensor:
        """Any number of truths a row."""
        return self.truth[rows_n].to(device)


class F1Counts:
    """Counts of S classifiers and C classes over the nodes added so far, and their F1 = 2 tp / (decided + true)."""

    def __init__(self, splits: int, classes: int) -> None:
        self.hits_SC, self.sizes_SC = (np.zeros((splits, classes), dtype=np.int64) for _ in range(2))

    def add(self, decided_nSC: Tensor, members_nC: Tensor, counted_nS: Tensor) -> None:
        """Some nodes, for the classifiers where ``counted_nS``."""
        decided_nSC = decided_nSC & counted_nS[:, :, None]
        members_nSC = members_nC[:, None] & counted_nS[:, :, None]
        self.hits_SC += (decided_nSC & members_nSC).sum(dim=0).cpu().numpy()
        self.sizes_SC += (decided_nSC.sum(dim=0) + members_nSC.sum(dim=0)).cpu().numpy()

    @property
    def micro(self) -> Float64Array:
        """Of all classes together, [S]."""
        micro: Float64Array = 2 * self.hits_SC.sum(axis=1) / self.sizes_SC.sum(axis=1).clip(min=1)
        return micro

    @property
    def macro(self) -> Float64Array:
        """The mean over the classes that a node is of or was told to be of, [S]."""
        f1_SC = 2 * self.hits_SC / self.sizes_SC.clip(min=1)
        macro: Float64Array = f1_SC.sum(axis=1) / (self.sizes_SC > 0).sum(axis=1).clip(min=1)
        return macro
