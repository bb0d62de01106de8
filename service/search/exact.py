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
# A sum of squares between these has lost nothing to overflow or underflow.
_LEAST, _MOST = 1e-200, 1e200
_TINY = np.finfo(np.float64).tiny
BLOCK_BYTES = 16 << 20
# Vectors that a core's cache holds, at 128 numbers.
RANKED_AT_ONCE = 512


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
    squares = np.vecdot(wide, wide)
    if all(_LEAST < square < _MOST for square in squares.ravel().tolist()):
        plain: Float64Array = wide / np.sqrt(squares)[..., None]
        return plain
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


def cosines(vectors: FloatArray, rows: Int64Array, queries: Float64Array) -> Float64Array:
    """Rounded cosines [Q, R] of the unit vectors ``queries`` [Q, D] and ``vectors[rows]``, ``rows`` [Q, R]; 0 where a
    vector is zero. A row below 0 stands for any.
    """
    chosen = vectors.take(rows, axis=0, mode="clip").astype(np.float64, copy=False)
    # einsum sums every row in the same order, so equal vectors score equal; BLAS does not promise that.
    return _rounded(np.einsum("qrd,qd->qr", chosen, queries), np.einsum("qrd,qrd->qr", chosen, chosen))


def pair_cosines(one: FloatArray, other: FloatArray) -> Float64Array:
    """Rounded cosines [n] of ``one[i]`` and ``other[i]``, both [n, D]; 0 where a vector is zero."""
    left, right = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    squares = np.einsum("nd,nd->n", left, left) * np.einsum("nd,nd->n", right, right)
    return _rounded(np.einsum("nd,nd->n", left, right), squares)


def _rounded(dots: Float64Array, squares: Float64Array) -> Float64Array:
    # Where there are no squares there is no product either: 0.
    scores: Float64Array = (dots / np.sqrt(np.maximum(squares, _TINY))).round(SCORE_DIGITS)
    np.minimum(np.maximum(scores, -1.0, out=scores), 1.0, out=scores)
    # Adding 0 turns -0.0 into 0.0.
    scores += 0.0
    return scores


def rank(vectors: FloatArray, rows: Int64Array, query: Float64Array, k: int) -> Ranking:
    """The best ``k`` of candidate ``rows`` by cosine, ties by row."""
    return _best(rows, cosines(vectors, rows[None], query[None])[0], k)


def rank_each(
    vectors: FloatArray, rows: Int64Array, allowed: npt.NDArray[np.bool_], queries: Float64Array, k: int
) -> list[Ranking]:
    """``rank`` of those of ``rows`` [Q, R] that are ``allowed`` [Q, R], for every query of ``queries`` [Q, D]."""
    if len(rows) == 1:
        return [rank(vectors, rows[0][allowed[0]], queries[0], k)]
    rankings = []
    step = max(1, RANKED_AT_ONCE // rows.shape[1])
    for start in range(0, len(rows), step):
        some = slice(start, start + step)
        scores = cosines(vectors, rows[some], queries[some])
        order = np.lexsort((rows[some], -scores, ~allowed[some]))
        counts = allowed[some].sum(axis=1).tolist()
        for best, count, own, score in zip(order, counts, rows[some], scores, strict=True):
            best = best[: min(k, count)]
            rankings.append(Ranking(own[best], score[best]))
    return rankings


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
