import math

import pytest
import torch

from trainer.objectives.relational import global_divergence, local_divergence
from trainer.settings import LossSettings


def unit_rows(*shape: int, seed: int) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def softmax(values: list[float]) -> list[float]:
    top = max(values)
    parts = [math.exp(value - top) for value in values]
    return [part / sum(parts) for part in parts]


def kl(p: list[float], q: list[float]) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


def by_hand(z: list[float], h: list[float], anchors: list[list[float]], tau: float, settings: LossSettings) -> float:
    """Eqn. 1 to 3 for one query, in plain Python."""

    def similarities(query: list[float], temperature: float) -> list[float]:
        return [sum(a * b for a, b in zip(query, anchor, strict=True)) / temperature for anchor in anchors]

    student, teacher = softmax(similarities(z, settings.tau_online)), softmax(similarities(h, tau))
    return kl(teacher, student) if settings.divergence == "teacher_student" else kl(student, teacher)


@pytest.mark.parametrize("divergence", ["teacher_student", "student_teacher"])
@pytest.mark.parametrize("tau", [0.05, 1.0])
def test_global_is_the_formula(divergence: str, tau: float) -> None:
    settings = LossSettings(divergence=divergence, tau_target_global=tau, tau_online=0.2)
    z, h, anchors = unit_rows(5, 4, seed=0), unit_rows(5, 4, seed=1), unit_rows(6, 4, seed=2)
    expected = [by_hand(z[i].tolist(), h[i].tolist(), anchors.tolist(), tau, settings) for i in range(5)]
    torch.testing.assert_close(global_divergence(z, h, anchors, settings), torch.tensor(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("divergence", ["teacher_student", "student_teacher"])
@pytest.mark.parametrize("tau", [0.05, 1.0])
def test_local_is_the_formula_over_the_valid_anchors(divergence: str, tau: float) -> None:
    settings = LossSettings(divergence=divergence, tau_target_local=tau, tau_online=0.2)
    z, h, anchors = unit_rows(4, 5, seed=0), unit_rows(4, 5, seed=1), unit_rows(4, 3, 5, seed=2)
    valid = torch.tensor([[1, 1, 1], [1, 1, 0], [0, 0, 1], [1, 0, 1]], dtype=torch.bool)
    expected = [by_hand(z[i].tolist(), h[i].tolist(), anchors[i][valid[i]].tolist(), tau, settings) for i in range(4)]
    got = local_divergence(z, h, anchors.flatten(0, 1), torch.arange(12).reshape(4, 3), valid, settings)
    torch.testing.assert_close(got, torch.tensor(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("divergence", ["teacher_student", "student_teacher"])
def test_masked_anchors_take_no_part_in_the_gradient(divergence: str) -> None:
    settings = LossSettings(divergence=divergence)
    z = unit_rows(2, 5, seed=0).requires_grad_()
    anchors, h = unit_rows(2, 3, 5, seed=2), unit_rows(2, 5, seed=1)
    valid = torch.tensor([[True, True, False], [False, False, False]])

    def local_of(anchors_QKD: torch.Tensor) -> torch.Tensor:
        return local_divergence(z, h, anchors_QKD.flatten(0, 1), torch.arange(6).reshape(2, 3), valid, settings)

    gradients = []
    for scale in (1.0, -1.0):
        other = anchors.clone()
        other[0, 2] *= scale
        (gradient,) = torch.autograd.grad(local_of(other)[0], z)
        gradients.append(gradient)
    assert torch.equal(*gradients)
    assert gradients[0][0].abs().sum() > 0
    assert torch.isfinite(local_of(anchors)).all()


def test_equal_distributions_cost_nothing() -> None:
    h, anchors = unit_rows(3, 4, seed=1), unit_rows(6, 4, seed=2)
    settings = LossSettings(tau_online=0.3, tau_target_global=0.3)
    torch.testing.assert_close(global_divergence(h, h, anchors, settings), torch.zeros(3), atol=1e-6, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("divergence", ["teacher_student", "student_teacher"])
def test_gradients_are_those_of_finite_differences(
    divergence: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over blocks of two queries, with unequal weights on the queries' losses; kernels, and torch's operations."""
    for part in ("relational", "global_kernel"):
        monkeypatch.setattr(f"trainer.objectives.{part}.BLOCK_SIMILARITIES", 12)
    settings = LossSettings(divergence=divergence, tau_target_global=0.3, tau_target_local=0.4, tau_online=0.5)
    z, h, rows = (unit_rows(count, 4, seed=seed).to(dtype) for seed, count in enumerate((5, 5, 6)))
    places, valid = torch.randint(6, (5, 3), generator=torch.Generator().manual_seed(3)), torch.ones(5, 3).bool()
    valid[1, 2] = valid[4, 0] = False
    weight = torch.tensor([1.0, -2.0, 0.5, 3.0, 1.5], dtype=dtype)

    def losses(z: torch.Tensor) -> torch.Tensor:
        local = local_divergence(z, h, rows, places, valid, settings)
        return global_divergence(z, h, rows, settings) + 0.7 * local

    z.requires_grad_()
    (gradient,) = torch.autograd.grad((losses(z) * weight).sum(), z)
    step = 1e-2
    for i in range(5):
        for d in range(4):
            moved = [z.detach().clone(), z.detach().clone()]
            moved[0][i, d] += step
            moved[1][i, d] -= step
            above, below = ((losses(at) * weight).sum() for at in moved)
            assert float(gradient[i, d]) == pytest.approx(float((above - below) / (2 * step)), abs=3e-3)
