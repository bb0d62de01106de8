"""What the vectors of new nodes depend on: their surroundings in the graph that they would make grow.

The graph is read where it is stored and only as far as layers look; how far that is, is counted before it is read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from preprocessing.array_types import Int64Array
from preprocessing.bundle import Topology
from service.errors import LimitError

__all__ = ["EdgeBudget", "GrownGraph", "Surroundings", "surroundings"]


@dataclass(frozen=True)
class Surroundings:
    """The nodes that some nodes hear of, through so many layers.

    ``nodes`` [n] are rows of the grown graph, hop by hop, and ``ends[h]`` of them are at most h hops away: the first
    ``ends[0]`` are those asked for. ``indptr`` [R + 1] and ``indices`` [E] say whom all but the last hop's nodes hear,
    by place in ``nodes``. ``degrees`` [n] count whom a node hears in the grown graph.
    """

    nodes: Int64Array
    ends: list[int]
    indptr: Int64Array
    indices: Int64Array
    degrees: Int64Array


class EdgeBudget:
    """How many edges one call may still read."""

    def __init__(self, limit: int) -> None:
        self._limit = self._left = limit

    def spend(self, edges: int) -> None:
        """``LimitError`` past the limit."""
        self._left -= edges
        if self._left < 0:
            raise LimitError(
                "the vectors of these nodes depend on more edges than one call may read",
                expected=f"at most {self._limit} edges around the new nodes (setting max_embed_edges)",
                remedy="send fewer nodes a call, or append them to the graph (rgrl append) and embed it (rgrl embed)",
                pointer="/nodes",
            )


class GrownGraph:
    """A stored graph of N nodes and the arcs that new nodes bring along, whose rows are N, N + 1, …"""

    def __init__(self, topology: Topology, hears: Int64Array, heard: Int64Array) -> None:
        """One end of every arc [A] is new; arcs to oneself and repeated ones are dropped, as in ingest."""
        self._topology = topology
        kept = hears != heard
        hears, heard = hears[kept], heard[kept]
        order = np.lexsort((heard, hears))
        hears, heard = hears[order], heard[order]
        distinct = np.ones(len(hears), dtype=np.bool_)
        distinct[1:] = (hears[1:] != hears[:-1]) | (heard[1:] != heard[:-1])
        self._hears, self._heard = hears[distinct], heard[distinct]

    def degrees(self, rows: Int64Array) -> Int64Array:
        """How many nodes each of ``rows`` hears."""
        stored, added = self._runs(rows)
        return stored[1] + added[1]

    def heard(self, rows: Int64Array) -> Int64Array:
        """Whom ``rows`` hear, one row's after the other's."""
        (starts, lengths), (new_starts, new_lengths) = self._runs(rows)
        parts = [self._topology.indices[_runs(starts, lengths)], self._heard[_runs(new_starts, new_lengths)]]
        # New arcs follow the stored ones of their row.
        number = np.arange(len(rows))
        order = np.argsort(np.concatenate([np.repeat(number, lengths), np.repeat(number, new_lengths)]), kind="stable")
        heard: Int64Array = np.concatenate(parts).astype(np.int64)[order]
        return heard

    def _runs(self, rows: Int64Array) -> tuple[tuple[Int64Array, Int64Array], tuple[Int64Array, Int64Array]]:
        """Where the rows' stored arcs and their new ones begin, and how many they are."""
        indptr, known = self._topology.indptr, rows < self._topology.num_nodes
        starts, lengths = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
        starts[known] = indptr[rows[known]]
        lengths[known] = indptr[rows[known] + 1] - starts[known]
        new_starts = np.searchsorted(self._hears, rows)
        return (starts, lengths), (new_starts, np.searchsorted(self._hears, rows, side="right") - new_starts)


def surroundings(graph: GrownGraph, asked: Int64Array, hops: int, budget: EdgeBudget) -> Surroundings:
    """Of the nodes ``asked``, ``hops`` layers deep; ``LimitError`` before more edges are read than ``budget`` has."""
    nodes = frontier = asked
    ends, lengths, heard = [len(asked)], [], []
    for _ in range(hops):
        degrees = graph.degrees(frontier)
        budget.spend(int(degrees.sum()))
        lengths.append(degrees)
        heard.append(graph.heard(frontier))
        frontier = np.setdiff1d(heard[-1], nodes)
        nodes = np.concatenate([nodes, frontier])
        ends.append(len(nodes))
    order = np.argsort(nodes)
    places = order[np.searchsorted(nodes, np.concatenate(heard), sorter=order)]
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
    return Surroundings(nodes, ends, indptr, places, np.concatenate([*lengths, graph.degrees(frontier)]))


def _runs(starts: Int64Array, lengths: Int64Array) -> Int64Array:
    """Places of runs, one after the other."""
    ends = np.cumsum(lengths)
    places: Int64Array = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)
    return places
