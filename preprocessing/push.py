"""Rows of S by forward push, each with a proof of its top-K set or the gap that is left.

S = Σ t(1−t)^k T^k with T = D^{-1/2} A D^{-1/2}. Row i of S is Ŝ + S·R throughout: R starts as the unit vector of i, and
a push of node v moves tR_v into Ŝ_v and (1−t)T·R_v back into R (Andersen et al., 2006, in the symmetric basis).
The kernels keep both times √degree, as *mass*: then a push adds one constant to every neighbour, the masses of Ŝ and R
always sum to √d_i, and R_v ≤ ε√d_v reads mass ≤ ε·d_v. A self-loop is never walked: the repeated pushes of v that it
asks for are a geometric series, summed in one.

The proof. S is positive semidefinite and S√d = √d, so with ρ = max R_v/√d_v, M = ΣR_v√d_v and L = ‖R‖₂

    (S·R)_j ≤ ρ√d_j,    (S·R)_j ≤ S_jj·M/√d_j,    (S·R)_j ≤ √S_jj·L,    S_jj ≤ (1 + (1−t)·T_jj)/(2−t).

The second counts walks that reach j at all and then return to it; the last bounds an integral over the spectrum, which
lies in [−1, 1] with mean T_jj. The three hold for T·S·R too, hence S·R = tR + (1−t)T·S·R lies between tR, to which a
self-loop adds, and tR plus 1−t times the least of them. A score is Ŝ and the half of one more push: a lower bound.

Rounding: an operation on masses is off by at most 2^-53·√d_i, a mass of δ moves no entry of S by more than δ/√d_j, and
every row counts its operations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit, types

from preprocessing.workspace import (
    ARCS_TYPES,
    ROWS_TYPE,
    RULE_TYPE,
    TRAITS_TYPE,
    WORKSPACE_TYPE,
    Arcs,
    Rows,
    Rule,
    Traits,
    Workspace,
)

__all__ = ["State", "drain", "push_rows"]

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

REFINEMENT = 3.0
SPENT = 1e-300
"""The residual of a pushed node: lost in any sum, yet not zero, which means untouched."""
OPERATIONS_A_PUSH = 6
ROUNDING = 2.0**-52
"""Twice the unit roundoff, for the second-order terms and the few operations that turn masses into scores."""
SUM_INFLATION = 1 + 2.0**-20
"""More than the relative error of a sum of 2^32 positive float64 terms (ρ, M, L)."""


class State(NamedTuple):
    """Where the work on one row stands."""

    source: int
    touched: int
    visits: int
    pushes: int


class Bounds(NamedTuple):
    """The norms of R that bound S·R. ``slack``/√d_j covers rounding at j; ``closed``: nothing untouched is in reach."""

    rho: float
    mass: float
    norm: float
    slack: float
    closed: bool


_I8, _F8 = types.int64, types.float64
_STATE = types.BaseTuple.from_types((_I8,) * 4, State)
_BOUNDS = types.BaseTuple.from_types((_F8, _F8, _F8, _F8, types.boolean), Bounds)


@njit([(arcs, WORKSPACE_TYPE, RULE_TYPE, _F8, _STATE) for arcs in ARCS_TYPES], nogil=True, cache=True)
def drain(arcs: Arcs, work: Workspace, rule: Rule, epsilon: float, state: State) -> State:
    """Push, first in first out, until every R_v ≤ ε√d_v or the row's budget is spent."""
    nodes, estimate, queue, touched = work.nodes, work.estimate, work.queue, work.touched
    damping, wrap = 1 - rule.teleport, len(queue) - 1
    known, visits, pushes = state.touched, state.visits, state.pushes
    head, waiting = 0, 0
    for place in range(known):
        node = touched[place]
        if nodes[node].residual > epsilon * nodes[node].degree:
            queue[waiting] = node
            waiting += 1
    while waiting > 0 and visits < rule.edge_budget:
        node = queue[head]
        head = (head + 1) & wrap
        waiting -= 1
        mass, degree = nodes[node].residual, nodes[node].degree
        share = mass / (degree - damping * rule.self_loop)
        nodes[node].residual = SPENT
        estimate[node] += rule.teleport * degree * share
        step = damping * share
        begin, end = arcs.indptr[node], arcs.indptr[node + 1]
        for place in range(begin, end):
            # Unsigned, and without a branch: each of the two halves the time of a visit.
            neighbor = np.uint64(arcs.indices[place])
            before = nodes[neighbor].residual
            after = before + step
            threshold = epsilon * nodes[neighbor].degree
            nodes[neighbor].residual = after
            touched[known] = neighbor
            known += before == 0.0
            queue[(head + waiting) & wrap] = neighbor
            waiting += (before <= threshold) & (after > threshold)
        visits += end - begin
        pushes += 1
    return State(state.source, known, visits, pushes)


