"""A bank of target embeddings: anchors' are read as they were when the nodes last were queries, not computed anew.

The same trade as historical embeddings (Chen et al., 2018; GNNAutoScale, Fey et al., 2021) and memory banks (Wu et
al., 2018), for the target network, which moves slowly by design. Every view has its own, since views are augmented
differently. Nothing is read before it was written: in the first epoch nodes that have not been queries yet are computed
as ever (``MiniBatch``), so an embedding is less than two epochs old.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from preprocessing.array_file import mapped_npy
from preprocessing.array_types import Int64Array
from trainer.objectives import Step

__all__ = ["FILES", "Bank"]

ROWS, STEPS = FILES = "bank.npy", "bank_steps.npy"
BLOCK_BYTES = 1 << 26


class Bank:
    """float16 [N, V, D] of length 1, and by which of the run's steps each node's was written, int64 [N].

    All workers write the same, every worker's queries, each to a bank of its own: what a step reads depends on no
    worker's pace.
    """

    def __init__(
        self,
        place: Literal["disk", "device"],
        work: Path,
        shape: tuple[int, int, int],
        device: torch.device,
    ) -> None:
        """On the ``device``, or in files without a name in ``work``, mapped into memory: the pages are the kernel's to
        drop, and a killed run leaves nothing. ``OSError`` when the disk has too little room.
        """
        self._device = device
        if place == "disk":
            self._rows_NVD = torch.from_numpy(_scratch(work, np.float16, shape))
            self._step_N = _scratch(work, np.int64, shape[:1])
        else:
            self._rows_NVD = torch.zeros(shape, dtype=torch.float16, device=device)
            self._step_N = np.empty(shape[0], dtype=np.int64)
        self._step_N[:] = -1
        self._ages = _Ages()

    def served(self, step: Step, number: int) -> Step:
        """A step with its anchors' embeddings; ``number`` counts the run's steps from 0."""
        assert step.bank is not None
        assert step.anchors is not None
        read_m = step.bank.read
        written_m = self._step_N[read_m]
        assert (written_m >= 0).all()
        self._ages.add(number - written_m)
        rows_mVD = self._rows_NVD[torch.from_numpy(read_m).to(self._rows_NVD.device)].to(self._device)
        stored_VmD = rows_mVD.float().transpose(0, 1)
        return replace(step, anchors=replace(step.anchors, stored_VmD=stored_VmD))

    def store(self, nodes_T: Int64Array, targets_TVD: Tensor, number: int) -> None:
        """What that step made of all workers' queries."""
        rows_NVD = self._rows_NVD
        rows_NVD[torch.from_numpy(nodes_T).to(rows_NVD.device)] = targets_TVD.to(rows_NVD.device, rows_NVD.dtype)
        self._step_N[nodes_T] = number

    def staleness(self) -> Mapping[str, float]:
        """Of all embeddings read since the last call: the mean and the highest age, in steps; nothing if none was."""
        ages, self._ages = self._ages, _Ages()
        return ages.summary()

    def save(self, folder: Path) -> None:
        """Write ``FILES``."""
        rows = mapped_npy(folder / ROWS, np.float16, tuple(self._rows_NVD.shape))
        steps = mapped_npy(folder / STEPS, np.int64, self._step_N.shape)
        for block in self._blocks():
            rows[block] = self._rows_NVD[block].cpu().numpy()
            steps[block] = self._step_N[block]
        for array in (rows, steps):
            assert isinstance(array, np.memmap)
            array.flush()

    def load(self, folder: Path) -> None:
        """Take what ``save`` wrote."""
        rows, steps = (np.load(folder / name, mmap_mode="r", allow_pickle=False) for name in FILES)
        for block in self._blocks():
            self._rows_NVD[block] = torch.from_numpy(np.array(rows[block])).to(self._rows_NVD.device)
            self._step_N[block] = steps[block]

    def _blocks(self) -> Iterator[slice]:
        """Runs of nodes of a bounded size: neither copy needs the whole bank in memory."""
        size = max(1, BLOCK_BYTES // (2 * self._rows_NVD[0].numel()))
        for first in range(0, len(self._step_N), size):
            yield slice(first, first + size)


class _Ages:
    """The number of ages, their sum, and the highest."""

    def __init__(self) -> None:
        self.count = self.total = self.highest = 0

    def add(self, ages: Int64Array) -> None:
        self.count += len(ages)
        self.total += int(ages.sum())
        self.highest = max(self.highest, int(ages.max(initial=0)))

    def summary(self) -> Mapping[str, float]:
        if self.count == 0:
            return {}
        return {"anchor_age_mean": self.total / self.count, "anchor_age_max": float(self.highest)}


def _scratch(work: Path, dtype: type, shape: tuple[int, ...]) -> np.ndarray:
    """A file without a name, all of its room taken at once: writing into a hole of a full disk would be a SIGBUS."""
    with tempfile.TemporaryFile(dir=work) as file:
        os.posix_fallocate(file.fileno(), 0, int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize)
        return np.asarray(np.memmap(file, dtype=dtype, mode="r+", shape=shape))
