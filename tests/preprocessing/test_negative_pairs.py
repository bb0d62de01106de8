"""Negatives against a breadth-first search in plain Python: which pairs there are, that all come, and how often."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from ppr_cases import NAMED, Edges, sparse_graphs

from preprocessing import negative_pairs as module
from preprocessing.bundle import Topology
from preprocessing.negative_pairs import hard_pairs, random_pairs

Pairs = set[tuple[int, int]]


def neighbors(size: int, edges: Edges) -> list[set[int]]:
    near: list[set[int]] = [set() for _ in range(size)]
    for a, b in edges:
        if a != b:
            near[a].add(b)
            near[b].add(a)
    return near


def topology(near: list[set[int]]) -> Topology:
    indices = np.array([b for row in near for b in sorted(row)], dtype=np.int32)
    return Topology(np.cumsum([0, *map(len, near)]), indices)


def edge_keys(near: list[set[int]]) -> np.ndarray:
    return np.array([a * len(near) + b for a, row in enumerate(near) for b in sorted(row) if a < b], dtype=np.int64)


def unconnected(near: list[set[int]]) -> Pairs:
    return {(a, b) for a, b in combinations(range(len(near)), 2) if b not in near[a]}


def within_three_hops(near: list[set[int]]) -> Pairs:
    def reach(node: int) -> set[int]:
        seen = {node}
        for _ in range(3):
            seen |= {b for a in seen for b in near[a]}
        return seen

    return {(a, b) for a, b in unconnected(near) if b in reach(a)}


def pairs_of(keys: np.ndarray, size: int) -> list[tuple[int, int]]:
    return [divmod(int(key), size) for key in keys]


def hard(near: list[set[int]], count: int, seed: int = 0, threads: int = 1) -> list[tuple[int, int]]:
    keys = hard_pairs(topology(near), count, np.random.default_rng(seed), threads, lambda *_: None)
    return pairs_of(keys, len(near))


graphs = st.one_of(sparse_graphs(), st.sampled_from(list(NAMED.values())))


@given(graphs, st.integers(0, 60), st.integers(0, 9))
def test_random_pairs(graph: tuple[int, Edges], count: int, seed: int) -> None:
    near = neighbors(*graph)
    keys = edge_keys(near)
    assume(len(keys) > 0)
    drawn = pairs_of(random_pairs(len(near), keys, count, np.random.default_rng(seed)), len(near))
    assert len(drawn) == len(set(drawn)) == min(count, len(unconnected(near)))
    assert set(drawn) <= unconnected(near)


@given(graphs, st.integers(0, 60), st.integers(0, 9))
def test_hard_pairs(graph: tuple[int, Edges], count: int, seed: int) -> None:
    near = neighbors(*graph)
    drawn = hard(near, count, seed)
    assert len(drawn) == len(set(drawn)) == min(count, len(within_three_hops(near)))
    assert set(drawn) <= within_three_hops(near)


GRAPH = neighbors(
    14, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (1, 6), (1, 7), (1, 8), (6, 9), (9, 10), (3, 11), (0, 6)]
)


@pytest.mark.parametrize(("tries", "rounds"), [(1, 2000), (3, 800), (12, 200)])
def test_every_hard_pair_is_found_equally_often(tries: int, rounds: int) -> None:
    """Either node meets the other with 1/N a try: few tries are carried out, of many the finds alone are drawn."""
    rng, size = np.random.default_rng(0), len(GRAPH)
    found = [module._hard_round(topology(GRAPH), tries, rng, 1, lambda *_: None) for _ in range(rounds)]
    pairs, counts = np.unique(np.concatenate(found), return_counts=True)
    assert set(pairs_of(pairs, size)) == within_three_hops(GRAPH)
    expected = rounds * 2 * tries / size
    assert np.abs(counts - expected).max() < 4.5 * expected**0.5


def test_every_random_pair_is_drawn_equally_often() -> None:
    size, keys = len(GRAPH), edge_keys(GRAPH)
    drawn = np.concatenate([random_pairs(size, keys, 20, np.random.default_rng(seed)) for seed in range(2000)])
    pairs, counts = np.unique(drawn, return_counts=True)
    assert set(pairs_of(pairs, size)) == unconnected(GRAPH)
    expected = 2000 * 20 / len(pairs)
    assert np.abs(counts - expected).max() < 4.5 * expected**0.5


def test_threads_change_nothing() -> None:
    rng = np.random.default_rng(1)
    near = neighbors(400, rng.integers(400, size=(900, 2)).tolist())
    assert hard(near, 900, threads=1) == hard(near, 900, threads=3) != hard(near, 900, seed=1)
