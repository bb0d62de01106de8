"""The inductive encoders against BGRL's formulas written with PyG's SAGEConv, and sampled against whole."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_mean_adjacency import graph
from torch import Tensor
from torch.nn.functional import layer_norm
from torch_geometric.nn import SAGEConv
from training_bundles import every_row

from preprocessing.bundle import SparseFeatures, Topology
from trainer.encoders import Encoder, new_encoder
from trainer.encoders.sage import SageLayer
from trainer.features import Features, FeatureStore, _SparseSource
from trainer.mean_adjacency import MeanGraphAdjacency, MeanSampledAdjacency
from trainer.sampler import sample
from trainer.settings import EncoderSettings, FeatureSettings


def encoder(kind: str, layers: list[int]) -> Encoder:
    torch.manual_seed(3)
    made = new_encoder(5, EncoderSettings(kind=kind, layers=layers))
    with torch.no_grad():
        for layer in made.layers:
            layer.bias.normal_()
            layer.norm.weight.normal_()
            layer.norm.bias.normal_()
            layer.activation.weight.fill_(0.1)
    return made


def features(nodes: int) -> Features:
    """Sparse, seen through a mask."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 4, nodes)
    columns = np.concatenate([np.sort(rng.permutation(5)[:n]) for n in lengths]).astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    stored = SparseFeatures(indptr, columns, rng.normal(size=len(columns)).astype(np.float32), (nodes, 5))
    store = FeatureStore(_SparseSource(stored), nodes, FeatureSettings())
    return every_row(store).masked(torch.tensor([1.0, 1, 0, 1, 1]))


def by_pyg(layer: SageLayer, topology: Topology, u: Tensor) -> Tensor:
    """PReLU(LayerNorm(SAGEConv)) of one layer."""
    conv = SAGEConv(*layer.weight_heard.shape, aggr="mean")
    with torch.no_grad():
        conv.lin_l.weight.copy_(layer.weight_heard.T)
        conv.lin_l.bias.copy_(layer.bias)
        conv.lin_r.weight.copy_(layer.weight_own.T)
    hears = np.repeat(np.arange(topology.num_nodes), topology.degrees())
    edge_index = torch.from_numpy(np.stack([topology.indices.astype(np.int64), hears]))
    normed = layer_norm(conv(u, edge_index), [len(layer.bias)], layer.norm.weight, layer.norm.bias)
    return torch.where(normed > 0, normed, 0.1 * normed)


def whole(made: Encoder, topology: Topology) -> Tensor:
    return made(features(topology.num_nodes), [MeanGraphAdjacency(topology).normalized()] * made.num_layers)


@torch.no_grad()
def test_residual_sums_between_layers() -> None:
    topology, made = graph(), encoder("sage_residual", [6, 6, 6])
    u1 = by_pyg(made.layers[0], topology, features(20) @ torch.eye(5))
    u2 = u1 + by_pyg(made.layers[1], topology, u1)
    u3 = u2 + by_pyg(made.layers[2], topology, u2)
    torch.testing.assert_close(whole(made, topology), u3)


@torch.no_grad()
def test_skip_connections_from_the_input() -> None:
    topology, made = graph(), encoder("sage_skip", [6, 6, 4])
    x = features(20) @ torch.eye(5)
    h1 = by_pyg(made.layers[0], topology, x)
    h2 = by_pyg(made.layers[1], topology, h1 + x @ made.skips[0])
    h3 = by_pyg(made.layers[2], topology, h1 + h2 + x @ made.skips[1])
    torch.testing.assert_close(whole(made, topology), h3)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["sage_residual", "sage_skip"])
def test_sampled_neighbourhoods_of_full_fan_out_give_the_whole_graphs_rows(kind: str) -> None:
    topology, made = graph(), encoder(kind, [6, 6, 6])
    seeds = np.array([19, 2, 7])
    taken = sample(topology, seeds, [-1, -1, -1], 0)
    adjacencies = MeanSampledAdjacency(taken, topology.degrees()[taken.nodes]).normalized()
    store = features(20)
    rows = Features((store @ torch.eye(5))[taken.nodes])
    torch.testing.assert_close(made(rows, adjacencies), whole(made, topology)[seeds])


def test_the_first_nodes_of_sparse_features() -> None:
    x = features(20)
    torch.testing.assert_close(x.head(7) @ torch.eye(5), (x @ torch.eye(5))[:7])
    assert x.head(20) is x


@pytest.mark.parametrize(("kind", "layers"), [("sage_residual", [8, 8, 4]), ("sage_skip", [8, 4, 4])])
def test_widths_that_cannot_be_added_up(kind: str, layers: list[int]) -> None:
    with pytest.raises(ValueError, match=f"{kind} adds layers up"):
        EncoderSettings(kind=kind, layers=layers)


@pytest.mark.parametrize("kind", ["sage_residual", "sage_skip"])
@pytest.mark.parametrize("name", ["self_loop_weight", "embedding_self_loop_weight"])
def test_self_loops_are_of_a_gcn(kind: str, name: str) -> None:
    with pytest.raises(ValueError, match=f"{kind} has no self-loops"):
        EncoderSettings.model_validate({"kind": kind, "layers": [8, 8], name: 2.0})


@pytest.mark.parametrize("name", ["self_loop_weight", "embedding_self_loop_weight"])
@pytest.mark.parametrize("value", [0, -1, 1e-7, 1e7, float("nan"), float("inf")])
def test_self_loops_weigh_something(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        EncoderSettings.model_validate({name: value})
