import pytest
import torch
from pydantic import ValidationError
from torch_geometric.data import Data
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.transforms import HalfHop
from training_bundles import every_row, make_bundle, settings_document

from preprocessing.bundle import Bundle
from trainer.adjacency import Adjacency, GraphAdjacency
from trainer.encoders.gcn import GcnEncoder
from trainer.features import load_features
from trainer.full_batch import FullBatch
from trainer.half_hop import half_hopped
from trainer.settings import TrainSettings


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return make_bundle(tmp_path_factory.mktemp("half_hop"), nodes=20, edges=25, direction="directed")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def to_dense(adjacency: Adjacency) -> torch.Tensor:
    return adjacency.matmul(torch.eye(adjacency.shape[1]))


def slowed_by_hand(
    kept: torch.Tensor, chosen: list[bool], x: torch.Tensor, mix: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """0/1 adjacency (row hears column, with self-loops) and features of the graph with slow nodes, arc by arc."""
    nodes = len(kept)
    arcs = [(i, j) for i in range(nodes) for j in range(nodes) if kept[i, j] and i != j]
    slowed = [(i, j) for i, j in arcs if chosen[i]]
    heard = torch.eye(nodes + len(slowed))
    features = list(x)
    for i, j in arcs:
        if not chosen[i]:
            heard[i, j] = 1
    for number, (i, j) in enumerate(slowed):
        slow = nodes + number
        heard[i, slow] = heard[slow, i] = heard[slow, j] = 1
        features.append(mix * x[j] + (1 - mix) * x[i])
    return heard, torch.stack(features)


@pytest.mark.parametrize("probability", [0.0, 0.5, 1.0])
def test_it_is_the_graph_with_slow_nodes_built_by_hand(bundle: Bundle, probability: float) -> None:
    dropped = GraphAdjacency(bundle.topology).dropped(0.3, generator(1))
    x = every_row(load_features(bundle, TrainSettings().features)).masked(torch.arange(12) % 3 != 0)
    features, adjacencies = half_hopped(x, dropped, 3, probability, 0.7, generator(2))
    chosen = (torch.rand(20, generator=generator(2)) < probability).tolist()
    heard, rows = slowed_by_hand(to_dense(dropped), chosen, x @ torch.eye(12), 0.7)

    assert features.shape == (len(heard), 12)
    torch.testing.assert_close(features @ torch.eye(12), rows)
    degree = heard.sum(dim=1)
    expected = heard / (degree[:, None] * degree[None, :]).sqrt()
    assert [adjacency.shape[0] for adjacency in adjacencies] == [len(heard), len(heard), 20]
    for adjacency in adjacencies:
        torch.testing.assert_close(to_dense(adjacency), expected[: adjacency.shape[0]])


def test_slowing_every_edge_is_pygs_half_hop(bundle: Bundle) -> None:
    plain = GraphAdjacency(bundle.topology).normalized()
    x = every_row(load_features(bundle, TrainSettings().features))
    arcs = plain.pattern.indices != plain.pattern.rows
    hearing, source = plain.pattern.rows[arcs].long(), plain.pattern.indices[arcs].long()
    data = HalfHop(alpha=0.3, p=1.0)(Data(x=x @ torch.eye(12), edge_index=torch.stack([source, hearing])))
    edge_index, weight = gcn_norm(data.edge_index, None, data.num_nodes)
    expected = torch.zeros(data.num_nodes, data.num_nodes)
    expected[edge_index[1], edge_index[0]] = weight

    features, (first, last) = half_hopped(x, plain, 2, 1.0, 0.3, generator())
    torch.testing.assert_close(features @ torch.eye(12), data.x)
    torch.testing.assert_close(to_dense(first), expected)
    torch.testing.assert_close(to_dense(last), expected[:20])


def test_only_the_graphs_own_nodes_are_embedded_and_each_view_has_slow_nodes_of_its_own(bundle: Bundle) -> None:
    chosen = TrainSettings.model_validate(settings_document(augment={"half_hop": 0.5}))
    store = load_features(bundle, chosen.features)
    views = FullBatch(bundle, store, chosen, device=torch.device("cpu")).step(0, 0).views
    encoder = GcnEncoder(12, [16, 8])
    assert [encoder(view.features, view.adjacencies).shape for view in views] == [(20, 8), (20, 8)]
    one, other = (view.features @ torch.ones(12, 1) for view in views)
    assert min(len(one), len(other)) > 20
    assert not torch.equal(one[20:], other[20:])


def test_mini_batches_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"augment\.half_hop needs the whole graph"):
        TrainSettings.model_validate({"augment": {"half_hop": 0.5}, "batch": {"mode": "mini"}})
    with pytest.raises(ValidationError, match=r"augment\.half_hop is for encoder\.self_loop_weight = 1"):
        TrainSettings.model_validate({"augment": {"half_hop": 0.5}, "encoder": {"self_loop_weight": 2.0}})
