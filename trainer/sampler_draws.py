"""Which arcs of a row are sampled: uniformly or by weight, without or with replacement.

The kernels work on places in the CSR and leave ``indices`` alone: what is drawn depends on no random read, so the
reads that follow overlap. A row costs what is drawn from it, by weight also a pass over its weights.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from numba import njit, types

from preprocessing.array_types import Float32Array, Int64Array
from preprocessing.splitmix import State, below, uniform

__all__ = ["draw", "measure"]

_INT64S = types.Array(types.int64, 1, "C", readonly=True)
_WEIGHTS = types.Array(types.float32, 1, "C", readonly=True)
_STATE, _OUT = types.uint64[::1], types.int64[::1]


@njit([types.boolean(types.int64, types.int64, types.boolean)], nogil=True, cache=True)
def _whole(degree: int, width: int, replace: bool) -> bool:
    return width < 0 or degree == 0 or (degree <= width and not replace)


@njit([types.void(types.int64, types.int64, _OUT, types.int64, types.int64, _STATE)], nogil=True, cache=True)
def _distinct(begin: int, degree: int, arcs: Int64Array, first: int, end: int, state: State) -> None:
    """A uniform subset by Floyd's algorithm (Bentley and Floyd, 1987).

    It draws once a pick and looks through the earlier picks of the row: fan-outs are tens, and a hub costs no more than
    any other node.
    """
    for place in range(first, end):
        last = degree - (end - place)
        arc = begin + below(state, last + 1)
        for earlier in range(first, place):
            if arcs[earlier] == arc:
                arc = begin + last
                break
        arcs[place] = arc


_ROW_BY_WEIGHT = types.void(
    types.int64, types.int64, _WEIGHTS, _OUT, types.int64, types.int64, types.float64[::1], _STATE
)


@njit([_ROW_BY_WEIGHT], nogil=True, cache=True)
def _by_weight(
    begin: int,
    degree: int,
    weights: Float32Array,
    arcs: Int64Array,
    first: int,
    end: int,
    targets: npt.NDArray[np.float64],
    state: State,
) -> None:
    """With replacement: points on the row's total weight, in one walk along it."""
    total = 0.0
    for arc in range(begin, begin + degree):
        total += weights[arc]
    for place in range(len(targets)):
        targets[place] = uniform(state) * total
    targets.sort()
    arc = begin
    reached = float(weights[arc])
    for place in range(first, end):
        while reached <= targets[place - first] and arc < begin + degree - 1:
            arc += 1
            reached += weights[arc]
        arcs[place] = arc


@njit([_ROW_BY_WEIGHT], nogil=True, cache=True, error_model="numpy")
def _distinct_by_weight(
    begin: int,
    degree: int,
    weights: Float32Array,
    arcs: Int64Array,
    first: int,
    end: int,
    times: npt.NDArray[np.float64],
    state: State,
) -> None:
    """Without replacement: the arcs whose exponential clocks, their weights the rates, ring first.

    A reservoir with exponential jumps (Efraimidis and Spirakis, 2006): the weight up to the next arc that enters is
    itself exponential, so the arcs between cost an addition each and no random number.
    """
    width = end - first
    for place in range(width):
        arcs[first + place] = begin + place
        times[place] = -math.log1p(-uniform(state)) / weights[begin + place]
    latest = np.argmax(times)
    jump = -math.log1p(-uniform(state)) / times[latest]
    for arc in range(begin + width, begin + degree):
        weight = float(weights[arc])
        jump -= weight
        if jump < 0:
            # The clock's time, given that it is before the latest.
            times[latest] = -math.log1p(uniform(state) * math.expm1(-weight * times[latest])) / weight
            arcs[first + latest] = arc
            latest = np.argmax(times)
            jump = -math.log1p(-uniform(state)) / times[latest]


@njit([types.int64(_INT64S, _INT64S, types.int64, types.boolean, _OUT, _OUT, _OUT)], nogil=True, cache=True)
def measure(
    indptr: Int64Array,
    frontier: Int64Array,
    width: int,
    replace: bool,
    begins: Int64Array,
    degrees: Int64Array,
    ends: Int64Array,
) -> int:
    """Where the row of every frontier node begins, its degree, and where its arcs end among all drawn; their number."""
    total = 0
    for row in range(len(frontier)):
        begins[row] = indptr[frontier[row]]
        degrees[row] = indptr[frontier[row] + 1] - begins[row]
        if _whole(degrees[row], width, replace):
            total += degrees[row]
        else:
            total += width
        ends[row] = total
    return total


@njit(
    [types.void(_INT64S, _INT64S, _INT64S, types.int64, types.boolean, _WEIGHTS, _OUT, _STATE)], nogil=True, cache=True
)
def draw(
    begins: Int64Array,
    degrees: Int64Array,
    ends: Int64Array,
    width: int,
    replace: bool,
    weights: Float32Array,
    arcs: Int64Array,
    state: State,
) -> None:
    """Fill ``arcs`` with the places drawn, row by row; no weights, no difference between them."""
    scratch = np.empty(max(width, 0) if len(weights) > 0 else 0)
    end = 0
    for row in range(len(begins)):
        first, end = end, ends[row]
        begin, degree = begins[row], degrees[row]
        if _whole(degree, width, replace):
            for place in range(degree):
                arcs[first + place] = begin + place
        elif len(weights) == 0:
            if replace:
                for place in range(first, end):
                    arcs[place] = begin + below(state, degree)
                arcs[first:end].sort()
            else:
                _distinct(begin, degree, arcs, first, end, state)
        elif replace:
            _by_weight(begin, degree, weights, arcs, first, end, scratch, state)
        else:
            _distinct_by_weight(begin, degree, weights, arcs, first, end, scratch, state)
