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
from numba import njit, types

from preprocessing.array_types import Float64Array, Int64Array
from preprocessing.cache_hints import prefetch
from preprocessing.local_ids import find, node_of
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

__all__ = ["BOUNDS_TYPE", "ROUNDING", "SPENT", "STATE_TYPE", "SUM_INFLATION", "Bounds", "State", "prove"]


OPERATIONS_A_VISIT, OPERATIONS_A_PUSH = 2, 6
ROUNDING = 2.0**-52
"""Twice the unit roundoff, for the second-order terms and the few operations that turn masses into scores."""
AHEAD = 12
"""How many records ahead one is fetched: they lie in the order of touch nowhere near each other."""
SUM_INFLATION = 1 + 2.0**-20
"""More than the relative error of a sum of 2^32 positive float64 terms (ρ, M, L)."""
SPENT = 1e-300
"""The residual of a pushed node: lost in any sum, yet not zero, which means untouched."""
TIE = 2.0**-24
"""Scores are stored as float32: what differs by less, relatively, is a tie."""


class State(NamedTuple):
    """Where the work on one row stands.

    ``bits``: the index has 2^bits entries. ``hubs`` are pushed so far; they have ``held`` back a mass, of the density
    ``held_rho`` at most and ``capped`` of it for good.
    """

    source: int
    touched: int
    bits: int
    visits: int
    pushes: int
    hubs: int
    held: float
    held_rho: float
    capped: float
    full: bool


class Bounds(NamedTuple):
    """Norms of what a score lacks: R that hubs hold back, and (1−t)R of the residuals, half a push of which it has.

    ``pushed_rho`` is the ρ of the latter, ``rho`` that of the former; ``mass`` and ``norm`` are of both. ``slack``/√d_j
    covers rounding at j. ``closed``: nothing untouched is in reach.
    """

    rho: float
    mass: float
    norm: float
    slack: float
    pushed_rho: float
    closed: bool


_I8, _F8, _BOOL = types.int64, types.float64, types.boolean
STATE_TYPE = types.BaseTuple.from_types((_I8,) * 6 + (_F8, _F8, _F8, _BOOL), State)
BOUNDS_TYPE = types.BaseTuple.from_types((_F8, _F8, _F8, _F8, _F8, _BOOL), Bounds)


@njit([_F8(_F8, _F8, _F8, _F8, _F8)], nogil=True, cache=True)
def _score(estimate: float, residual: float, degree: float, teleport: float, looped: float) -> float:
    """Ŝ of a node and the half of one more push of it; ``looped`` is the part of the degree that a push walks back."""
    return float((estimate + teleport * degree * residual / (degree - looped)) / np.sqrt(degree))


