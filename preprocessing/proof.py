"""The top-K of a row that is known but for a residual, and the proof of it.

S is positive semidefinite and S√d = √d, so with ρ = max |R_v|/√d_v, M = Σ|R_v|√d_v and L = ‖R‖₂

    |(S·R)_j| ≤ ρ√d_j,    |(S·R)_j| ≤ S_jj·M/√d_j,    |(S·R)_j| ≤ √S_jj·L,    S_jj ≤ (1 + (1−t)·T_jj)/(2−t).

The second counts walks that reach j at all and then return to it; the last bounds an integral over the spectrum, which
lies in [−1, 1] with mean T_jj. The three hold for T·S·R too, hence a push's S·R = tR + (1−t)T·S·R lies between tR, to
which a self-loop adds, and tR plus 1−t times the least of them. A score is Ŝ and the half of one more push: a lower
bound.

Rounding: an operation on masses is off by at most 2^-53·√d_i, a mass of δ moves no entry of S by more than δ/√d_j, and
every row counts its operations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit, types

from preprocessing.local_ids import find
from preprocessing.workspace import (
    ARCS_TYPES,
    ROWS_TYPE,
    RULE_TYPE,
    WORKSPACE_TYPE,
    Arcs,
    Rows,
    Rule,
    Workspace,
)

__all__ = ["BOUNDS_TYPE", "ROUNDING", "SPENT", "STATE_TYPE", "SUM_INFLATION", "Bounds", "State", "measure", "prove"]

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

OPERATIONS_A_VISIT, OPERATIONS_A_PUSH = 2, 6
ROUNDING = 2.0**-52
"""Twice the unit roundoff, for the second-order terms and the few operations that turn masses into scores."""
SUM_INFLATION = 1 + 2.0**-20
"""More than the relative error of a sum of 2^32 positive float64 terms (ρ, M, L)."""
SPENT = 1e-300
"""The residual of a pushed node: lost in any sum, yet not zero, which means untouched."""
TIE = 2.0**-24
"""Scores are stored as float32: what differs by less, relatively, is a tie."""


class State(NamedTuple):
    """Where the work on one row stands.

    ``bits``: the index has 2^bits entries. ``lost``: the mass that capped hubs kept back, ``lost_rho`` its density.
    """

    source: int
    touched: int
    bits: int
    visits: int
    pushes: int
    lost: float
    lost_rho: float
    full: bool


class Bounds(NamedTuple):
    """The norms of R that bound S·R. ``slack``/√d_j covers rounding at j; ``closed``: nothing untouched is in reach.

    S lies above a score by at most ``factor`` times the least bound. ``walked`` is the self-loop that the score has
    walked already, so that ρ√d comes in by the other neighbours alone.
    """

    rho: float
    mass: float
    norm: float
    slack: float
    factor: float
    walked: float
    closed: bool


_I8, _F8, _BOOL = types.int64, types.float64, types.boolean
STATE_TYPE = types.BaseTuple.from_types((_I8,) * 5 + (_F8, _F8, _BOOL), State)
BOUNDS_TYPE = types.BaseTuple.from_types((_F8, _F8, _F8, _F8, _F8, _F8, _BOOL), Bounds)


@njit([(WORKSPACE_TYPE, RULE_TYPE, _I8)], nogil=True, cache=True)
def _score(work: Workspace, rule: Rule, record: int) -> float:
    """Ŝ of the node and the half of one more push of it."""
    residual, degree = work.records[record].residual, work.records[record].degree
    half = rule.teleport * degree * residual / (degree - (1 - rule.teleport) * rule.self_loop)
    return float((work.records[record].estimate + half) / np.sqrt(degree))


@njit([(arcs, _I8, _I8) for arcs in ARCS_TYPES], nogil=True, cache=True)
def _class(arcs: Arcs, source: int, node: int) -> int:
    """The node's twin class as seen from the source, which is nobody's twin in its own row."""
    return -1 if node == source else int(arcs.twin_leader[node])


@njit([(arcs, WORKSPACE_TYPE, STATE_TYPE, _I8) for arcs in ARCS_TYPES], nogil=True, cache=True)
def _leader(arcs: Arcs, work: Workspace, state: State, record: int) -> int:
    """The record of the node that leads the twin class, −1 if there is none."""
    leader = _class(arcs, state.source, work.records[record].node)
    return find(work, state.bits, leader) if leader >= 0 else -1


@njit([(arcs, WORKSPACE_TYPE, RULE_TYPE, STATE_TYPE, _I8) for arcs in ARCS_TYPES], nogil=True, cache=True)
def _shared_score(arcs: Arcs, work: Workspace, rule: Rule, state: State, record: int) -> float:
    """The best score among the node and its twins: their entries of S are equal, but for the source's own."""
    score = _score(work, rule, record)
    leader = _leader(arcs, work, state, record)
    return float(max(score, work.shared[leader]) if leader >= 0 else score)


