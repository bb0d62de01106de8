import copy
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from training_bundles import every_row, make_bundle, settings_document

from preprocessing.bundle import Bundle
from preprocessing.locality import reordered
from trainer.adjacency import GraphAdjacency
from trainer.features import load_features
from trainer.full_batch import FullBatch
from trainer.mini_batch import MiniBatch
from trainer.objectives import Step, new_objective
from trainer.objectives.rgrl import RgrlObjective
from trainer.settings import TrainSettings
from trainer.train import TrainSpec

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return make_bundle(tmp_path_factory.mktemp("model"))


def settings(**parts: dict) -> TrainSettings:
    return TrainSettings.model_validate(settings_document(**parts))


def full_step(bundle: Bundle, chosen: TrainSettings, rank: int = 0, world_size: int = 1) -> Step:
    store = load_features(bundle, chosen.features)
    return FullBatch(bundle, store, chosen, rank=rank, world_size=world_size, device=CPU).step(0, 0)


def model_for(bundle: Bundle, chosen: TrainSettings) -> RgrlObjective:
    return new_objective(load_features(bundle, chosen.features).num_columns, chosen)


def softmax_kl(student: list[float], teacher: list[float], direction: str) -> float:
    def soft(values: list[float]) -> list[float]:
        parts = [math.exp(value - max(values)) for value in values]
        return [part / sum(parts) for part in parts]

    p, q = soft(student), soft(teacher)
    if direction == "teacher_student":
        p, q = q, p
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


@pytest.mark.parametrize("divergence", ["teacher_student", "student_teacher"])
def test_a_step_is_the_methods_loss_written_as_loops(bundle: Bundle, divergence: str) -> None:
    loss = {"divergence": divergence, "local_weight": 0.7, "tau_target_global": 0.2, "tau_target_local": 0.5}
    chosen = settings(loss=loss)
    step, model = full_step(bundle, chosen), model_for(bundle, chosen)
    views = [(view.features, view.adjacencies) for view in step.views]
    with torch.no_grad():
        unit = torch.nn.functional.normalize
        twin = copy.deepcopy(model)
        z = [unit(twin.predictor(twin.online(*view))).double() for view in views]
        h = [unit(twin.target(*view)).double() for view in views]
        total, global_part, local_part = (float(part) for part in model(step))

    degree = bundle.symmetric.degrees()
    ppr = bundle.ppr(3)
    assert (degree == 0).any()
    globals_, locals_ = 0.0, 0.0
    for a, b in ((0, 1), (1, 0)):
        for i in range(bundle.num_nodes):
            student = [float(z[a][i] @ h[b][j]) / 0.1 for j in step.anchors.anchors_G]
            teacher = [float(h[b][i] @ h[b][j]) / 0.2 for j in step.anchors.anchors_G]
            globals_ += softmax_kl(student, teacher, divergence) / bundle.num_nodes
        for i in np.flatnonzero(degree):
            near = ppr.neighbors[i, : ppr.count[i]]
            student = [float(z[a][i] @ h[b][j]) / 0.1 for j in near]
            teacher = [float(h[b][i] @ h[b][j]) / 0.5 for j in near]
            locals_ += softmax_kl(student, teacher, divergence) / (degree > 0).sum()
    assert global_part == pytest.approx(globals_, rel=1e-4)
    assert local_part == pytest.approx(locals_, rel=1e-4)
    assert total == pytest.approx(globals_ + 0.7 * locals_, rel=1e-4)


def test_gradients_reach_all_of_the_online_network_and_none_of_the_target(bundle: Bundle) -> None:
    chosen = settings()
    model = model_for(bundle, chosen)
    model(full_step(bundle, chosen))[0].backward()
    for part in (model.online, model.predictor):
        for name, parameter in part.named_parameters():
            # A bias before BatchNorm moves nothing: its gradient is zero but for rounding.
            assert parameter.grad is not None, name
            assert parameter.grad.abs().max() > 0 or name.endswith("bias"), name
    assert all(parameter.grad is None for parameter in model.target.parameters())


