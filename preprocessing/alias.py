"""Drawing nodes by weight: an alias table, built in O(N) and read in O(1) a draw (Walker, 1977; Vose, 1991).

Drawing without replacement is successive sampling: every next node is drawn in proportion to the weights of the nodes
not drawn yet. Drawing with replacement and dropping repeats is exactly that; when repeats would be many, an exponential
race is too: the order in which clocks of rates w_j ring (Efraimidis and Spirakis, 2006).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt
from numba import njit

from preprocessing.array_file import mapped_npy
from preprocessing.array_types import Float64Array, Int64Array
from preprocessing.errors import UsageError

__all__ = ["AliasTable", "draw", "draw_without_replacement", "write_alias_table"]

RACE_SHARE = 0.25
"""Draws of more than this share of the nodes are a race from the start: it costs O(N) once."""
CANDIDATES_A_DRAW = 4
"""Candidates a node asked for before the rest is left to a race: few heavy nodes can make repeats of nearly all."""


@dataclass(frozen=True)
class AliasTable:
    """Cell c stands for node c with probability ``threshold[c]``, else for ``alias[c]``; ``weight`` as given; [N]."""

    weight: Float64Array
    threshold: Float64Array
    alias: Int64Array

    @classmethod
    def build(cls, weight: npt.ArrayLike) -> AliasTable:
        """From non-negative weights [N] of any sum; ``UsageError`` unless finite, and at least one of them positive."""
        weight = np.array(weight, dtype=np.float64)
        total = weight.sum()
        if weight.ndim != 1 or not np.isfinite(total) or total <= 0 or (weight < 0).any():
            raise UsageError("these weights cannot be drawn from", expected="finite weights ≥ 0, at least one positive")
        table = cls(weight, weight / total * len(weight), np.arange(len(weight)))
        _pair(table.threshold, table.alias, np.empty(len(weight), dtype=np.int64))
        return table

    @classmethod
    def open(cls, folder: Path) -> AliasTable:
        """The table that ``write_alias_table`` left in ``folder``, memory-mapped."""
        return cls(*(np.load(folder / f"{field.name}.npy", mmap_mode="r", allow_pickle=False) for field in fields(cls)))


def write_alias_table(folder: Path, size: int, blocks: Callable[[], Iterator[Float64Array]]) -> None:
    """Write the table of ``size`` positive weights, which ``blocks`` yields in order each time that it is called.

    All arrays, the two stacks among them, are files mapped into memory: the pages are the kernel's to drop.
    """
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as scratch:
        weight, threshold = (
            mapped_npy(folder / f"{name}.npy", np.float64, (size,)) for name in ("weight", "threshold")
        )
        alias = mapped_npy(folder / "alias.npy", np.int64, (size,))
        total = sum(float(block.sum()) for block in blocks())
        first = 0
        for block in blocks():
            end = first + len(block)
            weight[first:end] = block
            threshold[first:end] = block / total * size
            alias[first:end] = np.arange(first, end)
            first = end
        stack = np.memmap(scratch, dtype=np.int64, mode="w+", shape=(size,))
        _pair(*(np.asarray(array) for array in (threshold, alias, stack)))


def draw(table: AliasTable, count: int, rng: np.random.Generator) -> Int64Array:
    """``count`` nodes in proportion to their weights, with replacement."""
    cells = rng.integers(len(table.alias), size=count)
    return np.where(rng.random(count) < table.threshold[cells], cells, table.alias[cells])


def draw_without_replacement(table: AliasTable, count: int, rng: np.random.Generator) -> Int64Array:
    """``count`` distinct nodes in the order drawn, by successive sampling; all of positive weight if no more exist."""
    drawn = np.empty(0, dtype=np.int64)
    candidates = 0 if count > RACE_SHARE * len(table.weight) else CANDIDATES_A_DRAW * count
    while len(drawn) < count and candidates > 0:
        batch = draw(table, count - len(drawn), rng)
        candidates -= len(batch)
        drawn = _first_occurrences(np.concatenate([drawn, batch]))
    if len(drawn) < count:
        # What is drawn so far says nothing of the rest but that it is left.
        drawn = np.concatenate([drawn, _race(table.weight, drawn, count - len(drawn), rng)])
    return drawn


def _first_occurrences(nodes: Int64Array) -> Int64Array:
    _, first = np.unique(nodes, return_index=True)
    return nodes[np.sort(first)]


def _race(weight: Float64Array, drawn: Int64Array, count: int, rng: np.random.Generator) -> Int64Array:
    """The first ``count`` nodes to ring among those not drawn, by clocks of rates ``weight``."""
    running = weight > 0
    running[drawn] = False
    nodes = np.flatnonzero(running)
    rings = rng.standard_exponential(len(nodes)) / weight[nodes]
    if count < len(nodes):
        first = np.argpartition(rings, count - 1)[:count]
        nodes, rings = nodes[first], rings[first]
    return nodes[np.argsort(rings, kind="stable")]


@njit("void(float64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def _pair(threshold: Float64Array, alias: Int64Array, stack: Int64Array) -> None:
    """Fill every cell below 1 from a node above 1; ``threshold`` holds N times the probabilities on entry.

    ``stack`` [N] holds two, the poor from the left and the rich from the right. What rounding leaves over is 1.
    """
    size = len(threshold)
    poor, rich = 0, size
    for node in range(size):
        if threshold[node] < 1:
            stack[poor] = node
            poor += 1
        else:
            rich -= 1
            stack[rich] = node
    while poor > 0 and rich < size:
        poor -= 1
        taker, giver = stack[poor], stack[rich]
        alias[taker] = giver
        threshold[giver] -= 1 - threshold[taker]
        if threshold[giver] < 1:
            rich += 1
            stack[poor] = giver
            poor += 1
    for place in range(poor):
        threshold[stack[place]] = 1
    for place in range(rich, size):
        threshold[stack[place]] = 1
