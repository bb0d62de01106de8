import copy
import math
from pathlib import Path

import pytest
import torch
from training_bundles import make_bundle, settings_document

from preprocessing.bundle import Bundle
from trainer.augment import View
from trainer.features import load_features
from trainer.full_batch import FullBatch
from trainer.mini_batch import MiniBatch
from trainer.objectives import Objective, Step, contrast, new_objective
from trainer.randomness import Purpose
from trainer.settings import TrainSettings

CPU = torch.device("cpu")
RIVALS = ["bgrl", "grace", "gca", "cca_ssg", "dgi"]
MINI = {"mode": "mini", "size": 8, "fan_out": [3, 3]}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return make_bundle(tmp_path_factory.mktemp("rivals"), nodes=24, edges=30)


def settings(objective: str, **parts: dict) -> TrainSettings:
    return TrainSettings.model_validate(settings_document(**parts) | {"objective": objective})


def step_of(bundle: Bundle, chosen: TrainSettings, rank: int = 0, world_size: int = 1, number: int = 0) -> Step:
    source = FullBatch if chosen.batch.mode == "full" else MiniBatch
    store = load_features(bundle, chosen.features)
    return source(bundle, store, chosen, rank=rank, world_size=world_size, device=CPU).step(0, number)


def outputs(model: Objective, step: Step) -> list[torch.Tensor]:
    """The online embeddings of both views, from a copy whose statistics may move."""
    twin = copy.deepcopy(model)
    with torch.no_grad():
        return [twin.online(view.features, view.adjacencies).double() for view in step.views]


def unit(rows: torch.Tensor) -> torch.Tensor:
    return rows / rows.norm(dim=1, keepdim=True)


def test_bgrl_is_the_distance_to_the_other_views_target(bundle: Bundle) -> None:
    chosen = settings("bgrl")
    step, model = step_of(bundle, chosen), new_objective(12, chosen)
    with torch.no_grad():
        model.target.layers[0].weight.mul_(1.5).add_(0.1)
        z = [unit(copy.deepcopy(model.predictor).double()(h)) for h in outputs(model, step)]
        h = [unit(copy.deepcopy(model.target)(view.features, view.adjacencies).double()) for view in step.views]
    expected = 0.0
    for i in range(bundle.num_nodes):
        expected += 2 - 2 * float(z[0][i] @ h[1][i]) + 2 - 2 * float(z[1][i] @ h[0][i])
    assert model(step).tolist() == pytest.approx([expected / bundle.num_nodes], rel=1e-4)


def grace_by_loops(z: list[torch.Tensor], tau: float) -> float:
    total, nodes = 0.0, len(z[0])
    for u, v in ((z[0], z[1]), (z[1], z[0])):
        for i in range(nodes):
            positive = math.exp(float(u[i] @ v[i]) / tau)
            across = sum(math.exp(float(u[i] @ v[k]) / tau) for k in range(nodes) if k != i)
            within = sum(math.exp(float(u[i] @ u[k]) / tau) for k in range(nodes) if k != i)
            total -= math.log(positive / (positive + across + within))
    return total / (2 * nodes)


@pytest.mark.parametrize("objective", ["grace", "gca"])
def test_grace_tells_a_node_from_all_others_of_both_views(bundle: Bundle, objective: str) -> None:
    chosen = settings(objective, loss={"tau_contrast": 0.3})
    step, model = step_of(bundle, chosen), new_objective(12, chosen)
    with torch.no_grad():
        z = [unit(copy.deepcopy(model.projector).double()(h)) for h in outputs(model, step)]
    assert model(step).tolist() == pytest.approx([grace_by_loops(z, 0.3)], rel=1e-4)