def test_the_target_starts_equal_and_follows_by_the_moving_average(bundle: Bundle) -> None:
    model = model_for(bundle, settings())
    before = [parameter.clone() for parameter in model.target.parameters()]
    assert all(torch.equal(*pair) for pair in zip(before, model.online.parameters(), strict=True))
    with torch.no_grad():
        for parameter in model.online.parameters():
            parameter.add_(1.0)
    model.online.layers[0].norm.running_mean.fill_(5.0)
    model.update_target(0.9)
    for old, new in zip(before, model.target.parameters(), strict=True):
        torch.testing.assert_close(new, 0.9 * old + 0.1 * (old + 1))
    assert model.target.layers[0].norm.running_mean.abs().max() == 0


def test_each_view_moves_the_statistics_once_in_both_networks(bundle: Bundle) -> None:
    chosen = settings()
    model = model_for(bundle, chosen)
    model(full_step(bundle, chosen))
    for network in (model.online, model.target):
        assert [int(layer.norm.num_batches_tracked) for layer in network.layers] == [2, 2]


@pytest.mark.parametrize("ranks", [2, 9])
def test_shares_of_a_full_batch_sum_to_the_whole_loss_and_gradient(bundle: Bundle, ranks: int) -> None:
    chosen = settings()
    whole = model_for(bundle, chosen)
    loss = whole(full_step(bundle, chosen))[0]
    loss.backward()
    shared = model_for(bundle, chosen)
    shares = []
    for rank in range(ranks):
        share = shared(full_step(bundle, chosen, rank, ranks))[0]
        share.backward()
        shares.append(float(share.detach()))
    assert sum(shares) == pytest.approx(float(loss.detach()), rel=1e-5)
    for (name, one), many in zip(whole.named_parameters(), shared.parameters(), strict=True):
        if one.grad is not None:
            torch.testing.assert_close(many.grad, one.grad, rtol=1e-3, atol=1e-5, msg=name)


def no_dropping(**parts: dict) -> TrainSettings:
    names = ("drop_feature_1", "drop_feature_2", "drop_edge_1", "drop_edge_2")
    return settings(augment=dict.fromkeys(names, 0.0), **parts)


ENCODERS = [
    {"kind": "gcn", "layers": [16, 8]},
    {"kind": "gcn", "layers": [16, 8], "self_loop_weight": 16.0},
    {"kind": "sage_residual", "layers": [8, 8]},
    {"kind": "sage_skip", "layers": [16, 8]},
]


@pytest.mark.parametrize("encoder", ENCODERS, ids=str)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_one_mini_batch_of_all_nodes_is_the_full_batch(tmp_path: Path, kind: str, encoder: dict) -> None:
    features = np.random.default_rng(1).normal(size=(40, 12)).astype(np.float32)
    if kind == "sparse":
        features[np.random.default_rng(2).random(features.shape) < 0.8] = 0
    bundle = make_bundle(tmp_path, features=features)
    chosen = no_dropping(batch={"mode": "mini", "size": 40, "fan_out": [-1, -1]}, encoder=encoder)
    store = load_features(bundle, chosen.features)
    mini_source = MiniBatch(bundle, store, chosen, device=CPU)
    assert mini_source.num_steps == 1
    whole, mini = model_for(bundle, chosen), model_for(bundle, chosen)
    losses = whole(full_step(bundle, chosen)), mini(mini_source.step(0, 0))
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-5, atol=1e-5)
    for parts in losses:
        parts[0].backward()
    for (name, one), other in zip(whole.named_parameters(), mini.parameters(), strict=True):
        if one.grad is not None:
            assert (other.grad - one.grad).norm() <= 1e-5 * max(1, one.grad.norm()), name


