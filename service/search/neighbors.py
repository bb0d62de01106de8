"""The query planner: which search answers a neighbours query, so that no answer is silently short.

An index is asked for ``k`` and as many more as a query excludes, and the excluded are dropped: the answer is exact
relative to the index's own ranking. A query for which that is too many, or whose answer comes back short, is scanned.

With a filter it is asked for so many that ``k`` of them should match. Where the matches lie elsewhere than the query
they do not, which tells: a search that looks for matches alone (faiss's selectors) returns distant ones then, and
nothing shows it. Few matches are scanned at once, and a scan reads none but matches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy.typing as npt

from preprocessing.array_types import Float32Array, Float64Array, Int64Array
from service.search.exact import Ranking, inverse_norms, rank_each, scan, scan_rows
from service.search.index_settings import MAX_EFFORT, IndexKind
from service.search.knn_index import KnnIndex
from service.search.matches import Matches
from service.search.sorted_rows import contains

__all__ = ["FETCH_LIMIT", "FEW_MATCHES", "Neighbors", "Space", "Strategy", "nearest"]

# A scan because: asked for, or no index is worth it; none is built yet; the index would, or did, return too few; few
# nodes match the filter. Or the index, and what it found that matches the filter.
Strategy = Literal[
    "exact", "exact_no_index", "exact_fallback", "exact_filtered", "hnsw", "hnsw_filtered", "ivf", "ivf_filtered"
]

# Above this an approximate search costs as much as a scan of the sets it is made for.
FETCH_LIMIT = 16_384
# A scan of so many rows, or of so many for every candidate that the index would be asked for, takes less time
# (vectors of 128 numbers: 0.26 µs a row; 3 to 9 µs a candidate of HNSW, 2 to 4 of IVF).
FEW_MATCHES = 4096
ROWS_A_CANDIDATE = 16
# HNSW keeps as many candidates as it is asked for. IVF visits as many cells whatever it is asked for, and the matches
# nearest to a query lie in the more of them the fewer match: its effort times nodes a match to this power.
IVF_GROWTH = 0.5


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
    among: Matches | None = None,
    exact: bool = False,
    effort: int | None = None,
) -> list[Neighbors]:
    """The ``k`` nearest rows of each query by cosine, best first, ties by row.

    ``queries`` [Q, D] of length 1; ``excluded`` one ascending array of distinct rows a query; ``among`` the rows that
    a filter lets through (default: all); ``effort`` as in ``IndexSettings``. ``exact`` scans whatever index there is.
    """
    answers: dict[int, Neighbors] = {}
    few = among is not None and _are_few(among, k)
    if space.index is not None and not exact and not few:
        answers = _by_index(space, space.index, queries, k, excluded, among, effort)
    left = [query for query in range(len(queries)) if query not in answers]
    if left:
        strategy = "exact_filtered" if few and not exact else _scan_strategy(space, exact)
        left_out = [excluded[query] for query in left]
        if among is None:
            rankings = scan(space.vectors, space.inverse, queries[left], k, left_out)
        else:
            rankings = scan_rows(space.vectors, among.rows, queries[left], k, left_out)
        for query, ranking in zip(left, rankings, strict=True):
            answers[query] = _answer(ranking, k, strategy)
    return [answers[query] for query in range(len(queries))]


def _are_few(among: Matches, k: int) -> bool:
    return among.count <= max(FEW_MATCHES, ROWS_A_CANDIDATE * _fetch(k, among))


def _fetch(k: int, among: Matches | None) -> int:
    """How many candidates should hold ``k`` matches: two standard deviations more than do on average."""
    if among is None:
        return k
    return math.ceil((k + 2 * math.sqrt(k)) * len(among.mask) / max(1, among.count))


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
    among: Matches | None,
    effort: int | None,
) -> dict[int, Neighbors]:
    """Answers by query number; the ones left out need a scan."""
    nodes = len(space.vectors)
    answers = {}
    strategy: Strategy = "hnsw" if index.kind == "hnsw" else "ivf"
    if among is not None:
        strategy = "hnsw_filtered" if index.kind == "hnsw" else "ivf_filtered"
    candidates = _fetch(k, among)
    if among is not None and index.kind == "ivf":
        effort = min(MAX_EFFORT, round((effort or index.effort) * (nodes / among.count) ** IVF_GROWTH))
    for fetch, group in _by_fetch(candidates + len(rows) + 1 for rows in excluded):
        if fetch > min(FETCH_LIMIT, nodes):
            continue
        found = index.search(queries[group], fetch, effort)
        allowed = found >= 0
        for query, rows, own in zip(group, found, allowed, strict=True):
            own &= ~contains(excluded[query], rows)
        if among is not None:
            allowed &= among.mask[found]
        for query, ranking in zip(group, rank_each(space.vectors, found, allowed, queries[group], k), strict=True):
            left = nodes - len(excluded[query]) if among is None else among.outside(excluded[query])
            if len(ranking) >= min(k, left):
                answers[query] = _answer(ranking, k, strategy)
    return answers


def _by_fetch(wanted: Iterable[int]) -> list[tuple[int, list[int]]]:
    """Queries that need about as many candidates, together: their numbers by the next number of three binary digits
    and zeros, at most a quarter more.
    """
    groups: dict[int, list[int]] = {}
    for query, count in enumerate(wanted):
        step = 1 << max(0, count.bit_length() - 3)
        groups.setdefault(-(-count // step) * step, []).append(query)
    return sorted(groups.items())


def _answer(ranking: Ranking, k: int, strategy: Strategy) -> Neighbors:
    exact = strategy.startswith("exact")
    return Neighbors(ranking.rows, ranking.scores, exact, strategy, complete=len(ranking) == k)
