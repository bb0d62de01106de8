"""Rows of S by forward push, each with a proof of its top-K set or the gap that is left.

S = Σ t(1−t)^k T^k with T = D^{-1/2} A D^{-1/2}. Row i of S is Ŝ + S·R throughout: R starts as the unit vector of i, and
a push of node v moves tR_v into Ŝ_v and (1−t)T·R_v back into R (Andersen et al., 2006, in the symmetric basis).
The kernels keep both times √degree, as *mass*: then a push adds one constant times its weight to every neighbour, the
masses of Ŝ and R always sum to √d_i, and R_v ≤ ε√d_v reads mass ≤ ε·d_v. A self-loop is never walked: the repeated
pushes of v that it asks for are a geometric series, summed in one.

A capped hub passes mass to the neighbours it keeps. The rest is *lost*: not walked on, but it counts in the residual
that bounds the row's error, so such a row claims less and nothing false.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit, types

from preprocessing.local_ids import FIRST_BITS, GOLDEN, bits_for, claim, forget, rehash
from preprocessing.proof import SPENT, STATE_TYPE, State, measure, prove
from preprocessing.workspace import (
    ARCS_TYPES,
    FLOAT32S,
    ROWS_TYPE,
    RULE_TYPE,
    SOURCES,
    WORKSPACE_TYPE,
    Arcs,
    Rows,
    Rule,
    Workspace,
)

__all__ = ["DONE", "NO_PATIENCE", "NO_ROOM", "drain", "isolated_row", "push_row", "push_rows", "start"]

REFINEMENT = 3.0
DONE, NO_ROOM, NO_PATIENCE = 0, 1, 2


_I8, _F8 = types.int64, types.float64


@njit([(arcs, WORKSPACE_TYPE, _I8) for arcs in ARCS_TYPES], nogil=True, cache=True)
def start(arcs: Arcs, work: Workspace, source: int) -> State:
    """The state of a row that nothing has been done for, in a clean workspace."""
    claim(work, FIRST_BITS, 0, source)
    work.records[0].degree = arcs.degree[source]
    work.records[0].residual = np.sqrt(arcs.degree[source])
    work.records[0].estimate = 0.0
    work.shared[0] = 0.0
    return State(source, 1, FIRST_BITS, 0, 0, 0.0, 0.0, False)


@njit([types.float64(FLOAT32S, _I8, _I8)], nogil=True, cache=True)
def _sum(values: npt.NDArray[np.float32], begin: int, end: int) -> float:
    """The sum in float64."""
    total = 0.0
    for place in range(begin, end):
        total += values[place]
    return total


@njit([(arcs, WORKSPACE_TYPE, RULE_TYPE, _F8, STATE_TYPE) for arcs in ARCS_TYPES], nogil=True, cache=True)
def drain(arcs: Arcs, work: Workspace, rule: Rule, epsilon: float, state: State) -> State:
    """Push, first in first out, until every R_v ≤ ε√d_v, the row's budget is spent, or the workspace is full."""
    records, queue, entries = work.records, work.queue, work.entries
    damping, wrap = 1 - rule.teleport, len(queue) - 1
    cap = len(arcs.kept_indices) // max(len(arcs.hubs), 1)
    known, visits, pushes, full = state.touched, state.visits, state.pushes, False
    lost, lost_rho, bits = state.lost, state.lost_rho, state.bits
    multiplier = np.uint64(1) if work.dense else GOLDEN
    shift, mask = np.uint64(0 if work.dense else 64 - bits), np.uint64((1 << bits) - 1)
    head, tail = 0, 0
    for record in range(known):
        if records[record].residual > epsilon * records[record].degree:
            queue[tail] = record
            tail += 1
    while head < tail and visits < rule.edge_budget:
        record = queue[head & wrap]
        node = records[record].node
        indices, weights, begin, end = arcs.indices, arcs.weights, arcs.indptr[node], arcs.indptr[node + 1]
        capped = 0 < cap < end - begin
        if capped:
            begin = np.searchsorted(arcs.hubs, node) * cap
            indices, weights, end = arcs.kept_indices, arcs.kept_weights, begin + cap
        most = min(known + end - begin, len(arcs.degree))
        if most > len(records):
            full = True
            break
        new_bits = bits_for(work, bits, most)
        if new_bits > bits:
            rehash(work, bits, new_bits, known)
            bits = new_bits
            shift, mask = np.uint64(64 - bits), np.uint64((1 << bits) - 1)
        head += 1
        mass, degree = records[record].residual, records[record].degree
        share = mass / (degree - damping * rule.self_loop)
        records[record].residual = SPENT
        records[record].estimate += rule.teleport * degree * share
        step = damping * share
        for place in range(begin, end):
            neighbor = np.int64(indices[place])
            entry = np.uint64(neighbor) * multiplier >> shift
            to = int(entries[entry])
            while to >= 0 and records[to].node != neighbor:
                entry = (entry + np.uint64(1)) & mask
                to = int(entries[entry])
            if to < 0:
                to = known
                known += 1
                entries[entry] = to
                records[to].node = neighbor
                records[to].degree = arcs.degree[neighbor]
                records[to].residual = 0.0
                records[to].estimate = 0.0
                work.shared[to] = 0.0
            before = records[to].residual
            after = before + step * weights[place & arcs.weight_mask]
            threshold = epsilon * records[to].degree
            records[to].residual = after
            # Written first and counted afterwards, without a branch that would be mispredicted.
            queue[tail & wrap] = to
            tail += (before <= threshold) & (after > threshold)
        if capped:
            lost += step * (degree - rule.self_loop - _sum(weights, begin, end))
            lost_rho += step
        visits += end - begin
        pushes += 1
    return State(state.source, known, bits, visits, pushes, lost, lost_rho, full)


