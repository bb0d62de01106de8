"""Rows of S by forward push, each with a proof of its top-K set or the gap that is left.

S = Σ t(1−t)^k T^k with T = D^{-1/2} A D^{-1/2}. Row i of S is Ŝ + S·R throughout: R starts as the unit vector of i, and
a push of node v moves tR_v into Ŝ_v and (1−t)T·R_v back into R (Andersen et al., 2006, in the symmetric basis).
The kernels keep both times √degree, as *mass*: then a push adds one constant times its weight to every neighbour, the
masses of Ŝ and R always sum to √d_i, and R_v ≤ ε√d_v reads mass ≤ ε·d_v. A self-loop is never walked: the repeated
pushes of v that it asks for are a geometric series, summed in one.

A hub passes mass to the neighbours for which it matters. The rest is *held back*: not walked on, but it counts in the
residual that bounds the row's error, so such a row claims less and nothing false. Under a smaller ε more matter, unless
the hub is capped.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from preprocessing.array_types import Float32Array, Int64Array
from preprocessing.cache_hints import prefetch
from preprocessing.local_ids import GOLDEN, bits_for, forget, node_of, rehash, touch
from preprocessing.proof import ROUNDING, SPENT, STATE_TYPE, SUM_INFLATION, State, prove
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
REACH, CHUNK = 0.1, 16
"""Of the density ε what a hub passes on has to be, and how many neighbours it reaches at a time."""
AHEAD, LINE = 3, 16
"""How many pushes ahead a row of neighbours is fetched, and how many of its entries lie in a cache line at least."""

_I8, _F8 = types.int64, types.float64


@njit([(arcs, WORKSPACE_TYPE, _I8) for arcs in ARCS_TYPES], nogil=True, cache=True)
def start(arcs: Arcs, work: Workspace, source: int) -> State:
    """The state of a row that nothing has been done for, in a clean workspace."""
    record = touch(arcs, work, FIRST_BITS, 0, source)
    work.records[record].residual = np.sqrt(arcs.degree[source])
    return State(source, 1, FIRST_BITS, 0, 0, 0, 0.0, 0.0, 0.0, False)


@njit([types.float64(FLOAT32S, _I8, _I8, _I8)], nogil=True, cache=True)
def _sum(weights: Float32Array, mask: int, begin: int, end: int) -> float:
    """The weight of a range of arcs, in float64."""
    total = 0.0
    for place in range(begin, end):
        total += weights[place & mask]
    return total


@njit([_F8(RULE_TYPE, _F8, _F8)], nogil=True, cache=True)
def _passed_on(rule: Rule, estimate: float, degree: float) -> float:
    """What the pushes of a node have had for a neighbour of weight one so far: they settle in proportion."""
    return float((1 - rule.teleport) / rule.teleport * estimate / degree)


@njit([types.UniTuple(_F8, 3)(arcs, WORKSPACE_TYPE, RULE_TYPE, _I8) for arcs in ARCS_TYPES], nogil=True, cache=True)
def _held_back(arcs: Arcs, work: Workspace, rule: Rule, hubs: int) -> tuple[float, float, float]:
    """The mass that the hubs pushed have for neighbours not reached, a bound of its ρ, and what no ε will pass on."""
    held, held_rho, capped = 0.0, 0.0, 0.0
    for number in range(hubs):
        record = work.hubs[number]
        node = node_of(work, record)
        begin, end, reached = arcs.indptr[node], arcs.indptr[node + 1], work.reached[record]
        place = begin + reached
        if place < end:
            degree = work.records[record].degree
            amount = _passed_on(rule, work.records[record].estimate, degree)
            walked = _sum(arcs.weights, arcs.weight_mask, begin, place)
            # Two sums of all weights lie between them and what is left, which is never nothing.
            mass = amount * (degree * (1 + ROUNDING * (end - begin)) - rule.self_loop - walked)
            held += mass
            # Arcs stand by descending w/d.
            held_rho += amount * arcs.weights[place & arcs.weight_mask] / arcs.degree[arcs.indices[place]]
            capped += mass if reached >= rule.hub_cap else 0.0
    return held, held_rho, capped


@njit([(arcs, WORKSPACE_TYPE, RULE_TYPE, _F8, STATE_TYPE) for arcs in ARCS_TYPES], nogil=True, cache=True)
def drain(arcs: Arcs, work: Workspace, rule: Rule, epsilon: float, state: State) -> State:
    """Push, first in first out, until every R_v ≤ ε√d_v, hubs have reached what matters at ε, or room or budget ends.

    A hub is pushed when R_v√d_v > ε·``hub_degree``. It reaches a neighbour j, with all that it has had for it until
    then, when that is more than ``REACH``·ε·d_j.
    """
    indptr, indices, weights, weight_mask = arcs.indptr, arcs.indices, arcs.weights, arcs.weight_mask
    records, nodes, touched, queue, entries = work.records, work.nodes, work.touched, work.queue, work.entries
    dense, damping, wrap = work.dense, 1 - rule.teleport, np.uint64(len(queue) - 1)
    known, visits, pushes, full, hubs = state.touched, state.visits, state.pushes, False, state.hubs
    bits, hub_degree, least_reach = state.bits, arcs.hub_degree, REACH * epsilon
    shift, mask = np.uint64(64 - bits), np.uint64((1 << bits) - 1)
    head, tail = 0, 0
    for place in range(known):
        record = touched[place]
        if records[record].residual > epsilon * min(records[record].degree, hub_degree):
            queue[tail] = record
            tail += 1
    for place in range(hubs):
        # At a smaller ε a hub reaches further, even if it has little to add.
        record = work.hubs[place]
        if records[record].residual <= epsilon * min(records[record].degree, hub_degree):
            queue[tail] = record
            tail += 1
    while head < tail and visits < rule.edge_budget and not full:
        # Rows of neighbours lie anywhere: their first lines are fetched while others are pushed. Past the tail of the
        # queue stand old records, which do no harm.
        soon, later = queue[np.uint64(head + AHEAD) & wrap], queue[np.uint64(head + 2 * AHEAD) & wrap]
        prefetch(indptr, int(later if dense else nodes[later]))
        coming = indptr[soon if dense else nodes[soon]]
        prefetch(indices, coming)
        prefetch(indices, coming + LINE)
        record = queue[np.uint64(head) & wrap]
        head += 1
        node = int(record if dense else nodes[record])
        begin, stop = indptr[node], indptr[node + 1]
        mass, degree = records[record].residual, records[record].degree
        share = mass / (degree - damping * rule.self_loop)
        is_hub, fresh = stop - begin > rule.hub_arcs, records[record].estimate == 0.0
        records[record].residual = SPENT
        records[record].estimate += rule.teleport * degree * share
        amount, place, until = damping * share, begin, stop
        if is_hub:
            stop = begin + min(stop - begin, rule.hub_cap)
            until = begin + work.reached[record]
            if fresh:
                work.hubs[hubs] = record
                hubs += 1
        while True:
            if not dense:
                most = min(known + until - place, len(arcs.degree))
                if most > len(records):
                    full = True
                    break
                new_bits = bits_for(work, bits, most)
                if new_bits > bits:
                    rehash(work, bits, new_bits, known)
                    bits = new_bits
                    shift, mask = np.uint64(64 - bits), np.uint64((1 << bits) - 1)
            visits += until - place
            for arc in range(place, until):
                neighbor = np.uint64(indices[arc])
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
                after = before + amount * weights[arc & weight_mask]
                threshold = epsilon * min(records[to].degree, hub_degree)
                records[to].residual = after
                # Written first and counted afterwards, without branches that would be mispredicted.
                queue[np.uint64(tail) & wrap] = to
                tail += (before <= threshold) & (after > threshold)
                touched[np.uint64(known)] = to
                known += before == 0.0
            place = until
            if place == stop:
                break
            amount = _passed_on(rule, records[record].estimate, degree)
            if amount * weights[place & weight_mask] <= least_reach * arcs.degree[indices[place]]:
                break
            until = min(place + CHUNK, stop)
        if is_hub:
            work.reached[record] = place - begin
        pushes += 1
    held, held_rho, capped = _held_back(arcs, work, rule, hubs)
    return State(state.source, known, bits, visits, pushes, hubs, held, held_rho, capped, full)


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
            rows.capped[row] = state.capped > 0 or (spent and not rows.exact[row])
            # What capped hubs kept back bounds the row by now: pushing on would buy little.
            stuck = 2 * state.capped > mass
            if stuck and not last:
                prove(arcs, work, rule, state, None, rows, row, True)
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
def push_rows(arcs: Arcs, work: Workspace, rule: Rule, sources: Int64Array, rows: Rows, done: int) -> int:
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
        forget(work, state.bits, state.touched, state.hubs)
        if status == NO_ROOM:
            return row
    return len(sources)
