"""Exact cosine neighbours by scanning every vector, and the ranking that every search ends with.

Candidates are found in float32 and ranked by their cosine in float64, rounded to ``SCORE_DIGITS``; ties go to the lower
row. So the answer does not depend on how a scan was cut into blocks, on threads, or on which index found a candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from preprocessing.array_types import Float32Array, Float64Array, Int64Array
from service.search.sorted_rows import contains

__all__ = ["Ranking", "cosines", "inverse_norms", "pair_cosines", "rank", "rank_each", "scan", "scan_rows", "unit"]

FloatArray = npt.NDArray[Any]

SCORE_DIGITS = 7
# More than a float32 dot product of unit vectors differs from the float64 one.
SLACK = 1e-5
BLOCK_BYTES = 16 << 20


@dataclass(frozen=True)
class Ranking:
    """rows [R] int64 and their cosines [R] float64, best first."""

    rows: Int64Array
    scores: Float64Array

    def __len__(self) -> int:
        return len(self.rows)


_NOTHING = Ranking(np.empty(0, np.int64), np.empty(0, np.float64))


def unit(vectors: FloatArray) -> Float64Array:
    """``vectors`` [..., D] scaled to length 1, in float64; a zero vector stays zero."""
    wide = np.asarray(vectors, dtype=np.float64)
    # By the largest number first, so that no square overflows or vanishes.
    largest = np.abs(wide).max(axis=-1, keepdims=True, initial=0.0)
    directions: Float64Array = np.divide(wide, largest, out=np.zeros_like(wide), where=largest > 0)
    lengths = np.sqrt(np.square(directions).sum(axis=-1, keepdims=True))
    np.divide(directions, lengths, out=directions, where=lengths > 0)
    return directions


def inverse_norms(vectors: FloatArray) -> Float32Array:
    """1 / length of each row [N], 0 for a zero vector; a pass over the file, block by block."""
    inverse = np.zeros(len(vectors), dtype=np.float32)
    for rows in _blocks(vectors):
        block = np.asarray(vectors[rows], dtype=np.float64)
        lengths = np.sqrt(np.einsum("nd,nd->n", block, block))
        np.divide(1.0, lengths, out=inverse[rows], where=lengths > 0, casting="same_kind")
    return inverse


def cosines(vectors: FloatArray, rows: Int64Array, query: Float64Array) -> Float64Array:
    """Rounded cosines [R] of the unit vector ``query`` [D] and ``vectors[rows]``; 0 where a vector is zero."""
    chosen = np.asarray(vectors[rows], dtype=np.float64)
    # einsum sums every row in the same order, so equal vectors score equal; BLAS does not promise that.
    return _rounded(np.einsum("nd,d->n", chosen, query), np.einsum("nd,nd->n", chosen, chosen))


def pair_cosines(one: FloatArray, other: FloatArray) -> Float64Array:
    """Rounded cosines [n] of ``one[i]`` and ``other[i]``, both [n, D]; 0 where a vector is zero."""
    left, right = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    squares = np.einsum("nd,nd->n", left, left) * np.einsum("nd,nd->n", right, right)
    return _rounded(np.einsum("nd,nd->n", left, right), squares)


def _rounded(dots: Float64Array, squares: Float64Array) -> Float64Array:
    scores = np.zeros(dots.shape)
    np.divide(dots, np.sqrt(squares), out=scores, where=squares > 0)
    scores = np.minimum(np.maximum(scores.round(SCORE_DIGITS), -1.0), 1.0)
    # Adding 0 turns -0.0 into 0.0.
    return scores + 0.0


def rank(vectors: FloatArray, rows: Int64Array, query: Float64Array, k: int) -> Ranking:
    """The best ``k`` of candidate ``rows`` by cosine, ties by row."""
    rows = np.sort(rows)
    return _best(rows, cosines(vectors, rows, query), k)


def rank_each(vectors: FloatArray, rows_QC: Int64Array, queries_QD: Float64Array, k: int) -> list[Ranking]:
    """``rank`` for many queries at once, of as many candidate rows each; −1 is none."""
    step = max(1, BLOCK_BYTES // (8 * rows_QC.shape[1] * vectors.shape[1]))
    return [
        ranking
        for start in range(0, len(rows_QC), step)
        for ranking in _rank_block(vectors, rows_QC[start : start + step], queries_QD[start : start + step], k)
    ]


def _rank_block(vectors: FloatArray, rows_QC: Int64Array, queries_QD: Float64Array, k: int) -> list[Ranking]:
    # None comes first so, and is told from row 0 by its score.
    rows_QC = np.sort(rows_QC, axis=1)
    chosen_QCD = np.asarray(vectors[np.maximum(rows_QC, 0)], dtype=np.float64)
    dots_QC = np.einsum("qcd,qd->qc", chosen_QCD, queries_QD)
    scores_QC = _rounded(dots_QC, np.einsum("qcd,qcd->qc", chosen_QCD, chosen_QCD))
    scores_QC[rows_QC < 0] = -np.inf
    # Stable, so that ties stay in the order of rows.
    order_Qk = np.argsort(-scores_QC, axis=1, kind="stable")[:, :k]
    query_Q1 = np.arange(len(rows_QC))[:, None]
    best_Qk, scores_Qk = rows_QC[query_Q1, order_Qk], scores_QC[query_Q1, order_Qk]
    counts = np.count_nonzero(best_Qk >= 0, axis=1).tolist()
    return [Ranking(best_Qk[query, :count], scores_Qk[query, :count]) for query, count in enumerate(counts)]


def scan(
    vectors: FloatArray,
    inverse: Float32Array,
    queries: Float64Array,
    k: int,
    excluded: Sequence[Int64Array],
) -> list[Ranking]:
    """The ``k`` nearest rows of every query, looking at every vector once.

    ``vectors`` [N, D], ``inverse`` from ``inverse_norms``, ``queries`` [Q, D] of length 1, ``excluded`` one ascending
    array of rows a query. A ranking is shorter than ``k`` only if fewer rows are left.
    """
    best = [_NOTHING] * len(queries)
    queries_QD = queries.astype(np.float32)
    for span in _blocks(vectors):
        block_BD = np.asarray(vectors[span], dtype=np.float32)
        scores_QB = queries_QD @ block_BD.T
        scores_QB *= inverse[span]
        for query, scores in enumerate(scores_QB):
            low, high = np.searchsorted(excluded[query], (span.start, span.stop))
            scores[excluded[query][low:high] - span.start] = -np.inf
            candidates = np.flatnonzero(scores >= _floor(scores, best[query], k)) + span.start
            if len(candidates):
                best[query] = _merge(best[query], rank(vectors, candidates, queries[query], k), k)
    return best


def scan_rows(
    vectors: FloatArray, rows: Int64Array, queries: Float64Array, k: int, excluded: Sequence[Int64Array]
) -> list[Ranking]:
    """``scan`` of the ascending ``rows`` alone; no other vector is read."""
    best = [_NOTHING] * len(queries)
    queries_QD = queries.astype(np.float32)
    for span in _blocks(vectors, len(rows)):
        part = rows[span]
        block = vectors[part]
        scores_QB = queries_QD @ block.astype(np.float32, copy=False).T
        scores_QB *= inverse_norms(block)
        for query, scores in enumerate(scores_QB):
            scores[contains(excluded[query], part)] = -np.inf
            candidates = part[scores >= _floor(scores, best[query], k)]
            if len(candidates):
                best[query] = _merge(best[query], rank(vectors, candidates, queries[query], k), k)
    return best


def _floor(scores: Float32Array, best: Ranking, k: int) -> float:
    """The float32 score below which a row of this block cannot be among the best ``k``."""
    lowest = float(np.finfo(np.float32).min)
    if len(best) == k:
        lowest = float(best.scores[-1]) - SLACK
    elif len(scores) > k:
        lowest = max(lowest, float(np.partition(scores, len(scores) - k)[len(scores) - k]) - SLACK)
    return lowest


def _merge(one: Ranking, other: Ranking, k: int) -> Ranking:
    return _best(np.concatenate((one.rows, other.rows)), np.concatenate((one.scores, other.scores)), k)


def _best(rows: Int64Array, scores: Float64Array, k: int) -> Ranking:
    order = np.lexsort((rows, -scores))[:k]
    return Ranking(rows[order], scores[order])


def _blocks(vectors: FloatArray, count: int | None = None) -> list[slice]:
    """Spans of ``count`` rows (default: all) that are a block each."""
    count = len(vectors) if count is None else count
    rows = max(1, BLOCK_BYTES // (4 * vectors.shape[1]))
    return [slice(start, min(start + rows, count)) for start in range(0, count, rows)]