def test_the_streamed_contrast_is_the_whole_one_and_so_is_its_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contrast, "BLOCK_LOGITS", 40)
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(7, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    keys = torch.randn(12, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    positive, excluded = torch.arange(7), torch.arange(7) + 3
    whole = queries @ keys.T
    masked = whole.masked_fill(torch.nn.functional.one_hot(excluded, 12).bool(), -torch.inf)
    expected = (masked.logsumexp(dim=1) - whole[torch.arange(7), positive]).sum()
    got = contrast.contrast(queries, keys, positive, excluded)
    torch.testing.assert_close(got, expected)
    for one, other in zip(
        torch.autograd.grad(3 * got, (queries, keys)), torch.autograd.grad(3 * expected, (queries, keys)), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_cca_ssg_is_agreement_and_decorrelation(bundle: Bundle) -> None:
    chosen = settings("cca_ssg", loss={"decorrelation": 0.05})
    step, model = step_of(bundle, chosen), new_objective(12, chosen)
    nodes, width = bundle.num_nodes, 8
    z = []
    for h in outputs(model, step):
        columns = [[float(x) for x in h[:, d]] for d in range(width)]
        means = [sum(column) / nodes for column in columns]
        deviations = [
            math.sqrt(sum((x - m) ** 2 for x in column) / nodes + 1e-5)
            for column, m in zip(columns, means, strict=True)
        ]
        z.append([[(x - m) / d for x in column] for column, m, d in zip(columns, means, deviations, strict=True)])
    invariance = sum((z[0][d][i] - z[1][d][i]) ** 2 for d in range(width) for i in range(nodes)) / (2 * nodes)
    decorrelation = sum(
        (sum(view[c][i] * view[d][i] for i in range(nodes)) / nodes - (c == d)) ** 2
        for view in z
        for c in range(width)
        for d in range(width)
    )
    assert model(step).tolist() == pytest.approx(
        [invariance + 0.05 * decorrelation, invariance, decorrelation], rel=1e-3
    )


def normalized_as_real(model: Objective, view: View, x: torch.Tensor) -> torch.Tensor:
    """The encoder's output for features x, layer by layer, with the batch statistics of the view's own features."""
    real, other = view.features, x
    with torch.no_grad():
        for layer, adjacency in zip(model.online.layers, view.adjacencies, strict=True):
            real, other = (adjacency.matmul(h @ layer.weight) + layer.bias for h in (real, other))
            mean, deviation = real.mean(dim=0), (real.var(dim=0, correction=0) + 1e-5).sqrt()
            real, other = (layer.activation((h - mean) / deviation) for h in (real, other))
    return other.double()


def test_dgi_tells_nodes_from_nodes_with_permuted_features(bundle: Bundle) -> None:
    chosen = settings("dgi")
    step, model = step_of(bundle, chosen), new_objective(12, chosen)
    generator = step.draw.torch(Purpose.CORRUPTION, CPU)
    expected, nodes = 0.0, bundle.num_nodes
    matrix = model.discriminator.detach().double()
    for view, real in zip(step.views, outputs(model, step), strict=True):
        order = torch.randperm(nodes, generator=generator, dtype=torch.int32).long()
        assert not torch.equal(order, torch.arange(nodes))
        corrupt = normalized_as_real(model, view, (view.features.matrix * view.features.scale_F)[order])
        summary = torch.sigmoid(real.mean(dim=0))
        for i in range(nodes):
            expected -= math.log(1 / (1 + math.exp(-float(real[i] @ matrix @ summary))))
            expected -= math.log(1 - 1 / (1 + math.exp(-float(corrupt[i] @ matrix @ summary))))
    assert model(step).tolist() == pytest.approx([expected / (4 * nodes)], rel=1e-4)


def test_the_real_nodes_statistics_are_no_constants_to_the_corrupted(bundle: Bundle) -> None:
    """A bias before BatchNorm shifts real and corrupted nodes alike, so it can do nothing for the loss."""
    chosen = settings("dgi")
    model = new_objective(12, chosen)
    model(step_of(bundle, chosen)).backward()
    for layer in model.online.layers:
        assert layer.bias.grad.abs().max() < 1e-6
        assert layer.weight.grad.abs().max() > 1e-4


def test_corrupted_nodes_leave_no_trace_in_the_statistics(bundle: Bundle) -> None:
    chosen = settings("dgi")
    step, model = step_of(bundle, chosen), new_objective(12, chosen)
    plain = copy.deepcopy(model.online)
    for view in step.views:
        plain(view.features, view.adjacencies)
    model(step)
    for (name, one), other in zip(plain.named_buffers(), model.online.buffers(), strict=True):
        assert torch.equal(one, other), name


@pytest.mark.parametrize("batch", [{"mode": "full"}, MINI])
@pytest.mark.parametrize("objective", RIVALS)
def test_gradients_reach_everything_that_is_trained(bundle: Bundle, objective: str, batch: dict) -> None:
    chosen = settings(objective, batch=batch)
    step, model = step_of(bundle, chosen), new_objective(12, chosen)
    assert step.anchors is None
    losses = model(step)
    assert len(losses) == len(model.loss_names)
    losses[0].backward()
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            assert name.startswith("target.")
            assert parameter.grad is None
            continue
        # A bias before BatchNorm or standardised columns moves nothing: its gradient is zero but for rounding.
        assert parameter.grad.abs().max() > 0 or name.endswith("bias"), name


@pytest.mark.parametrize("objective", RIVALS)
def test_shares_of_a_full_batch_sum_to_the_whole_loss_and_gradient(bundle: Bundle, objective: str) -> None:
    chosen = settings(objective)
    whole, shared = new_objective(12, chosen), new_objective(12, chosen)
    expected = whole(step_of(bundle, chosen))
    expected[0].backward()
    shares = [shared(step_of(bundle, chosen, rank, 3)) for rank in range(3)]
    torch.testing.assert_close(sum(shares), expected, rtol=1e-4, atol=1e-5)
    for share in shares:
        share[0].backward()
    for (name, one), other in zip(whole.named_parameters(), shared.parameters(), strict=True):
        if one.grad is not None:
            torch.testing.assert_close(other.grad, one.grad, rtol=1e-3, atol=1e-5, msg=name)


@pytest.mark.parametrize("objective", RIVALS)
def test_a_worker_without_queries_takes_part_with_zero_gradients(tmp_path: Path, objective: str) -> None:
    bundle = make_bundle(tmp_path, nodes=9, edges=6)
    chosen = settings(objective, batch={"mode": "mini", "size": 4, "fan_out": [2, 2]})
    step, model = step_of(bundle, chosen, 0, 10), new_objective(12, chosen)
    assert step.queries == slice(0, 0)
    losses = model(step)
    losses[0].backward()
    assert losses.tolist() == [0.0] * len(model.loss_names)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            assert not parameter.grad.any(), name