@njit([_I8(WORKSPACE_TYPE, _I8[::1], _F8[::1], _I8, _I8, _F8)], nogil=True, cache=True)
def _insert(work: Workspace, kept: Int64Array, scores: Float64Array, count: int, record: int, score: float) -> int:
    """Put the record in its place among the ``count`` best, equal ones by row number; returns the new count."""
    rank, node = count, node_of(work, record)
    while rank > 0 and (
        scores[rank - 1] < score or (scores[rank - 1] == score and node_of(work, kept[rank - 1]) > node)
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
    [
        types.Tuple((BOUNDS_TYPE, _I8, _I8))(arcs, WORKSPACE_TYPE, RULE_TYPE, STATE_TYPE, _F8, _I8[::1], _F8[::1])
        for arcs in ARCS_TYPES
    ],
    nogil=True,
    cache=True,
)
def _survey(
    arcs: Arcs, work: Workspace, rule: Rule, state: State, half: float, kept: Int64Array, scores: Float64Array
) -> tuple[Bounds, int, int]:
    """The norms of what a push has left, and the K best records, best first, equal ones by row number.

    ``half`` is the most that half a push settles of a residual: by that bound most nodes are left out without a root
    or a division. Twins have the best of their scores; in the one pass over what is touched each node is ranked by its
    own, and only if a twin class then is among the best a second ranks by the classes. Returns how many are kept, and
    how many classes have a score in ``shared``: ``queue`` holds their leaders' records.
    """
    records, touched, shared, leaders = work.records, work.touched, work.shared, work.queue
    top_k, teleport, looped = len(kept), rule.teleport, (1 - rule.teleport) * rule.self_loop
    own = find(work, state.bits, state.source)
    last_place = state.touched - 1
    rho, mass, square, closed = 0.0, 0.0, 0.0, state.held == 0
    count, classes, least, best_shared = 0, 0, -1.0, 0.0
    for place in range(state.touched):
        record = touched[place]
        prefetch(records, int(touched[min(place + AHEAD, last_place)]))
        estimate, residual, degree = records[record].estimate, records[record].residual, records[record].degree
        density = residual / degree
        rho = max(rho, density)
        mass += residual
        square += residual * density
        # When every node touched has been pushed, every neighbour is touched: the component is whole.
        closed &= estimate > 0.0
        most = (estimate + half * residual) * SUM_INFLATION
        if most * most < least * degree:
            continue
        score = _score(estimate, residual, degree, teleport, looped)
        leader = records[record].leader
        lead = find(work, state.bits, leader) if leader >= 0 and record != own else -1
        if lead >= 0:
            if shared[lead] == 0.0:
                leaders[classes] = lead
                classes += 1
            shared[lead] = max(shared[lead], score)
            best_shared = max(best_shared, shared[lead])
        if record != own or rule.include_self:
            count = _insert(work, kept, scores, count, record, score)
            least = scores[-1] * scores[-1] if count == top_k else -1.0
    if classes > 0 and (count < top_k or best_shared >= scores[-1]):
        count, least = 0, -1.0
        for place in range(state.touched):
            record = touched[place]
            leader = records[record].leader
            estimate, residual, degree = records[record].estimate, records[record].residual, records[record].degree
            most = (estimate + half * residual) * SUM_INFLATION
            if (leader < 0 and most * most < least * degree) or (record == own and not rule.include_self):
                continue
            score = _score(estimate, residual, degree, teleport, looped)
            lead = find(work, state.bits, leader) if leader >= 0 and record != own else -1
            if lead >= 0:
                score = max(score, shared[lead])
            if count < top_k or score >= scores[-1]:
                count = _insert(work, kept, scores, count, record, score)
                least = scores[-1] * scores[-1] if count == top_k else -1.0
    damping = 1 - rule.teleport
    norm = damping * np.sqrt(square) + np.sqrt(state.held * state.held_rho)
    operations = OPERATIONS_A_VISIT * state.visits + OPERATIONS_A_PUSH * state.pushes
    bounds = Bounds(
        state.held_rho * SUM_INFLATION,
        (damping * mass + state.held) * SUM_INFLATION,
        norm * SUM_INFLATION,
        ROUNDING * operations * np.sqrt(arcs.degree[state.source]),
        damping * rho * SUM_INFLATION,
        closed,
    )
    return bounds, count, classes


@njit([(RULE_TYPE, BOUNDS_TYPE, _F8)], nogil=True, cache=True)
def _width(rule: Rule, bounds: Bounds, degree: float) -> float:
    """How far S may lie above a node's score, rounding apart."""
    damping = 1 - rule.teleport
    root = np.sqrt(degree)
    diagonal = (1 + damping * rule.self_loop / degree) / (1 + damping)
    # The half push of a score has walked the self-loop: of the residuals, ρ√d comes in by the other neighbours alone.
    others = (degree - rule.self_loop) / (degree - damping * rule.self_loop)
    rho = bounds.rho + bounds.pushed_rho * others
    return float(min(rho * root, diagonal * bounds.mass / root, bounds.norm * np.sqrt(diagonal)))


@njit([(arcs, RULE_TYPE, BOUNDS_TYPE, _F8) for arcs in ARCS_TYPES], nogil=True, cache=True)
def _widest(arcs: Arcs, rule: Rule, bounds: Bounds, degree: float) -> float:
    """The width, rounding included, of any node of at most that degree: each bound where it is worst."""
    damping = 1 - rule.teleport
    diagonal = (1 + damping * rule.self_loop / arcs.least_degree) / (1 + damping)
    rho = bounds.rho + bounds.pushed_rho
    least = min(rho * np.sqrt(degree), np.sqrt(rho * diagonal * bounds.mass))
    slack = bounds.slack / np.sqrt(arcs.least_degree)
    return float(min(least, bounds.norm * np.sqrt(diagonal)) + slack)


@njit([(arcs, WORKSPACE_TYPE, RULE_TYPE, STATE_TYPE, BOUNDS_TYPE) for arcs in ARCS_TYPES], nogil=True, cache=True)
def _highest_untouched(arcs: Arcs, work: Workspace, rule: Rule, state: State, bounds: Bounds) -> float:
    """The most that S can be at a node that no push has reached."""
    if bounds.closed:
        return 0.0
    place = 0
    while place < len(arcs.by_degree) and find(work, state.bits, arcs.by_degree[place]) >= 0:
        place += 1
    if place == len(arcs.degree):
        return 0.0
    return float(_widest(arcs, rule, bounds, arcs.degree[arcs.by_degree[min(place, len(arcs.by_degree) - 1)]]))


