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

from preprocessing.cache_hints import prefetch
from preprocessing.local_ids import GOLDEN, bits_for, forget, rehash, touch
from preprocessing.proof import SPENT, STATE_TYPE, SUM_INFLATION, State, prove
from preprocessing.workspace import (
    ARCS_TYPES,
    FIRST_BITS,
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
AHEAD, LINE = 3, 16
"""How many pushes ahead a row of neighbours is fetched, and how many of its entries lie in a cache line at least."""

_I8, _F8 = types.int64, types.float64


@njit([(arcs, WORKSPACE_TYPE, _I8) for arcs in ARCS_TYPES], nogil=True, cache=True)
def start(arcs: Arcs, work: Workspace, source: int) -> State:
    """The state of a row that nothing has been done for, in a clean workspace."""
    record = touch(arcs, work, FIRST_BITS, 0, source)
    work.records[record].residual = np.sqrt(arcs.degree[source])
    return State(source, 1, FIRST_BITS, 0, 0, 0.0, 0.0, False)


@njit([types.float64(FLOAT32S, _I8, _I8, _I8)], nogil=True, cache=True)
def _sum(weights: npt.NDArray[np.float32], mask: int, begin: int, end: int) -> float:
    """The weight of a range of arcs, in float64."""
    total = 0.0
    for place in range(begin, end):
        total += weights[place & mask]
    return total


@njit([(arcs, WORKSPACE_TYPE, RULE_TYPE, _F8, STATE_TYPE) for arcs in ARCS_TYPES], nogil=True, cache=True)
def drain(arcs: Arcs, work: Workspace, rule: Rule, epsilon: float, state: State) -> State:
    """Push, first in first out, until every R_v ≤ ε√d_v, the row's budget is spent, or the workspace is full."""
    indptr, indices, weights, weight_mask = arcs.indptr, arcs.indices, arcs.weights, arcs.weight_mask
    records, nodes, touched, queue, entries = work.records, work.nodes, work.touched, work.queue, work.entries
    dense, damping, wrap = work.dense, 1 - rule.teleport, np.uint64(len(queue) - 1)
    known, visits, pushes, full = state.touched, state.visits, state.pushes, False
    lost, lost_rho, bits = state.lost, state.lost_rho, state.bits
    shift, mask = np.uint64(64 - bits), np.uint64((1 << bits) - 1)
    head, tail = 0, 0
    for place in range(known):
        record = touched[place]
        if records[record].residual > epsilon * records[record].degree:
            queue[tail] = record
            tail += 1
    while head < tail and visits < rule.edge_budget:
        # Rows of neighbours lie anywhere: their first lines are fetched while others are pushed. Past the tail of the
        # queue stand old records, which do no harm.
        soon, later = queue[np.uint64(head + AHEAD) & wrap], queue[np.uint64(head + 2 * AHEAD) & wrap]
        prefetch(indptr, int(later if dense else nodes[later]))
        coming = indptr[soon if dense else nodes[soon]]
        prefetch(indices, coming)
        prefetch(indices, coming + LINE)
        record = queue[np.uint64(head) & wrap]
        node = int(record if dense else nodes[record])
        begin, end = indptr[node], indptr[node + 1]
        stop = end if end - begin <= rule.hub_cap else begin + rule.hub_cap
        if not dense:
            most = min(known + stop - begin, len(arcs.degree))
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
        for place in range(begin, stop):
            neighbor = np.uint64(indices[place])
            to = neighbor
            if not dense:
                entry = neighbor * GOLDEN >> shift
                while entries[entry] >= 0 and np.uint64(nodes[entries[entry]]) != neighbor:
                    entry = (entry + np.uint64(1)) & mask
                if entries[entry] < 0:
                    entries[entry] = known
                    nodes[known] = neighbor
                    records[known].degree = arcs.degree[neighbor]
                    records[known].leader = arcs.twin_leader[neighbor]
                    records[known].estimate = 0.0
                    records[known].residual = 0.0
                to = np.uint64(entries[entry])
            before = records[to].residual
            after = before + step * weights[place & weight_mask]
            threshold = epsilon * records[to].degree
            records[to].residual = after
            # Written first and counted afterwards, without branches that would be mispredicted.
            queue[np.uint64(tail) & wrap] = to
            tail += (before <= threshold) & (after > threshold)
            touched[np.uint64(known)] = to
            known += before == 0.0
        if stop < end:
            lost += step * (degree - rule.self_loop - _sum(weights, weight_mask, begin, stop))
            lost_rho += step
        visits += stop - begin
        pushes += 1
    return State(state.source, known, bits, visits, pushes, lost, lost_rho, full)


@njit([(arcs, WORKSPACE_TYPE, RULE_TYPE, _I8, ROWS_TYPE, _I8) for arcs in ARCS_TYPES], nogil=True, cache=True)
def push_row(arcs: Arcs, work: Workspace, rule: Rule, source: int, rows: Rows, row: int) -> tuple[int, State]:
    """Push the row of a node that has neighbours; leaves the workspace as the last push did.

    A row starts at ``rule.epsilon``. While its set is neither proved nor tied it goes on with the same state at a third
    of that, down to the floor or until its budget of edge visits is spent (``DONE``); ``NO_PATIENCE`` when the next
    third would take more visits than ``rule.patience``, ``NO_ROOM`` when the workspace has to grow first.

    The widths that a proof has to beat shrink no faster than ε: where the last proof failed by far, the next is tried
    when it can succeed, but at 1/27 at the latest.
    """
    state, epsilon, promising = start(arcs, work, source), rule.epsilon, rule.epsilon
    while True:
        state = drain(arcs, work, rule, epsilon, state)
        if state.full:
            return NO_ROOM, state
        spent = state.visits >= rule.edge_budget
        last = spent or epsilon / REFINEMENT < rule.epsilon_floor
        impatient = REFINEMENT * state.visits > rule.patience
        if last or impatient or epsilon <= promising:
            mass, shrink = prove(arcs, work, rule, state, None, rows, row, last)
            rows.visits[row] = state.visits
            rows.capped[row] = state.lost > 0 or (spent and not rows.exact[row])
            # What capped hubs kept back bounds the row by now: pushing on would buy little.
            stuck = 2 * state.lost > mass
            if rows.exact[row] or rows.tied[row] or last or stuck:
                return DONE, state
            promising = epsilon * max(shrink, REFINEMENT**-3) * SUM_INFLATION
        if impatient:
            return NO_PATIENCE, state
        epsilon /= REFINEMENT


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
