import numpy as np
import pytest
import torch
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from training_bundles import csr, dense, random_edges

from preprocessing.bundle import Topology
from trainer.adjacency import Adjacency, GraphAdjacency, SampledAdjacency
from trainer.arcs import Arcs
from trainer.sampler import NumbaSampler, sample
from trainer.sparse import Pattern


def graph(nodes: int = 30, edges: int = 70, *, symmetric: bool = True, seed: int = 0) -> Topology:
    pairs = random_edges(nodes, edges, seed)
    if symmetric:
        pairs = np.concatenate([pairs, pairs[:, ::-1]])
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    arrays = csr(nodes, pairs)
    return Topology(arrays["indptr"].astype(np.int64), arrays["indices"].astype(np.int32))


def to_dense(adjacency: Adjacency) -> torch.Tensor:
    return adjacency.matmul(torch.eye(adjacency.shape[1]))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("self_loop_weight", [1, 2])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("probability", [0.0, 0.4, 0.999])
def test_dropped_weights_are_pyg_gcn_norm_on_the_kept_arcs(
    symmetric: bool, probability: float, self_loop_weight: int
) -> None:
    topology = graph(symmetric=symmetric)
    adjacency = GraphAdjacency(topology, self_loop_weight=self_loop_weight)
    got = to_dense(adjacency.dropped(probability, generator()))

    kept = (got != 0) & ~torch.eye(topology.num_nodes, dtype=torch.bool)
    assert not (kept & (torch.from_numpy(dense(topology)) == 0)).any()
    hears, heard = kept.nonzero(as_tuple=True)
    # PyG's messages run from edge_index[0] to edge_index[1].
    edge_index, weight = gcn_norm(
        torch.stack([heard, hears]), torch.ones(len(hears)), topology.num_nodes, improved=self_loop_weight == 2
    )
    expected = torch.zeros_like(got)
    expected[edge_index[1], edge_index[0]] = weight
    torch.testing.assert_close(got, expected)
    share = 1 - len(hears) / topology.num_arcs
    assert share == pytest.approx(probability, abs=0.12)


@pytest.mark.parametrize("self_loop_weight", [0.25, 1.0, 16.0])
def test_without_dropping_every_edge_is_there(self_loop_weight: float) -> None:
    topology = graph()
    looped = dense(topology) + self_loop_weight * np.eye(topology.num_nodes)
    root = looped.sum(axis=1) ** -0.5
    expected = torch.from_numpy((root[:, None] * looped * root).astype(np.float32))
    adjacency = GraphAdjacency(topology, self_loop_weight=self_loop_weight)
    torch.testing.assert_close(to_dense(adjacency.normalized()), expected)


def test_directions_of_an_edge_are_dropped_independently() -> None:
    topology = graph(symmetric=True)
    kept = to_dense(GraphAdjacency(topology).dropped(0.5, generator(3))) != 0
    assert (kept != kept.T).any()


def blocks(
    topology: Topology, seeds: np.ndarray, fan_out: list[int], seed: int = 0, self_loop_weight: float = 1.0
) -> tuple[np.ndarray, SampledAdjacency]:
    sampled = sample(topology, seeds, fan_out, seed)
    degree_n = topology.degrees()[sampled.nodes]
    return sampled.nodes, SampledAdjacency(sampled, degree_n, self_loop_weight=self_loop_weight)


@pytest.mark.parametrize("self_loop_weight", [1.0, 16.0])
@pytest.mark.parametrize("symmetric", [True, False])
def test_blocks_of_full_fan_out_are_rows_of_the_graph(symmetric: bool, self_loop_weight: float) -> None:
    topology = graph(symmetric=symmetric)
    whole = to_dense(GraphAdjacency(topology, self_loop_weight=self_loop_weight).normalized())
    nodes, adjacency = blocks(topology, np.array([4, 0, 17]), [-1, -1], self_loop_weight=self_loop_weight)
    first, second = adjacency.normalized()
    assert second.shape[0] == 3
    assert first.shape == (second.shape[1], len(nodes))
    for block in (first, second):
        rows, columns = nodes[: block.shape[0]], nodes[: block.shape[1]]
        torch.testing.assert_close(to_dense(block), whole[np.ix_(rows, columns)])
        # Nothing that a row hears is left out.
        torch.testing.assert_close(to_dense(block).sum(dim=1), whole[rows].sum(dim=1))


def test_dropping_nothing_is_the_normalised_block() -> None:
    _, adjacency = blocks(graph(), np.array([1, 2]), [-1, -1])
    for kept, dropped in zip(adjacency.normalized(), adjacency.dropped(0.0, generator()), strict=True):
        assert torch.equal(kept.values, dropped.values)