@njit([(WORKSPACE_TYPE, RULE_TYPE, _I8)], nogil=True, cache=True)
def _score(work: Workspace, rule: Rule, node: int) -> float:
    """Ŝ of the node and the half of one more push of it."""
    residual, degree = work.nodes[node].residual, work.nodes[node].degree
    half = rule.teleport * degree * residual / (degree - (1 - rule.teleport) * rule.self_loop)
    return float((work.estimate[node] + half) / np.sqrt(degree))


@njit([(TRAITS_TYPE, WORKSPACE_TYPE, RULE_TYPE, _I8, _I8)], nogil=True, cache=True)
def _shared_score(traits: Traits, work: Workspace, rule: Rule, source: int, node: int) -> float:
    """The best score among the node and its twins: their entries of S are equal, but for the source's own."""
    twins = traits.twin_class[node]
    return float(_score(work, rule, node) if twins < 0 or node == source else work.twin_score[twins])


@njit([(WORKSPACE_TYPE, RULE_TYPE, _BOUNDS, _I8)], nogil=True, cache=True)
def _width(work: Workspace, rule: Rule, bounds: Bounds, node: int) -> float:
    """How far S may lie above the node's score, rounding apart."""
    degree, damping = work.nodes[node].degree, 1 - rule.teleport
    root = np.sqrt(degree)
    diagonal = (1 + damping * rule.self_loop / degree) / (1 + damping)
    # The score has walked the self-loop already, so ρ√d comes in by the other neighbours alone.
    others = (degree - rule.self_loop) / (degree - damping * rule.self_loop)
    least = min(bounds.rho * root * others, diagonal * bounds.mass / root, bounds.norm * np.sqrt(diagonal))
    return float(damping * least)


@njit([(TRAITS_TYPE, WORKSPACE_TYPE, RULE_TYPE, _STATE)], nogil=True, cache=True)
def _measure(traits: Traits, work: Workspace, rule: Rule, state: State) -> Bounds:
    """The norms of R; also leaves the best score of every twin class touched in the workspace."""
    rho, mass, square = 0.0, 0.0, 0.0
    closed = True
    for place in range(state.touched):
        node = work.touched[place]
        residual, degree = work.nodes[node].residual, work.nodes[node].degree
        rho = max(rho, residual / degree)
        mass += residual
        square += residual * residual / degree
        # When every node touched has been pushed, every neighbour is touched: the component is whole.
        closed &= work.estimate[node] > 0.0
        twins = traits.twin_class[node]
        if twins >= 0 and node != state.source:
            work.twin_score[twins] = max(work.twin_score[twins], _score(work, rule, node))
    operations = state.visits + OPERATIONS_A_PUSH * state.pushes
    slack = ROUNDING * operations * np.sqrt(work.nodes[state.source].degree)
    return Bounds(rho * SUM_INFLATION, mass * SUM_INFLATION, np.sqrt(square) * SUM_INFLATION, slack, closed)