@njit([(arcs, WORKSPACE_TYPE, RULE_TYPE, _I8, ROWS_TYPE, _I8) for arcs in ARCS_TYPES], nogil=True, cache=True)
def push_row(arcs: Arcs, work: Workspace, rule: Rule, source: int, rows: Rows, row: int) -> tuple[int, State]:
    """Push the row of a node that has neighbours; leaves the workspace as the last push did.

    A row starts at ``rule.epsilon``. While its set is neither proved nor tied it goes on with the same state at a third
    of that, down to the floor or until its budget of edge visits is spent (``DONE``); ``NO_PATIENCE`` when the next
    third would take more visits than ``rule.patience``, ``NO_ROOM`` when the workspace has to grow first.
    """
    state, epsilon = start(arcs, work, source), rule.epsilon
    while True:
        state = drain(arcs, work, rule, epsilon, state)
        if state.full:
            return NO_ROOM, state
        bounds = measure(arcs, work, rule, state)
        prove(arcs, work, rule, state, bounds, rows, row)
        rows.visits[row] = state.visits
        spent = state.visits >= rule.edge_budget
        rows.capped[row] = state.lost > 0 or (spent and not rows.exact[row])
        epsilon /= REFINEMENT
        # What capped hubs kept back bounds the row by now: pushing on would buy little.
        stuck = 2 * state.lost > bounds.mass
        if rows.exact[row] or rows.tied[row] or spent or stuck or epsilon < rule.epsilon_floor:
            return DONE, state
        if REFINEMENT * state.visits > rule.patience:
            return NO_PATIENCE, state


@njit([(RULE_TYPE, _I8, ROWS_TYPE, _I8)], nogil=True, cache=True)
def isolated_row(rule: Rule, source: int, rows: Rows, row: int) -> None:
    """The row of a node without neighbours: S_ii is 1 with a self-loop and t without, and no other node is in reach."""
    rows.exact[row] = True
    if rule.include_self:
        rows.neighbors[row, 0] = source
        rows.scores[row, 0] = 1.0 if rule.self_loop > 0 else rule.teleport
        rows.counts[row] = 1
        rows.gap[row] = -rows.scores[row, 0] if rows.scores.shape[1] == 1 else 0.0


@njit([(arcs, WORKSPACE_TYPE, RULE_TYPE, SOURCES, ROWS_TYPE, _I8) for arcs in ARCS_TYPES], nogil=True, cache=True)
def push_rows(arcs: Arcs, work: Workspace, rule: Rule, sources: npt.NDArray[np.int64], rows: Rows, done: int) -> int:
    """Fill ``rows``, those of ``sources``, from the ``done``-th on; returns how many are done.

    Fewer than all are done when the workspace has no room for the next. The same arguments give the same bits,
    whatever the size of the workspace.
    """
    for row in range(done, len(sources)):
        source = sources[row]
        if arcs.indptr[source] == arcs.indptr[source + 1]:
            isolated_row(rule, source, rows, row)
            continue
        status, state = push_row(arcs, work, rule, source, rows, row)
        forget(work, state.bits, state.touched)
        if status == NO_ROOM:
            return row
    return len(sources)
