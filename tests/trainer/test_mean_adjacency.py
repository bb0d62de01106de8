import numpy as np
import pytest
import torch
from training_bundles import csr, dense, random_edges

from preprocessing.bundle import Topology
from trainer.adjacency import Adjacency
from trainer.mean_adjacency import MeanGraphAdjacency, MeanSampledAdjacency
from trainer.sampler import NumbaSampler


def graph(nodes: int = 20, edges: int = 60, seed: int = 0) -> Topology:
    """The last node has no neighbours."""
    pairs = random_edges(nodes, edges, seed)
    pairs = np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)
    arrays = csr(nodes, pairs[pairs[:, 0] != pairs[:, 1]])
    return Topology(arrays["indptr"].astype(np.int64), arrays["indices"].astype(np.int32))


def to_dense(adjacency: Adjacency) -> torch.Tensor:
    return adjacency.matmul(torch.eye(adjacency.shape[1]))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def blocks(topology: Topology, seeds: list[int], fan_out: list[int], seed: int = 0, replace: bool = False) -> tuple:
    sampled = NumbaSampler(replace=replace).sample(topology, np.array(seeds), fan_out, seed)
    return sampled.nodes, MeanSampledAdjacency(sampled, topology.degrees()[sampled.nodes])


def test_rows_are_means_over_neighbours_and_zero_without_any() -> None:
    topology = graph()
    found = to_dense(MeanGraphAdjacency(topology).normalized())
    for row in range(topology.num_nodes):
        expected = np.zeros(topology.num_nodes, np.float32)
        for neighbor in topology.neighbors(row):
            expected[neighbor] = 1 / len(topology.neighbors(row))
        np.testing.assert_allclose(found[row], expected, rtol=1e-6)
    assert found[-1].sum() == 0


@pytest.mark.parametrize("probability", [0.4, 0.99])
def test_dropped_rows_are_means_over_what_is_kept(probability: float) -> None:
    topology = graph()
    found = to_dense(MeanGraphAdjacency(topology).dropped(probability, generator()))
    assert not (found[torch.from_numpy(dense(topology)) == 0]).any()
    for row in found:
        kept = row[row > 0]
        np.testing.assert_allclose(kept, np.full(len(kept), 1 / max(len(kept), 1)), rtol=1e-6)
    assert int((found > 0).sum()) / topology.num_arcs == pytest.approx(1 - probability, abs=0.12)


def test_blocks_of_full_fan_out_are_rows_of_the_graph() -> None:
    topology = graph()
    whole = to_dense(MeanGraphAdjacency(topology).normalized())
    nodes, adjacency = blocks(topology, [4, 19, 0], [-1, -1])
    first, second = adjacency.normalized()
    assert (second.shape[0], first.shape) == (3, (second.shape[1], len(nodes)))
    for block in (first, second):
        rows, columns = nodes[: block.shape[0]], nodes[: block.shape[1]]
        torch.testing.assert_close(to_dense(block), whole[np.ix_(rows, columns)])
        torch.testing.assert_close(to_dense(block).sum(dim=1), whole[rows].sum(dim=1))
    for kept, dropped in zip(adjacency.normalized(), adjacency.dropped(0.0, generator()), strict=True):
        assert torch.equal(kept.values, dropped.values)


@pytest.mark.parametrize(("replace", "width"), [(False, 2), (True, 2), (True, 9)])
@pytest.mark.parametrize("probability", [0.0, 0.7])
def test_cut_rows_estimate_the_row_of_the_dropped_graph(probability: float, replace: bool, width: int) -> None:
    """Over all drops, a row of d neighbours is their mean times 1 − p^d, however many of them are sampled."""
    topology = graph(edges=20)
    row, x = 5, 1 + torch.randn(topology.num_nodes, 3, generator=generator())
    neighbors = topology.neighbors(row)
    assert 3 <= len(neighbors) <= 8
    expected = x[neighbors].mean(dim=0) * (1 - probability ** len(neighbors))
    draws = []
    for seed in range(800):
        nodes, adjacency = blocks(topology, [row], [width], seed, replace)
        (block,) = adjacency.dropped(probability, generator(seed))
        draws.append(block.matmul(x[nodes])[0])
    estimates = torch.stack(draws)
    spread = estimates.std(dim=0) / len(draws) ** 0.5
    assert ((estimates.mean(dim=0) - expected).abs() < 4 * spread).all()
    assert spread.min() > 0


def test_all_layers_see_one_dropped_graph() -> None:
    _, adjacency = blocks(graph(), [3, 9], [-1, -1])
    first, second = adjacency.dropped(0.5, generator(1))
    assert torch.equal(first.values[: len(second.values)], second.values)