@njit([(TRAITS_TYPE, WORKSPACE_TYPE, RULE_TYPE, _STATE, _I8[::1], _F8[::1])], nogil=True, cache=True)
def _select(
    traits: Traits, work: Workspace, rule: Rule, state: State, neighbors: Int64Array, scores: Float64Array
) -> int:
    """The K best of the nodes touched, best first, equal ones by row number; the answer is how many there are."""
    count, top_k = 0, len(neighbors)
    for place in range(state.touched):
        node = work.touched[place]
        if count == top_k and traits.twin_class[node] < 0:
            # Most nodes end here: no root, no division, and a push never adds more than the residual.
            most = (work.estimate[node] + work.nodes[node].residual) * SUM_INFLATION
            if most * most < scores[-1] * scores[-1] * work.nodes[node].degree:
                continue
        if node == state.source and not rule.include_self:
            continue
        score = _shared_score(traits, work, rule, state.source, node)
        rank = count
        while rank > 0 and (scores[rank - 1] < score or (scores[rank - 1] == score and neighbors[rank - 1] > node)):
            rank -= 1
        if rank < top_k:
            count = min(count + 1, top_k)
            for behind in range(count - 1, rank, -1):
                neighbors[behind], scores[behind] = neighbors[behind - 1], scores[behind - 1]
            neighbors[rank], scores[rank] = node, score
    return count


@njit([(TRAITS_TYPE, WORKSPACE_TYPE, RULE_TYPE, _BOUNDS)], nogil=True, cache=True)
def _highest_untouched(traits: Traits, work: Workspace, rule: Rule, bounds: Bounds) -> float:
    """The most that S can be at a node that no push has reached: each bound at the degree that is worst for it."""
    if bounds.closed:
        return 0.0
    place = 0
    while place < len(traits.by_degree) and work.nodes[traits.by_degree[place]].residual > 0.0:
        place += 1
    if place == len(traits.by_degree):
        return 0.0
    degree, damping = work.nodes[traits.by_degree[place]].degree, 1 - rule.teleport
    # A node in reach has a neighbour, so its self-loop is at most half of its degree.
    diagonal = (1 + damping * rule.self_loop / 2) / (1 + damping)
    least = min(bounds.rho * np.sqrt(degree), np.sqrt(bounds.rho * diagonal * bounds.mass))
    return float(damping * min(least, bounds.norm * np.sqrt(diagonal)) + bounds.slack)


@njit([(TRAITS_TYPE, _I8, _I8)], nogil=True, cache=True)
def _class(traits: Traits, source: int, node: int) -> int:
    """The node's twin class as seen from the source, which is nobody's twin in its own row."""
    return -1 if node == source else int(traits.twin_class[node])


@njit(
    [(TRAITS_TYPE, WORKSPACE_TYPE, RULE_TYPE, _STATE, _BOUNDS, _I8[::1], _F8[::1], _I8)],
    nogil=True,
    cache=True,
)
def _prove(
    traits: Traits,
    work: Workspace,
    rule: Rule,
    state: State,
    bounds: Bounds,
    neighbors: Int64Array,
    scores: Float64Array,
    count: int,
) -> tuple[float, float]:
    """The row's gap and error; takes the rounding off the ``count`` scores.

    Twins of the last node kept have its very score: those left out need only stay below the other nodes kept. With
    fewer than K nodes kept nothing touched is left out, and what is untouched has a score of zero to beat.
    """
    source, full = state.source, count == len(neighbors)
    last, last_score, split = -1, 0.0, -1
    if full:
        last, last_score = neighbors[-1], scores[-1]
        split = _class(traits, source, last)
    error, lowest, lowest_other = 0.0, np.inf, np.inf
    for rank in range(count):
        node = neighbors[rank]
        slack = bounds.slack / np.sqrt(work.nodes[node].degree)
        error = max(error, _width(work, rule, bounds, node) + 2 * slack)
        scores[rank] = max(scores[rank] - slack, 0.0)
        lowest = min(lowest, scores[rank])
        if split < 0 or _class(traits, source, node) != split:
            lowest_other = min(lowest_other, scores[rank])
    highest, highest_twin = _highest_untouched(traits, work, rule, bounds), -np.inf
    if not full:
        return highest, error
    for place in range(state.touched):
        node = work.touched[place]
        residual, degree = work.nodes[node].residual, work.nodes[node].degree
        reach = (1 - rule.teleport) * bounds.rho * degree + bounds.slack
        most = (work.estimate[node] + residual + reach) * SUM_INFLATION
        if most * most <= highest * highest * degree or (node == source and not rule.include_self):
            continue
        shared = _shared_score(traits, work, rule, source, node)
        if shared > last_score or (shared == last_score and node <= last):
            continue
        upper = _score(work, rule, node) + _width(work, rule, bounds, node) + bounds.slack / np.sqrt(degree)
        if split >= 0 and _class(traits, source, node) == split:
            highest_twin = max(highest_twin, upper)
        else:
            highest = max(highest, upper)
    return max(highest - lowest, highest_twin - lowest_other), error