@njit(
    [
        types.UniTuple(_F8, 2)(
            arcs, WORKSPACE_TYPE, RULE_TYPE, STATE_TYPE, types.Optional(BOUNDS_TYPE), ROWS_TYPE, _I8, _BOOL
        )
        for arcs in ARCS_TYPES
    ],
    nogil=True,
    cache=True,
)
def prove(
    arcs: Arcs, work: Workspace, rule: Rule, state: State, known: Bounds | None, rows: Rows, row: int, last: bool
) -> tuple[float, float]:
    """Select the row's K best, take the rounding off their scores, and find its gap, its error and its tie.

    The norms of what is left are ``known``, else those of the residuals in the workspace. Returns the mass left, and
    the factor by which the widths have to shrink for a proof, if the order of the scores is final. Unless it is the
    ``last`` look at the row, one that what is untouched makes fail ends there.

    Twins of the last node kept have its very score: those left out need only stay below the other nodes kept. With
    fewer than K nodes kept nothing touched is left out, and what is untouched has a score of zero to beat.
    """
    records, touched, shared = work.records, work.touched, work.shared
    kept, scores, own = rows.neighbors[row], rows.scores[row], find(work, state.bits, state.source)
    teleport, looped = rule.teleport, (1 - rule.teleport) * rule.self_loop
    half = teleport * arcs.least_degree / (arcs.least_degree - looped)
    bounds: Bounds
    bounds, count, classes = _survey(arcs, work, rule, state, half, kept, scores)
    if known is not None:
        bounds = known
    full = count == len(kept)
    least, last_score, split = -1, 0.0, -1
    if full:
        least, last_score = node_of(work, kept[-1]), scores[-1]
        split = -1 if kept[-1] == own else int(records[kept[-1]].leader)
    error, lowest, lowest_other = 0.0, np.inf, np.inf
    for rank in range(count):
        record = kept[rank]
        degree = records[record].degree
        slack = bounds.slack / np.sqrt(degree)
        error = max(error, _width(rule, bounds, degree) + 2 * slack)
        scores[rank] = max(scores[rank] - slack, 0.0)
        lowest = min(lowest, scores[rank])
        if split < 0 or record == own or records[record].leader != split:
            lowest_other = min(lowest_other, scores[rank])
        kept[rank] = node_of(work, record)
    most_mass = bounds.mass * (1 + looped / arcs.least_degree) / (2 - teleport)
    highest, highest_twin, rival = _highest_untouched(arcs, work, rule, state, bounds), -np.inf, 0.0
    hopeless = full and not last and highest > lowest
    last_place = state.touched - 1
    for place in range(state.touched if full and not hopeless else 0):
        record = touched[place]
        prefetch(records, int(touched[min(place + AHEAD, last_place)]))
        estimate, residual, degree = records[record].estimate, records[record].residual, records[record].degree
        reach = min((bounds.rho + bounds.pushed_rho) * degree, most_mass) + bounds.slack
        most = (estimate + half * residual + reach) * SUM_INFLATION
        if most * most <= highest * highest * degree or (record == own and not rule.include_self):
            continue
        leader = np.int64(-1) if record == own else records[record].leader
        lead = find(work, state.bits, leader) if leader >= 0 else np.int64(-1)
        score = _score(estimate, residual, degree, teleport, looped)
        shown = max(score, shared[lead]) if lead >= 0 else score
        if shown > last_score or (shown == last_score and node_of(work, record) <= least):
            continue
        upper = score + _width(rule, bounds, degree) + bounds.slack / np.sqrt(degree)
        if split >= 0 and leader == split:
            highest_twin = max(highest_twin, upper)
        elif upper > highest:
            highest, rival = upper, score
    for number in range(classes):
        shared[work.queue[number]] = 0.0
    gap = max(highest - lowest, highest_twin - lowest_other) if full else highest
    rows.counts[row], rows.gap[row], rows.error[row], rows.exact[row] = count, gap, error, gap <= 0
    rows.tied[row] = full and not hopeless and gap <= TIE * last_score and (gap > 0 or highest_twin > -np.inf)
    shrink = (lowest - rival) / (highest - rival) if full and highest > rival else 1.0
    return bounds.mass, shrink
