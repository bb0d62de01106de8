"""Pairs of nodes that no edge connects, drawn without ever holding all of them.

A pair is unordered and kept as its key, lesser node · N + greater node. ``random_pairs`` draws among all unconnected
pairs, ``hard_pairs`` among those within three hops; either way each such pair is as likely as any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba import njit, types

from preprocessing.array_file import read_only
from preprocessing.array_types import Int64Array, IntArray
from preprocessing.bundle import Topology
from preprocessing.splitmix import below, uniform

__all__ = ["hard_pairs", "random_pairs"]

SURPLUS = 1.2
"""How many more draws than expected are made, so that another round is rare."""
GROWTH = 16
"""How many times the tries so far a round may add: few finds say little of the rate."""
SOURCE_CHUNKS = 64
"""Fixed, and a generator each: what is drawn does not depend on the number of threads."""


def random_pairs(num_nodes: int, edges_E: Int64Array, count: int, rng: np.random.Generator) -> Int64Array:
    """``count`` distinct pairs in random order, or all there are; ``edges_E`` are the keys of the edges, ascending."""
    possible = num_nodes * (num_nodes - 1) // 2 - len(edges_E)
    if 2 * count >= possible:
        rows = [np.arange(node * num_nodes + node + 1, (node + 1) * num_nodes) for node in range(num_nodes)]
        return rng.permutation(_without(np.concatenate(rows), edges_E))[:count]
    pairs = np.empty(0, dtype=np.int64)
    while len(pairs) < count:
        # Half of the ordered pairs have the greater node first and are left to their mirror image.
        tries = math.ceil(SURPLUS * (count - len(pairs)) * num_nodes**2 / possible)
        a, b = rng.integers(num_nodes, size=(2, min(tries, 4 * count + 64)))
        pairs = np.union1d(pairs, _without(np.unique((a * num_nodes + b)[a < b]), edges_E))
    return rng.permutation(pairs)[:count]


def hard_pairs(
    graph: Topology, count: int, rng: np.random.Generator, threads: int, progress: Callable[[int, int], None]
) -> Int64Array:
    """``count`` distinct pairs two or three hops apart, in random order, or all there are.

    Every node tries the same number of partners, drawn from all nodes, and keeps those at two or three hops: a pair is
    found by either of its nodes with one probability for all pairs. Where a third hop is smaller than the tries would
    cost it is walked, and the finds are drawn from it in the number that the tries would have had. Once a node tries as
    many partners as there are nodes, pairs are so few that all of them are listed. A node costs its two hops and the
    lesser of the two; in memory are the pairs found and N bytes a thread.
    """
    nodes = graph.num_nodes
    pairs, tried, tries = np.empty(0, dtype=np.int64), 0, 1
    while len(pairs) < count and tried < nodes:
        pairs = np.union1d(pairs, _hard_round(graph, tries, rng, threads, progress))
        tried += tries
        wanted = math.ceil(SURPLUS * (count - len(pairs)) * tried / max(1, len(pairs)))
        tries = max(1, min(wanted, GROWTH * tried))
        if tried + tries >= nodes:
            tries = nodes
    return rng.permutation(pairs)[:count]


def _without(keys: Int64Array, edges_E: Int64Array) -> Int64Array:
    """Those of the ascending ``keys`` that are no edges."""
    place = np.searchsorted(edges_E, keys)
    unconnected: Int64Array = keys[edges_E[np.minimum(place, len(edges_E) - 1)] != keys]
    return unconnected


def _hard_round(
    graph: Topology, tries: int, rng: np.random.Generator, threads: int, progress: Callable[[int, int], None]
) -> Int64Array:
    """The keys that all nodes find with so many tries each, repeats among them."""
    indptr, indices = read_only(graph.indptr), read_only(graph.indices)
    bounds = np.linspace(0, graph.num_nodes, min(SOURCE_CHUNKS, graph.num_nodes) + 1).astype(np.int64)
    seeds = rng.integers(2**63, size=len(bounds) - 1, dtype=np.uint64)
    found = []
    with ThreadPoolExecutor(threads) as pool:
        work = pool.map(lambda *part: _hard_of(indptr, indices, *part, tries), bounds[:-1], bounds[1:], seeds)
        for number, keys in enumerate(work):
            found.append(keys)
            progress(int(bounds[number + 1]), graph.num_nodes)
    return np.concatenate(found)


_I8, _U8 = types.int64, types.uint64
_INDPTR = types.Array(_I8, 1, "C", readonly=True)
_INDICES = [types.Array(number, 1, "C", readonly=True) for number in (types.int32, types.int64)]


@njit([_I8(_INDPTR, indices, types.int8[::1], _I8[::1], _I8, _I8, _I8) for indices in _INDICES], nogil=True, cache=True)
def _expand(
    indptr: Int64Array, indices: IntArray, hops: IntArray, ball: Int64Array, first: int, end: int, hop: int
) -> int:
    """Add to ``ball`` what its places ``first`` to ``end`` reach and it has not, marked ``hop``; its size after."""
    size = end
    for place in range(first, end):
        node = ball[place]
        for arc in range(indptr[node], indptr[node + 1]):
            neighbor = indices[arc]
            if hops[neighbor] == 0:
                hops[neighbor] = hop
                ball[size] = neighbor
                size += 1
    return size


@njit([types.boolean(_INDPTR, indices, types.int8[::1], _I8) for indices in _INDICES], nogil=True, cache=True)
def _is_hard(indptr: Int64Array, indices: IntArray, hops: IntArray, node: int) -> bool:
    """Whether a node is at two or three hops, where one and two are marked."""
    if hops[node] > 0:
        return bool(hops[node] == 2)
    for arc in range(indptr[node], indptr[node + 1]):  # noqa: SIM110 (a generator is nothing to numba)
        if hops[indices[arc]] == 2:
            return True
    return False


@njit([_I8[::1](_INDPTR, indices, _I8, _I8, _U8, _I8) for indices in _INDICES], nogil=True, cache=True)
def _hard_of(indptr: Int64Array, indices: IntArray, first: int, end: int, seed: np.uint64, tries: int) -> Int64Array:
    """Keys of the hard pairs that the nodes ``first`` to ``end`` find with so many tries, N and more: of all of them.

    The node itself and its neighbours are marked 1, no partners.
    """
    nodes = len(indptr) - 1
    state = np.full(1, seed, dtype=np.uint64)
    hops, ball = np.zeros(nodes, dtype=np.int8), np.empty(nodes, dtype=np.int64)
    keys, count = np.empty(1024, dtype=np.int64), 0
    for source in range(first, end):
        ball[0], hops[source] = source, 1
        near = _expand(indptr, indices, hops, ball, 0, 1, 1)
        size = _expand(indptr, indices, hops, ball, 1, near, 2)
        arcs = 0
        for place in range(near, size):
            arcs += indptr[ball[place] + 1] - indptr[ball[place]]
        walked = tries >= nodes or arcs * nodes <= tries * indptr[nodes]
        if walked:
            size = _expand(indptr, indices, hops, ball, near, size, 3)
        share = (size - near) / nodes
        attempt, place = 0, near
        while size > near:
            if tries >= nodes:
                if place == size:
                    break
                partner = ball[place]
                place += 1
            elif walked:
                # So many tries pass until one finds something: a geometric number.
                attempt += 1 + int(math.log(1 - uniform(state)) / math.log1p(-share))
                if attempt > tries:
                    break
                partner = ball[near + below(state, size - near)]
            else:
                attempt += 1
                if attempt > tries:
                    break
                partner = below(state, nodes)
                if not _is_hard(indptr, indices, hops, partner):
                    continue
            if count == len(keys):
                keys = np.concatenate((keys, np.empty_like(keys)))
            keys[count] = min(source, partner) * nodes + max(source, partner)
            count += 1
        for place in range(size):
            hops[ball[place]] = 0
    return keys[:count].copy()
