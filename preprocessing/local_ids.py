"""From a node to its record in a workspace: the index that keeps a row's memory as small as what the row touches."""

from __future__ import annotations

import numpy as np
from numba import njit, types

from preprocessing.workspace import WORKSPACE_TYPE, Workspace

__all__ = ["FIRST_BITS", "GOLDEN", "bits_for", "claim", "find", "forget", "rehash"]

FIRST_BITS = 8
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: multiplicative hashing spreads neighbouring numbers best (Knuth, vol. 3, 6.4)."""

_I8 = types.int64


@njit([_I8(WORKSPACE_TYPE, _I8, _I8)], nogil=True, cache=True)
def _entry(work: Workspace, bits: int, node: int) -> int:
    """The entry of the index that is the node's, or would be: linear probing from its home."""
    if work.dense:
        return node
    mask = np.uint64((1 << bits) - 1)
    entry = np.uint64(node) * GOLDEN >> np.uint64(64 - bits)
    while work.entries[entry] >= 0 and work.records[work.entries[entry]].node != node:
        entry = (entry + np.uint64(1)) & mask
    return int(entry)


@njit([_I8(WORKSPACE_TYPE, _I8, _I8)], nogil=True, cache=True)
def find(work: Workspace, bits: int, node: int) -> int:
    """The number of the node's record, −1 for a node that nothing has touched."""
    return int(work.entries[_entry(work, bits, node)])


@njit([types.void(WORKSPACE_TYPE, _I8, _I8, _I8)], nogil=True, cache=True)
def claim(work: Workspace, bits: int, record: int, node: int) -> None:
    """Let the index lead from the node to the record, which names it."""
    work.records[record].node = node
    work.entries[_entry(work, bits, node)] = record


@njit([_I8(WORKSPACE_TYPE, _I8, _I8)], nogil=True, cache=True)
def bits_for(work: Workspace, bits: int, touched: int) -> int:
    """The size of the index, as a power of two, for so many nodes: what it is while it is at most half full."""
    if work.dense or 2 * touched <= 1 << bits:
        return bits
    while 1 << bits < 4 * touched and 2 << bits <= len(work.entries):
        bits += 1
    return bits


@njit([types.void(WORKSPACE_TYPE, _I8, _I8, _I8)], nogil=True, cache=True)
def rehash(work: Workspace, bits: int, new_bits: int, touched: int) -> None:
    """Let the index grow from 2^bits to 2^new_bits entries."""
    work.entries[: 1 << bits] = -1
    for record in range(touched):
        work.entries[_entry(work, new_bits, work.records[record].node)] = record


@njit([types.void(WORKSPACE_TYPE, _I8, _I8)], nogil=True, cache=True)
def forget(work: Workspace, bits: int, touched: int) -> None:
    """Leave the workspace as it was found, at the cost of the nodes touched."""
    if work.dense:
        for record in range(touched):
            work.entries[work.records[record].node] = -1
    else:
        work.entries[: 1 << bits] = -1
