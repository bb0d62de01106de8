"""bfloat16 has 8 binary digits: rounding to it is off by a share of 2⁻⁸ at most."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_training import MINI, checkpoint_of, equal, train
from training_bundles import Recorder, make_bundle

from preprocessing.bundle import Bundle
from preprocessing.errors import ResourceError
from trainer.dense import TALL_ROWS, rows_times
from trainer.features import Features
from trainer.precision import check_precision, products_in
from trainer.settings import RunSettings

ROUNDING = 2.0**-8
# Two factors, and the product; a little for sums in float32.
FACTORS = (1 + ROUNDING) ** 2 - 1 + 1e-5
OBJECTIVES = ["rgrl", "bgrl", "grace", "cca_ssg", "dgi"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    values = np.random.default_rng(0).normal(3, 1, size=(40, 12)).astype(np.float32)
    return make_bundle(tmp_path_factory.mktemp("precision"), features=values)


def normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rounded(exact: torch.Tensor, magnitude: torch.Tensor) -> torch.Tensor:
    """How far from ``exact`` a product may be whose terms sum to ``magnitude`` without their signs."""
    return FACTORS * magnitude + ROUNDING * (exact.abs() + FACTORS * magnitude)


@pytest.mark.parametrize("rows", [5, TALL_ROWS + 3])
@pytest.mark.parametrize("with_bias", [True, False])
def test_products_and_their_gradients_are_off_by_their_rounding(rows: int, with_bias: bool) -> None:
    x, weight = normal(rows, 48, seed=0), normal(48, 20, seed=1)
    bias, grad = normal(20, seed=2), normal(rows, 20, seed=3)
    leaves = [leaf.requires_grad_() for leaf in (x, weight, bias)]
    with products_in("bfloat16"):
        product = rows_times(x, weight, bias if with_bias else None)
    product.backward(grad)
    assert product.dtype == torch.float32
    exact_x, exact_weight, exact_grad = (t.detach().double() for t in (x, weight, grad))
    cases = [
        (product.detach() - (bias.detach() if with_bias else 0), exact_x, exact_weight),
        (x.grad, exact_grad, exact_weight.T),
        (weight.grad, exact_x.T, exact_grad),
    ]
    for got, left, right in cases:
        assert got is not None
        exact = left @ right
        assert ((got - exact).abs() <= rounded(exact, left.abs() @ right.abs()) + 1e-5).all()
        assert (got - exact).abs().max() > 1e-4
    if with_bias:
        torch.testing.assert_close(leaves[2].grad, grad.sum(dim=0))
    assert torch.equal(rows_times(x, weight), rows_times(x, weight))
    torch.testing.assert_close(rows_times(x, weight).double(), exact_x @ exact_weight, rtol=1e-4, atol=1e-4)


def test_standardised_columns_far_from_zero_keep_their_digits() -> None:
    """Means of a thousand deviations: rounded with them, all of a column's rows would be alike."""
    x = (1000 + normal(300, 16, seed=0)).requires_grad_(False)
    mean, scale = x.double().mean(dim=0), 1 / x.double().std(dim=0)
    features, weight = Features(x, scale.float(), mean.float()), normal(16, 8, seed=1)
    left, right = x.double() - mean, scale[:, None] * weight.double()
    with products_in("bfloat16"):
        product = features @ weight
    assert ((product - left @ right).abs() <= rounded(left @ right, left.abs() @ right.abs()) + 1e-2).all()


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("kind", ["gcn", "sage_residual", "sage_skip"])
def test_losses_are_near_those_of_float32(bundle: Bundle, tmp_path: Path, objective: str, kind: str) -> None:
    """Networks of up to four products one after the other, each off by a share of some 2⁻⁸."""
    losses = {}
    parts: dict[str, Any] = {"encoder": {"kind": kind, "layers": [16, 16]}, "batch": MINI}
    for precision in ("float32", "bfloat16"):
        recorder = Recorder()
        run = {"epochs": 2, "checkpoint_every": 2, "precision": precision}
        state = train(bundle, tmp_path / precision, None, recorder, objective, run=run, **parts)
        assert {tensor.dtype for tensor in state.values()} <= {torch.float32, torch.int64}
        losses[precision] = [line["values"]["loss"] for line in recorder.of("metrics")]
    assert losses["bfloat16"] != losses["float32"]
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=4 * ROUNDING)


@pytest.mark.parametrize("batch", [{"mode": "full"}, MINI])
@pytest.mark.parametrize("objective", ["rgrl", "grace"])
def test_a_run_resumes_bit_for_bit(bundle: Bundle, tmp_path: Path, objective: str, batch: dict) -> None:
    parts = {"batch": batch, "run": {"epochs": 4, "checkpoint_every": 2, "precision": "bfloat16"}}
    straight = train(bundle, tmp_path / "a", objective=objective, **parts)
    resumed = train(bundle, tmp_path / "b", checkpoint_of(tmp_path / "a", 2), objective=objective, **parts)
    assert equal(straight, resumed)


def test_a_gpu_without_such_products_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    run, gpu = RunSettings(precision="bfloat16"), torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    with pytest.raises(ResourceError, match="no bfloat16 products") as refused:
        check_precision(run, gpu)
    assert refused.value.pointer == "/settings/run/precision"
    check_precision(RunSettings(), gpu)
    check_precision(run, torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    check_precision(run, gpu)
