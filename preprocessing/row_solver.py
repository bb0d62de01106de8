"""Threads that fill rows of S: by push, on small graphs by the block solver too, and twins by exchange."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from queue import SimpleQueue

import numpy as np

from preprocessing.array_types import Int64Array
from preprocessing.chebyshev import Block, solve_rows
from preprocessing.locality import Renumbered, inverse
from preprocessing.push import push_rows
from preprocessing.settings import PprSettings
from preprocessing.twin_rows import copy_twin_rows, distinct_rows
from preprocessing.workspace import Arcs, Rows, Rule, Workspace

__all__ = ["RowSolver"]

PUSHED_ROWS, SOLVED_ROWS = 32, 256
"""Rows a thread takes at a time: few, that a stop is prompt and no thread waits long; more, to keep all lanes busy."""
DENSE_RECORDS, FIRST_TOUCHED = 1 << 25, 1 << 14
"""All threads together have a record a node while those are so many at most (1.7 GB). Past that memory follows the
nodes that rows touch, with room for so many at first."""
PATIENCE, LEAST_PATIENCE = 1.0, 20_000
"""Edge visits that pushing may cost where the rest can be solved: as many as the arcs, yet all of a small component."""


@dataclass
class _Bench:
    """What one thread works with; ``block`` is there on graphs small enough to be solved."""

    work: Workspace
    block: Block | None


class RowSolver:
    """Use it as a context manager. A row's bits depend on the graph, the settings and the nodes it is filled with."""

    def __init__(self, graph: Renumbered, settings: PprSettings, threads: int) -> None:
        """``graph`` is undirected, and rows are asked for and told by the numbers it had before: O(arcs + N log N)."""
        topology, self._order = graph
        self._rank = inverse(graph.order)
        self._arcs, self._rule = Arcs.of(topology, settings), Rule.of(settings)
        small = max(topology.num_arcs, topology.num_nodes) <= settings.exact_arcs
        self._solved = small and not settings.capped
        if self._solved:
            # No threshold ends a row here: when pushing has cost what solving would, it is solved.
            patience = max(round(PATIENCE * topology.num_arcs), LEAST_PATIENCE)
            self._rule = self._rule._replace(patience=patience, epsilon_floor=0.0)
        self._top_k = settings.top_k
        self._idle: SimpleQueue[_Bench] = SimpleQueue()
        first = None if self._solved or threads * topology.num_nodes <= DENSE_RECORDS else FIRST_TOUCHED
        for _ in range(threads):
            block = Block.of(topology.num_nodes) if self._solved else None
            self._idle.put(_Bench(Workspace.of(self._arcs, first), block))
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="rows")

    def __enter__(self) -> RowSolver:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def fill(self, nodes: Int64Array, rows: Rows) -> Iterator[int]:
        """Fill ``rows``, those of ``nodes``, which ascend; yields how many more are done, chunk by chunk.

        Of the twins among them one is computed and the others are its copies.
        """
        leaders, by_place = self._arcs.twin_leader, np.argsort(self._rank[nodes])
        own = self._rank[nodes][by_place]
        sources, place = distinct_rows(own, leaders)
        copies = np.bincount(place, minlength=len(sources))
        computed, in_order = Rows.empty(len(sources), self._top_k), Rows.empty(len(nodes), self._top_k)
        for begin, end in self._chunks(sources, computed):
            yield int(copies[begin:end].sum())
        copy_twin_rows(own, leaders, sources, place, computed, in_order)
        in_order.neighbors[:] = np.where(in_order.neighbors < 0, -1, self._order[in_order.neighbors])
        for column in range(len(rows)):
            rows[column][by_place] = in_order[column]

    def _chunks(self, sources: Int64Array, rows: Rows) -> Iterator[tuple[int, int]]:
        size, step = len(sources), SOLVED_ROWS if self._solved else PUSHED_ROWS
        sources = sources.view()
        sources.flags.writeable = False
        futures = {}
        for begin in range(0, size, step):
            end = min(begin + step, size)
            futures[self._pool.submit(self._fill, sources[begin:end], rows.part(begin, end))] = begin, end
        for future in as_completed(futures):
            future.result()
            yield futures[future]

    def _fill(self, sources: Int64Array, rows: Rows) -> None:
        bench = self._idle.get()
        try:
            if bench.block is not None:
                solve_rows(self._arcs, bench.work, self._rule, bench.block, sources, rows)
                return
            done = 0
            while (done := push_rows(self._arcs, bench.work, self._rule, sources, rows, done)) < len(sources):
                bench.work = Workspace.of(self._arcs, 2 * len(bench.work.records))
        finally:
            self._idle.put(bench)