@pytest.mark.parametrize("self_loop_weight", [1.0, 16.0])
def test_cut_rows_estimate_the_whole_row(self_loop_weight: float) -> None:
    topology = graph(nodes=20, edges=150)
    row, x = 5, torch.randn(topology.num_nodes, 4, generator=generator())
    exact = (to_dense(GraphAdjacency(topology, self_loop_weight=self_loop_weight).normalized()) @ x)[row]
    draws = []
    for seed in range(600):
        nodes, adjacency = blocks(topology, np.array([row]), [3], seed, self_loop_weight)
        (block,) = adjacency.normalized()
        draws.append(block.matmul(x[nodes])[0])
    estimates = torch.stack(draws)
    error = estimates.mean(dim=0) - exact
    assert (error.abs() < 4 * estimates.std(dim=0) / len(draws) ** 0.5).all()
    assert estimates.std(dim=0).min() > 0


@pytest.mark.parametrize("self_loop_weight", [1.0, 16.0])
def test_dropped_blocks_agree_with_the_dropped_graph_in_the_mean(self_loop_weight: float) -> None:
    topology = graph(nodes=20, edges=60)
    row, x = 5, torch.randn(topology.num_nodes, 2, generator=generator())
    nodes, adjacency = blocks(topology, np.array([row]), [-1], self_loop_weight=self_loop_weight)
    whole = GraphAdjacency(topology, self_loop_weight=self_loop_weight)
    by_block = torch.stack([adjacency.dropped(0.4, generator(s))[0].matmul(x[nodes])[0] for s in range(500)])
    by_graph = torch.stack([whole.dropped(0.4, generator(9000 + s)).matmul(x)[row] for s in range(500)])
    spread = (by_block.var(dim=0) + by_graph.var(dim=0)).div(500).sqrt()
    assert ((by_block.mean(dim=0) - by_graph.mean(dim=0)).abs() < 4 * spread).all()


def test_all_layers_see_one_dropped_graph() -> None:
    topology = graph(nodes=20, edges=60)
    _, adjacency = blocks(topology, np.array([3, 9]), [-1, -1])
    first, second = adjacency.dropped(0.5, generator(1))
    assert torch.equal(first.values[: len(second.values)], second.values)


def repeated(topology: Topology, row: int, width: int, seed: int) -> tuple[np.ndarray, SampledAdjacency]:
    sampled = NumbaSampler(replace=True).sample(topology, np.array([row]), [width], seed)
    return sampled.nodes, SampledAdjacency(sampled, topology.degrees()[sampled.nodes])


@pytest.mark.parametrize("width", [3, 12])
def test_repeated_draws_estimate_the_whole_row(width: int) -> None:
    """Fewer draws than neighbours, and more."""
    topology = graph(nodes=20, edges=60)
    row, x = 5, torch.randn(topology.num_nodes, 4, generator=generator())
    assert 3 < topology.degrees()[row] < 12
    exact = (to_dense(GraphAdjacency(topology).normalized()) @ x)[row]
    draws = []
    for seed in range(600):
        nodes, adjacency = repeated(topology, row, width, seed)
        (block,) = adjacency.normalized()
        draws.append(block.matmul(x[nodes])[0])
    estimates = torch.stack(draws)
    assert ((estimates.mean(dim=0) - exact).abs() < 4 * estimates.std(dim=0) / len(draws) ** 0.5).all()


def test_repeated_draws_are_dropped_as_one_and_agree_with_the_dropped_graph_in_the_mean() -> None:
    topology = graph(nodes=20, edges=60)
    row, x = 5, torch.randn(topology.num_nodes, 2, generator=generator())
    whole = GraphAdjacency(topology)
    by_block = []
    # Many draws: hardly a row whose draws are all dropped while an arc that was not drawn is kept.
    for seed in range(600):
        nodes, adjacency = repeated(topology, row, 24, seed)
        (block,) = adjacency.dropped(0.4, generator(seed))
        columns = block.pattern.indices[1:]
        assert len(columns) == 24
        assert len(columns.unique()) < 24
        for column in columns.unique():
            assert len((block.values[1:][columns == column] > 0).unique()) == 1
        by_block.append(block.matmul(x[nodes])[0])
    by_graph = torch.stack([whole.dropped(0.4, generator(9000 + s)).matmul(x)[row] for s in range(600)])
    blocks_ = torch.stack(by_block)
    spread = (blocks_.var(dim=0) + by_graph.var(dim=0)).div(600).sqrt()
    assert ((blocks_.mean(dim=0) - by_graph.mean(dim=0)).abs() < 4 * spread).all()


def test_a_repeat_stands_for_the_arc_before_it_in_its_row() -> None:
    pattern = Pattern(torch.tensor([0, 3, 5, 5, 6]), torch.tensor([4, 4, 7, 7, 7, 2], dtype=torch.int32), 8)
    arcs = Arcs(pattern)
    assert arcs.per_row().tolist() == [2, 1, 0, 1]
    kept = arcs.as_one(torch.tensor([True, False, False, False, True, True]))
    assert kept.tolist() == [True, True, False, False, False, True]
    assert arcs.per_row(kept).tolist() == [1, 0, 0, 1]