@njit([(WORKSPACE_TYPE, RULE_TYPE, BOUNDS_TYPE, _I8)], nogil=True, cache=True)
def _width(work: Workspace, rule: Rule, bounds: Bounds, record: int) -> float:
    """How far S may lie above the node's score, rounding apart."""
    degree, damping = work.records[record].degree, 1 - rule.teleport
    root = np.sqrt(degree)
    diagonal = (1 + damping * rule.self_loop / degree) / (1 + damping)
    others = (degree - bounds.walked) / (degree - damping * bounds.walked)
    least = min(bounds.rho * root * others, diagonal * bounds.mass / root, bounds.norm * np.sqrt(diagonal))
    return float(bounds.factor * least)


@njit([(arcs, WORKSPACE_TYPE, RULE_TYPE, STATE_TYPE) for arcs in ARCS_TYPES], nogil=True, cache=True)
def measure(arcs: Arcs, work: Workspace, rule: Rule, state: State) -> Bounds:
    """The norms of what a push has left, and of what capped hubs kept back."""
    rho, mass, square = 0.0, 0.0, 0.0
    closed = state.lost == 0
    for record in range(state.touched):
        residual, degree = work.records[record].residual, work.records[record].degree
        rho = max(rho, residual / degree)
        mass += residual
        square += residual * residual / degree
        # When every node touched has been pushed, every neighbour is touched: the component is whole.
        closed &= work.records[record].estimate > 0.0
    norm = np.sqrt(square) + np.sqrt(state.lost * state.lost_rho)
    operations = OPERATIONS_A_VISIT * state.visits + OPERATIONS_A_PUSH * state.pushes
    return Bounds(
        (rho + state.lost_rho) * SUM_INFLATION,
        (mass + state.lost) * SUM_INFLATION,
        norm * SUM_INFLATION,
        ROUNDING * operations * np.sqrt(arcs.degree[state.source]),
        # The half push of a score is of the residual alone, not of what was lost.
        1 - rule.teleport if state.lost == 0 else 1.0,
        rule.self_loop if state.lost == 0 else 0.0,
        closed,
    )


@njit([(WORKSPACE_TYPE, _I8, _F8)], nogil=True, cache=True)
def _is_below(work: Workspace, record: int, score: float) -> bool:
    """Whether the node's own score is surely less: most nodes end here, without a root or a division.

    A push never adds more than the residual.
    """
    most = (work.records[record].estimate + work.records[record].residual) * SUM_INFLATION
    return bool(most * most < score * score * work.records[record].degree)


@njit([_I8(WORKSPACE_TYPE, _I8[::1], _F8[::1], _I8, _I8, _F8)], nogil=True, cache=True)
def _insert(work: Workspace, kept: Int64Array, scores: Float64Array, count: int, record: int, score: float) -> int:
    """Put the record in its place among the ``count`` best, equal ones by row number; returns the new count."""
    rank, node = count, work.records[record].node
    while rank > 0 and (
        scores[rank - 1] < score or (scores[rank - 1] == score and work.records[kept[rank - 1]].node > node)
    ):
        rank -= 1
    if rank == len(kept):
        return count
    count = min(count + 1, len(kept))
    for behind in range(count - 1, rank, -1):
        kept[behind], scores[behind] = kept[behind - 1], scores[behind - 1]
    kept[rank], scores[rank] = record, score
    return count


@njit(
    [_I8(arcs, WORKSPACE_TYPE, RULE_TYPE, STATE_TYPE, _I8[::1], _F8[::1]) for arcs in ARCS_TYPES],
    nogil=True,
    cache=True,
)
def _select(arcs: Arcs, work: Workspace, rule: Rule, state: State, kept: Int64Array, scores: Float64Array) -> int:
    """The K best records, best first, equal ones by row number, twins by the best of their scores; how many there are.

    First by their own scores alone: a twin class matters only if one of its nodes is among those.
    """
    top_k, count = len(kept), 0
    for record in range(state.touched):
        if count == top_k and _is_below(work, record, scores[-1]):
            continue
        if rule.include_self or work.records[record].node != state.source:
            count = _insert(work, kept, scores, count, record, _score(work, rule, record))
    least, shared = scores[-1] if count == top_k else 0.0, False
    for record in range(state.touched):
        if not _is_below(work, record, least):
            leader = _leader(arcs, work, state, record)
            if leader >= 0:
                work.shared[leader] = max(work.shared[leader], _score(work, rule, record))
                shared = True
    if not shared:
        return count
    count = 0
    for record in range(state.touched):
        node = work.records[record].node
        if count == top_k and arcs.twin_leader[node] < 0 and _is_below(work, record, scores[-1]):
            continue
        if rule.include_self or node != state.source:
            count = _insert(work, kept, scores, count, record, _shared_score(arcs, work, rule, state, record))
    return count


