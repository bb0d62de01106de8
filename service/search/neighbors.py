"""The query planner: which search answers a neighbours query, so that no answer is silently short.

An index is asked for ``k`` and as many more as a query excludes, and the excluded are dropped: the answer is exact
relative to the index's own ranking. A query for which that is too many, or whose answer comes back short, is scanned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy.typing as npt

from preprocessing.array_types import Float32Array, Float64Array, Int64Array
from service.search.exact import Ranking, inverse_norms, rank_each, scan
from service.search.index_settings import IndexKind
from service.search.knn_index import KnnIndex
from service.search.sorted_rows import contains

__all__ = ["FETCH_LIMIT", "Neighbors", "Space", "Strategy", "nearest"]

Strategy = Literal["exact", "exact_no_index", "exact_fallback", "hnsw", "ivf"]

# Above this an approximate search costs as much as a scan of the sets it is made for.
FETCH_LIMIT = 16_384


class Space:
    """What is searched: vectors [N, D], the kind of index they have (None: not built yet), and the index itself."""

    def __init__(self, vectors: npt.NDArray[Any], kind: IndexKind | None, index: KnnIndex | None) -> None:
        """``index`` is None for the kind ``exact`` too: it is the decision to scan."""
        self.vectors = vectors
        self.kind = kind
        self.index = index

    @cached_property
    def inverse(self) -> Float32Array:
        """Inverse norms [N], which only a scan needs: the first reads every vector once more."""
        return inverse_norms(self.vectors)


@dataclass(frozen=True)
class Neighbors:
    """The answer to one query. ``complete`` is false only where fewer than ``k`` nodes may be returned at all."""

    rows: Int64Array
    scores: Float64Array
    exact: bool
    strategy: Strategy
    complete: bool


def nearest(
    space: Space,
    queries: Float64Array,
    k: int,
    excluded: Sequence[Int64Array],
    *,
    exact: bool = False,
    effort: int | None = None,
) -> list[Neighbors]:
    """The ``k`` nearest rows of each query by cosine, best first, ties by row.

    ``queries`` [Q, D] of length 1; ``excluded`` one ascending array of distinct rows a query; ``effort`` as in
    ``IndexSettings``. ``exact`` scans whatever index there is.
    """
    answers: dict[int, Neighbors] = {}
    if space.index is not None and not exact:
        answers = _by_index(space, space.index, queries, k, excluded, effort)
    left = [query for query in range(len(queries)) if query not in answers]
    if left:
        strategy = _scan_strategy(space, exact)
        rankings = scan(space.vectors, space.inverse, queries[left], k, [excluded[query] for query in left])
        for query, ranking in zip(left, rankings, strict=True):
            answers[query] = _answer(ranking, k, strategy)
    return [answers[query] for query in range(len(queries))]


def _scan_strategy(space: Space, exact: bool) -> Strategy:
    if exact or space.kind == "exact":
        return "exact"
    return "exact_no_index" if space.kind is None else "exact_fallback"


def _by_index(
    space: Space,
    index: KnnIndex,
    queries: Float64Array,
    k: int,
    excluded: Sequence[Int64Array],
    effort: int | None,
) -> dict[int, Neighbors]:
    """Answers by query number; the ones left out need a scan."""
    nodes = len(space.vectors)
    answers = {}
    for fetch, group in _by_fetch(k + len(rows) + 1 for rows in excluded):
        if fetch > min(FETCH_LIMIT, nodes):
            continue
        found = index.search(queries[group], fetch, effort)
        for query, rows in zip(group, found, strict=True):
            rows[contains(excluded[query], rows)] = -1
        for query, ranking in zip(group, rank_each(space.vectors, found, queries[group], k), strict=True):
            if len(ranking) >= min(k, nodes - len(excluded[query])):
                answers[query] = _answer(ranking, k, "hnsw" if index.kind == "hnsw" else "ivf")
    return answers


def _by_fetch(wanted: Iterable[int]) -> list[tuple[int, list[int]]]:
    """Queries that need about as many candidates, together: their numbers by the next power of two."""
    groups: dict[int, list[int]] = {}
    for query, count in enumerate(wanted):
        groups.setdefault(1 << (count - 1).bit_length(), []).append(query)
    return sorted(groups.items())


def _answer(ranking: Ranking, k: int, strategy: Strategy) -> Neighbors:
    exact = strategy.startswith("exact")
    return Neighbors(ranking.rows, ranking.scores, exact, strategy, complete=len(ranking) == k)