@pytest.mark.parametrize("encoder", ENCODERS, ids=str)
def test_small_batches_of_full_fan_out_give_the_full_batchs_outputs_in_eval_mode(bundle: Bundle, encoder: dict) -> None:
    chosen = no_dropping(batch={"mode": "mini", "size": 6, "fan_out": [-1, -1]}, encoder=encoder)
    store = load_features(bundle, chosen.features)
    source = MiniBatch(bundle, store, chosen, device=CPU)
    model = model_for(bundle, chosen).eval()
    with torch.no_grad():
        adjacency = model.online.aggregator.whole(bundle.topology).normalized()
        expected = model.online(every_row(store), [adjacency, adjacency])
        for number in range(source.num_steps):
            step, queries = source.step(3, number), source.queries(3, number)[0]
            for view in step.views:
                got = model.online(view.features, view.adjacencies)[step.queries]
                torch.testing.assert_close(got, expected[queries], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fan_out", [[-1, -1], [2, 3]], ids=str)
@pytest.mark.parametrize("encoder", ENCODERS, ids=str)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_queries_part_of_a_view_gives_what_the_whole_gives_them(
    tmp_path: Path, kind: str, encoder: dict, fan_out: list[int]
) -> None:
    """Of the same dropped edges and columns, and with nothing that the queries do not hear of."""
    features = np.random.default_rng(1).normal(size=(60, 12)).astype(np.float32)
    if kind == "sparse":
        features[np.random.default_rng(2).random(features.shape) < 0.8] = 0
    bundle = make_bundle(tmp_path, nodes=60, edges=90, features=features)
    chosen = settings(batch={"mode": "mini", "size": 5, "fan_out": fan_out}, encoder=encoder)
    source = MiniBatch(bundle, load_features(bundle, chosen.features), chosen, device=CPU)
    model = model_for(bundle, chosen).eval()
    step = source.step(0, 0)
    for view, part in zip(step.views, step.query_views, strict=True):
        whole = model.online(view.features, view.adjacencies)
        torch.testing.assert_close(model.online(part.features, part.adjacencies), whole[step.queries])
        assert part.features.shape[0] < view.features.shape[0]
        assert part.features.shape[0] == part.adjacencies[0].shape[1]


def test_views_have_self_loops_of_training_and_embeddings_their_own(bundle: Bundle) -> None:
    chosen = no_dropping(encoder={"layers": [8], "self_loop_weight": 4.0, "embedding_self_loop_weight": 16.0})
    store = load_features(bundle, chosen.features)
    source = FullBatch(bundle, store, chosen, device=CPU)
    topology = reordered(bundle.topology, source.order)
    expected = GraphAdjacency(topology, self_loop_weight=4).normalized()
    for view in source.step(0, 0).views:
        assert torch.equal(view.adjacencies[0].values, expected.values)
    whole = model_for(bundle, chosen).online.aggregator.whole(topology).normalized()
    assert torch.equal(whole.values, GraphAdjacency(topology, self_loop_weight=16).normalized().values)


def test_mini_batch_shares_sum_to_the_loss_of_their_nodes(bundle: Bundle) -> None:
    """In eval mode a batch's company changes nothing, so workers' shares must sum to one worker's step."""
    one = no_dropping(batch={"mode": "mini", "size": 12, "fan_out": [-1, -1]})
    two = no_dropping(batch={"mode": "mini", "size": 6, "fan_out": [-1, -1]})
    store = load_features(bundle, one.features)
    model = model_for(bundle, one).eval()
    alone = MiniBatch(bundle, store, one, device=CPU)
    pair = [MiniBatch(bundle, store, two, rank=rank, world_size=2, device=CPU) for rank in (0, 1)]
    assert alone.num_steps == pair[0].num_steps == pair[1].num_steps == 4
    with torch.no_grad():
        for number in range(4):
            expected = model(alone.step(0, number))
            shares = sum(model(source.step(0, number)) for source in pair)
            torch.testing.assert_close(shares, expected, rtol=1e-4, atol=1e-5)


def test_a_worker_without_queries_takes_part_with_zero_gradients(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path, nodes=9, edges=6)
    chosen = settings(batch={"mode": "mini", "size": 4, "fan_out": [2, 2]})
    source = MiniBatch(bundle, load_features(bundle, chosen.features), chosen, rank=0, world_size=10, device=CPU)
    model = model_for(bundle, chosen)
    step = source.step(0, 0)
    loss = model(step)[0]
    loss.backward()
    assert step.queries == slice(0, 0)
    assert float(loss.detach()) == 0
    for name, parameter in [*model.online.named_parameters(), *model.predictor.named_parameters()]:
        assert parameter.grad is not None, name
        assert not parameter.grad.any(), name


def test_a_preset_is_laid_under_the_spec(tmp_path: Path) -> None:
    spec = {"bundle": tmp_path, "out": tmp_path / "e", "work": tmp_path / "w", "settings": {"preset": "cora"}}
    assert TrainSpec.model_validate(spec).settings.anchors.num_global == 128
