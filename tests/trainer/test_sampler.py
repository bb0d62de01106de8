"""The sampler against a plain breadth-first search, its uniformity, and its determinism."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.bundle import Topology
from trainer.sampler import NeighborSampler, NumbaSampler, Sample, sample


def topology_of(neighbors: list[list[int]], dtype: npt.DTypeLike = np.int32) -> Topology:
    indptr = np.cumsum([0, *(len(row) for row in neighbors)]).astype(np.int64)
    return Topology(indptr, np.array([node for row in neighbors for node in row], dtype=dtype))


def row(drawn: Sample, position: int) -> list[int]:
    """The sampled neighbours of the node at a position, as nodes of the graph."""
    begin, end = drawn.indptr[position : position + 2]
    return [int(node) for node in drawn.nodes[drawn.indices[begin:end]]]


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[list[int]], list[int], list[int], int]:
    n = draw(st.integers(1, 25))
    neighbors = [sorted(draw(st.sets(st.integers(0, n - 1), max_size=n)) - {i}) for i in range(n)]
    seeds = draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True))
    fan_out = draw(st.lists(st.sampled_from([-1, 1, 2, 3, 7]), min_size=1, max_size=3))
    return neighbors, seeds, fan_out, draw(st.integers(0, 2**63 - 1))


@given(cases(), st.sampled_from([np.int32, np.int64]))
@settings(max_examples=200, deadline=None)
def test_every_property_of_a_sample(
    case: tuple[list[list[int]], list[int], list[int], int], dtype: npt.DTypeLike
) -> None:
    neighbors, seeds, fan_out, rng_seed = case
    drawn = sample(topology_of(neighbors, dtype), np.array(seeds), fan_out, rng_seed)
    nodes = drawn.nodes.tolist()
    assert (drawn.nodes.dtype, drawn.indptr.dtype, drawn.indices.dtype) == (np.int64, np.int64, np.int32)
    assert nodes[: len(seeds)] == seeds
    assert len(set(nodes)) == len(nodes)
    assert drawn.hop_ends[0] == len(seeds)
    assert drawn.hop_ends[-1] == len(nodes)
    assert len(drawn.hop_ends) == len(fan_out) + 1
    assert len(drawn.indptr) == drawn.hop_ends[-2] + 1

    begin = 0
    seen = list(seeds)
    for width, end in zip(fan_out, drawn.hop_ends, strict=False):
        for position in range(begin, end):
            picked = row(drawn, position)
            available = neighbors[nodes[position]]
            wanted = len(available) if width == -1 else min(width, len(available))
            assert len(picked) == len(set(picked)) == wanted
            assert set(picked) <= set(available)
            seen += [node for node in picked if node not in seen]
        begin = end
        assert nodes[: len(seen)] == seen
    assert nodes == seen


@given(cases())
@settings(max_examples=100, deadline=None)
def test_full_fan_out_is_the_exact_neighborhood(case: tuple[list[list[int]], list[int], list[int], int]) -> None:
    neighbors, seeds, fan_out, rng_seed = case
    hops = len(fan_out)
    distance = dict.fromkeys(seeds, 0)
    queue = list(seeds)
    for node in queue:
        for other in neighbors[node]:
            if other not in distance and distance[node] < hops:
                distance[other] = distance[node] + 1
                queue.append(other)
    drawn = sample(topology_of(neighbors), np.array(seeds), [-1] * hops, rng_seed)
    assert drawn.nodes.tolist() == queue
    assert drawn.hop_ends == [sum(far <= hop for far in distance.values()) for hop in range(hops + 1)]
    assert all(row(drawn, i) == neighbors[queue[i]] for i in range(drawn.hop_ends[-2]))


@pytest.mark.parametrize(("degree", "width"), [(10, 3), (6, 5), (40, 1)])
def test_every_neighbor_and_every_pair_is_as_likely(degree: int, width: int) -> None:
    star = topology_of([list(range(1, degree + 1)), *([0] for _ in range(degree))])
    draws = 6_000
    together = np.zeros((degree, degree))
    for seed in range(draws):
        picked = np.array(row(sample(star, np.array([0]), [width], seed), 0)) - 1
        together[np.ix_(picked, picked)] += 1
    share = together / draws
    single = width / degree
    pair = single * (width - 1) / (degree - 1)
    alone = np.eye(degree, dtype=bool)
    # Six standard deviations of a binomial share.
    assert np.abs(share[alone] - single).max() < 6 * np.sqrt(single * (1 - single) / draws)
    assert np.abs(share[~alone] - pair).max() <= 6 * np.sqrt(pair * (1 - pair) / draws)


def random_topology(n: int = 500, degree: int = 20) -> Topology:
    rng = np.random.default_rng(5)
    return topology_of([sorted(set(rng.integers(0, n, degree).tolist()) - {i}) for i in range(n)])


def test_same_seed_same_sample_in_any_thread_and_another_seed_another() -> None:
    topology, seeds = random_topology(), np.arange(40)
    sampler: NeighborSampler = NumbaSampler()
    assert sampler.name == "numba"
    with ThreadPoolExecutor(4) as pool:
        drawn = list(pool.map(lambda seed: sampler.sample(topology, seeds, [5, 5], seed), [1, 1, 1, 1, 2]))
    assert all(np.array_equal(drawn[0].indices, other.indices) for other in drawn[1:4])
    assert all(np.array_equal(drawn[0].nodes, other.nodes) for other in drawn[1:4])
    assert not np.array_equal(drawn[0].nodes, drawn[4].nodes)


def test_reads_memory_maps_and_no_seeds(tmp_path) -> None:
    topology = random_topology()
    np.save(tmp_path / "indptr.npy", topology.indptr)
    np.save(tmp_path / "indices.npy", topology.indices)
    mapped = Topology(np.load(tmp_path / "indptr.npy", mmap_mode="r"), np.load(tmp_path / "indices.npy", mmap_mode="r"))
    expected, drawn = (sample(t, np.array([3, 1]), [4, -1], 9) for t in (topology, mapped))
    assert np.array_equal(expected.nodes, drawn.nodes)
    empty = sample(topology, np.array([], dtype=np.int64), [4, 4], 0)
    assert empty.hop_ends == [0, 0, 0]
    assert empty.indptr.tolist() == [0]
    assert len(empty.nodes) == len(empty.indices) == 0