@njit([(arcs, WORKSPACE_TYPE, RULE_TYPE, STATE_TYPE, BOUNDS_TYPE) for arcs in ARCS_TYPES], nogil=True, cache=True)
def _highest_untouched(arcs: Arcs, work: Workspace, rule: Rule, state: State, bounds: Bounds) -> float:
    """The most that S can be at a node that no push has reached: each bound at the degree that is worst for it."""
    if bounds.closed:
        return 0.0
    place = 0
    while place < len(arcs.by_degree) and find(work, state.bits, arcs.by_degree[place]) >= 0:
        place += 1
    if place == len(arcs.degree):
        return 0.0
    degree, damping = arcs.degree[arcs.by_degree[min(place, len(arcs.by_degree) - 1)]], 1 - rule.teleport
    diagonal = (1 + damping * rule.self_loop / arcs.least_degree) / (1 + damping)
    least = min(bounds.rho * np.sqrt(degree), np.sqrt(bounds.rho * diagonal * bounds.mass))
    slack = bounds.slack / np.sqrt(arcs.least_degree)
    return float(bounds.factor * min(least, bounds.norm * np.sqrt(diagonal)) + slack)


@njit(
    [(arcs, WORKSPACE_TYPE, RULE_TYPE, STATE_TYPE, BOUNDS_TYPE, ROWS_TYPE, _I8) for arcs in ARCS_TYPES],
    nogil=True,
    cache=True,
)
def prove(arcs: Arcs, work: Workspace, rule: Rule, state: State, bounds: Bounds, rows: Rows, row: int) -> None:
    """Select the row's K best, take the rounding off their scores, and find its gap, its error and its tie.

    Twins of the last node kept have its very score: those left out need only stay below the other nodes kept. With
    fewer than K nodes kept nothing touched is left out, and what is untouched has a score of zero to beat.
    """
    kept, scores, source = rows.neighbors[row], rows.scores[row], state.source
    count = _select(arcs, work, rule, state, kept, scores)
    full = count == len(kept)
    last, last_score, split = np.int64(-1), 0.0, -1
    if full:
        last, last_score = work.records[kept[-1]].node, scores[-1]
        split = _class(arcs, source, last)
    error, lowest, lowest_other = 0.0, np.inf, np.inf
    for rank in range(count):
        node, root = work.records[kept[rank]].node, np.sqrt(work.records[kept[rank]].degree)
        slack = bounds.slack / root
        error = max(error, _width(work, rule, bounds, kept[rank]) + 2 * slack)
        scores[rank] = max(scores[rank] - slack, 0.0)
        lowest = min(lowest, scores[rank])
        if split < 0 or _class(arcs, source, node) != split:
            lowest_other = min(lowest_other, scores[rank])
        kept[rank] = node
    highest, highest_twin = _highest_untouched(arcs, work, rule, state, bounds), -np.inf
    if full:
        for record in range(state.touched):
            node, degree = work.records[record].node, work.records[record].degree
            reach = bounds.factor * bounds.rho * degree + bounds.slack
            most = (work.records[record].estimate + work.records[record].residual + reach) * SUM_INFLATION
            if most * most <= highest * highest * degree or (node == source and not rule.include_self):
                continue
            shared = _shared_score(arcs, work, rule, state, record)
            if shared > last_score or (shared == last_score and node <= last):
                continue
            upper = _score(work, rule, record) + _width(work, rule, bounds, record) + bounds.slack / np.sqrt(degree)
            if split >= 0 and _class(arcs, source, node) == split:
                highest_twin = max(highest_twin, upper)
            else:
                highest = max(highest, upper)
        gap = max(highest - lowest, highest_twin - lowest_other)
    else:
        gap = highest
    rows.counts[row], rows.gap[row], rows.error[row], rows.exact[row] = count, gap, error, gap <= 0
    rows.tied[row] = full and gap <= TIE * last_score and (gap > 0 or highest_twin > -np.inf)
