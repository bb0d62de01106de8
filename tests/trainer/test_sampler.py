"""The sampler against a plain breadth-first search, its uniformity, and its determinism."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.bundle import Topology
from trainer.sampler import NeighborSampler, NumbaSampler, Sample, sample
from trainer.sampler_positions import Positions


def topology_of(neighbors: list[list[int]], dtype: npt.DTypeLike = np.int32) -> Topology:
    indptr = np.cumsum([0, *(len(row) for row in neighbors)]).astype(np.int64)
    weights = np.random.default_rng(3).exponential(size=indptr[-1]).astype(np.float32) + np.float32(1e-3)
    return Topology(indptr, np.array([node for row in neighbors for node in row], dtype=dtype), weights)


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


@given(cases(), st.sampled_from([np.int32, np.int64]), st.booleans(), st.booleans())
@settings(max_examples=400, deadline=None)
def test_every_property_of_a_sample(
    case: tuple[list[list[int]], list[int], list[int], int], dtype: npt.DTypeLike, replace: bool, weighted: bool
) -> None:
    neighbors, seeds, fan_out, rng_seed = case
    sampler = NumbaSampler(replace=replace, weighted=weighted)
    drawn = sampler.sample(topology_of(neighbors, dtype), np.array(seeds), fan_out, rng_seed)
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
            repeats = replace and width != -1
            wanted = (
                len(available) if width == -1 or not available else width if repeats else min(width, len(available))
            )
            assert len(picked) == wanted
            assert repeats or len(set(picked)) == wanted
            # A neighbour drawn again stands beside its first draw.
            assert len(list(itertools.groupby(picked))) == len(set(picked))
            assert set(picked) <= set(available)
            seen += [node for node in dict.fromkeys(picked) if node not in seen]
        begin = end
        assert nodes[: len(seen)] == seen
    assert nodes == seen


@given(cases(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_full_fan_out_is_the_exact_neighborhood(
    case: tuple[list[list[int]], list[int], list[int], int], replace: bool
) -> None:
    neighbors, seeds, fan_out, rng_seed = case
    hops = len(fan_out)
    distance = dict.fromkeys(seeds, 0)
    queue = list(seeds)
    for node in queue:
        for other in neighbors[node]:
            if other not in distance and distance[node] < hops:
                distance[other] = distance[node] + 1
                queue.append(other)
    drawn = NumbaSampler(replace=replace).sample(topology_of(neighbors), np.array(seeds), [-1] * hops, rng_seed)
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


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_same_seed_same_sample_in_any_thread_and_another_seed_another(replace: bool, weighted: bool) -> None:
    topology, seeds = random_topology(), np.arange(40)
    sampler: NeighborSampler = NumbaSampler(replace=replace, weighted=weighted)
    assert sampler.name == "numba"
    numbers = [1, 1, 1, 1, *range(2, 40)]
    alone = [sampler.sample(topology, seeds, [5, 5], number) for number in numbers]
    with ThreadPoolExecutor(4) as pool:
        drawn = list(pool.map(lambda number: sampler.sample(topology, seeds, [5, 5], number), numbers))
    for one, other in zip(alone, drawn, strict=True):
        assert np.array_equal(one.indices, other.indices)
        assert np.array_equal(one.indptr, other.indptr)
        assert np.array_equal(one.nodes, other.nodes)
    assert all(np.array_equal(drawn[0].nodes, other.nodes) for other in drawn[1:4])
    assert len({tuple(other.nodes.tolist()) for other in drawn[3:]}) == len(drawn[3:])


def test_nodes_that_share_their_low_half_are_told_apart() -> None:
    """2^32 and more nodes: of three that differ in the upper half alone each has a position of its own."""
    low, high = 5, 1 << 32
    positions = Positions(np.array([low]))
    heard = np.array([low + high, low + 2 * high, low, low + high], dtype=np.int64)
    assert positions.of(heard, np.arange(4)).tolist() == [1, 2, 0, 1]
    assert positions.nodes.tolist() == [low, low + high, low + 2 * high]
    assert positions.of(heard[::-1].copy(), np.arange(4)).tolist() == [1, 0, 2, 1]


def test_the_table_grows_with_the_sample() -> None:
    """Hop by hop through a path of 5,000 nodes in strides: every node keeps its position."""
    positions, expected = Positions(np.array([0])), [0]
    for reach in (3, 60, 1_000, 5_000):
        heard = np.random.default_rng(reach).permutation(reach).astype(np.int32)
        columns = positions.of(heard, np.arange(reach))
        expected += [node for node in heard.tolist() if node not in set(expected)]
        assert positions.nodes.tolist() == expected
        assert np.array_equal(positions.nodes[columns], heard)


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
