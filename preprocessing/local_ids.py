"""From a node to its record in a workspace, of the nodes that a row has touched.

In a dense workspace a node's number is its record's. Else records come in the order of the first touch, and a hash
table leads to them: so a row's memory is as small as what it touches.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from preprocessing.workspace import ARCS_TYPES, WORKSPACE_TYPE, Arcs, Workspace

__all__ = ["GOLDEN", "bits_for", "find", "forget", "node_of", "rehash", "touch"]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: multiplicative hashing spreads neighbouring numbers best (Knuth, vol. 3, 6.4)."""

_I8 = types.int64


@njit([_I8(WORKSPACE_TYPE, _I8, _I8)], nogil=True, cache=True)
def _entry(work: Workspace, bits: int, node: int) -> int:
    """The entry of the hash table that is the node's, or would be: linear probing from its home."""
    mask = np.uint64((1 << bits) - 1)
    entry = np.uint64(node) * GOLDEN >> np.uint64(64 - bits)
    while work.entries[entry] >= 0 and work.nodes[work.entries[entry]] != node:
        entry = (entry + np.uint64(1)) & mask
    return int(entry)


@njit([_I8(WORKSPACE_TYPE, _I8, _I8)], nogil=True, cache=True)
def find(work: Workspace, bits: int, node: int) -> int:
    """The number of the node's record, −1 for a node that nothing has touched."""
    if work.dense:
        return node if work.records[node].residual > 0.0 else -1
    return int(work.entries[_entry(work, bits, node)])


@njit([_I8(WORKSPACE_TYPE, _I8)], nogil=True, cache=True)
def node_of(work: Workspace, record: int) -> int:
    """The node that has the record."""
    return record if work.dense else int(work.nodes[record])


@njit([(arcs, WORKSPACE_TYPE, _I8, _I8, _I8) for arcs in ARCS_TYPES], nogil=True, cache=True)
def touch(arcs: Arcs, work: Workspace, bits: int, place: int, node: int) -> int:
    """Make the node the ``place``-th touched; returns its record, whose residual is to be set above zero."""
    work.touched[place] = node if work.dense else place
    if work.dense:
        return node
    work.entries[_entry(work, bits, node)] = place
    work.nodes[place] = node
    work.records[place].degree = arcs.degree[node]
    work.records[place].leader = arcs.twin_leader[node]
    work.records[place].estimate = 0.0
    return place


@njit([_I8(WORKSPACE_TYPE, _I8, _I8)], nogil=True, cache=True)
def bits_for(work: Workspace, bits: int, touched: int) -> int:
    """The size of the hash table, as a power of two, for so many nodes: what it is while it is at most half full."""
    if work.dense or 2 * touched <= 1 << bits:
        return bits
    while 1 << bits < 4 * touched and 2 << bits <= len(work.entries):
        bits += 1
    return bits


@njit([types.void(WORKSPACE_TYPE, _I8, _I8, _I8)], nogil=True, cache=True)
def rehash(work: Workspace, bits: int, new_bits: int, touched: int) -> None:
    """Let the hash table grow from 2^bits to 2^new_bits entries."""
    work.entries[: 1 << bits] = -1
    for record in range(touched):
        work.entries[_entry(work, new_bits, work.nodes[record])] = record


@njit([types.void(WORKSPACE_TYPE, _I8, _I8, _I8)], nogil=True, cache=True)
def forget(work: Workspace, bits: int, touched: int, hubs: int) -> None:
    """Leave the workspace as it was found, at the cost of the nodes touched and the hubs pushed."""
    for place in range(hubs):
        work.reached[work.hubs[place]] = 0
    if work.dense:
        for place in range(touched):
            work.records[work.touched[place]].residual = 0.0
            work.records[work.touched[place]].estimate = 0.0
    else:
        work.entries[: 1 << bits] = -1
