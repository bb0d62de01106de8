"""What layer-wise inference keeps from one step to the next: arrays of a row a node, and how far each step has come.

A step is a number, in the order that steps are taken; its arrays are written from the first row to the last.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from preprocessing.array_file import mapped_npy
from preprocessing.array_types import Float32Array
from preprocessing.journal import Journal

__all__ = ["LayerArrays", "LayerFiles"]

MEMORY_BYTES = 1 << 30
"""Arrays up to this size stay in memory, where they need not outlive the process."""


class LayerArrays:
    """Arrays in memory, or past ``MEMORY_BYTES`` in files that no name leads to: they go with the process."""

    def __init__(self, nodes: int, directory: Path) -> None:
        """``nodes`` is N; ``directory`` is where files are made."""
        self.nodes, self.directory = nodes, directory
        self._steps: dict[int, list[Float32Array]] = {}

    def done(self, step: int) -> int:  # noqa: ARG002 (what an earlier process wrote is gone)
        """How many rows of the step an earlier process has written."""
        return 0

    def of(self, step: int) -> list[Float32Array]:
        """The arrays of a step, [N, ·] each."""
        return self._steps[step]

    def write(self, step: int, rows: slice, parts: Sequence[Float32Array]) -> None:
        """The next rows of a step, [R, ·] a part; the first to come tell how many arrays there are, and how wide."""
        if step not in self._steps:
            self._steps[step] = self.of(step) if self.done(step) else self._new(step, [part.shape[1] for part in parts])
        for array, part in zip(self._steps[step], parts, strict=True):
            array[rows] = part

    def drop(self, step: int) -> None:
        """A step that nobody asks for any more."""
        self._steps.pop(step, None)

    def _new(self, _step: int, widths: Sequence[int]) -> list[Float32Array]:
        return [self._scratch((self.nodes, width)) for width in widths]

    def _scratch(self, shape: tuple[int, int]) -> Float32Array:
        if 4 * math.prod(shape) <= MEMORY_BYTES:
            return np.empty(shape, dtype=np.float32)
        with tempfile.TemporaryFile(dir=self.directory) as file:
            return np.memmap(file, dtype=np.float32, mode="w+", shape=shape)


class LayerFiles(LayerArrays):
    """Arrays in files of ``directory``, ``<step>-<number>.npy``: a killed process's rows are gone on from."""

    def __init__(self, nodes: int, directory: Path) -> None:
        super().__init__(nodes, directory)
        directory.mkdir(exist_ok=True)
        self._journal = Journal(directory / "done.json")

    def done(self, step: int) -> int:
        """Steps before the one that the journal is at are whole."""
        at, rows = self._journal.state.get("step", -1), self._journal.state.get("rows", 0)
        return self.nodes if step < at else rows if step == at else 0

    def of(self, step: int) -> list[Float32Array]:
        """Opened when they are first asked for."""
        if step not in self._steps:
            self._steps[step] = [np.load(file, mmap_mode="r+", allow_pickle=False) for file in self.files(step)]
        return self._steps[step]

    def files(self, step: int) -> list[Path]:
        """Where the arrays of a step are."""
        return sorted(self.directory.glob(f"{step:04d}-*.npy"))

    def write(self, step: int, rows: slice, parts: Sequence[Float32Array]) -> None:
        """The rows outlive the process from here on."""
        super().write(step, rows, parts)
        self._journal.record(step=step, rows=rows.stop)

    def drop(self, step: int) -> None:
        """Its files go."""
        super().drop(step)
        for file in self.files(step):
            file.unlink()

    def _new(self, step: int, widths: Sequence[int]) -> list[Float32Array]:
        names = [self.directory / f"{step:04d}-{number}.npy" for number in range(len(widths))]
        return [mapped_npy(name, np.float32, (self.nodes, width)) for name, width in zip(names, widths, strict=True)]