@njit([(RULE_TYPE, _I8, _I8, ROWS_TYPE)], nogil=True, cache=True)
def _isolated(rule: Rule, source: int, row: int, rows: Rows) -> None:
    """The row of a node without neighbours: S_ii is 1 with a self-loop and t without, and no other node is in reach."""
    rows.exact[row] = True
    if rule.include_self:
        rows.neighbors[row, 0] = source
        rows.scores[row, 0] = 1.0 if rule.self_loop > 0 else rule.teleport
        rows.counts[row] = 1
        rows.gap[row] = -rows.scores[row, 0] if rows.scores.shape[1] == 1 else 0.0


@njit([(TRAITS_TYPE, WORKSPACE_TYPE, _I8)], nogil=True, cache=True)
def _clean(traits: Traits, work: Workspace, touched: int) -> None:
    """Leave the workspace as it was found, at the cost of the nodes touched."""
    for place in range(touched):
        node = work.touched[place]
        work.nodes[node].residual = 0.0
        work.estimate[node] = 0.0
        if traits.twin_class[node] >= 0:
            work.twin_score[traits.twin_class[node]] = 0.0


@njit([(arcs, TRAITS_TYPE, WORKSPACE_TYPE, RULE_TYPE, _I8, ROWS_TYPE) for arcs in ARCS_TYPES], nogil=True, cache=True)
def push_rows(arcs: Arcs, traits: Traits, work: Workspace, rule: Rule, first: int, rows: Rows) -> None:
    """Fill ``rows`` with the rows of S from node ``first`` on.

    A row starts at ``rule.epsilon``. While its set is not proved it goes on with the same state at a third of that,
    down to the floor or until its budget of edge visits is spent. The same arguments give the same bits.
    """
    for row in range(len(rows.counts)):
        source = first + row
        if arcs.indptr[source] == arcs.indptr[source + 1]:
            _isolated(rule, source, row, rows)
            continue
        work.nodes[source].residual = np.sqrt(work.nodes[source].degree)
        work.touched[0] = source
        state, epsilon = State(source, 1, 0, 0), rule.epsilon
        neighbors, scores = rows.neighbors[row], rows.scores[row]
        while True:
            state = drain(arcs, work, rule, epsilon, state)
            bounds = _measure(traits, work, rule, state)
            count = _select(traits, work, rule, state, neighbors, scores)
            gap, error = _prove(traits, work, rule, state, bounds, neighbors, scores, count)
            epsilon /= REFINEMENT
            if gap <= 0 or epsilon < rule.epsilon_floor or state.visits >= rule.edge_budget:
                break
        rows.counts[row], rows.exact[row], rows.visits[row] = count, gap <= 0, state.visits
        rows.gap[row], rows.error[row] = gap, error
        _clean(traits, work, state.touched)
