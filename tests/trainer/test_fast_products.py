"""The kernels of a training step against the same mathematics in float64."""

import itertools
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch

from trainer.dense import TALL_ROWS, rows_times
from trainer.objectives.divergence import divergence, divergence_rows
from trainer.objectives.unit_rows import unit_rows
from trainer.row_threads import over_rows

Divergence = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_unit_rows_and_their_gradient_are_those_of_torch() -> None:
    x = (3 * normal(5, 7, seed=0).double()).requires_grad_()
    torch.testing.assert_close(unit_rows(x), torch.nn.functional.normalize(x))
    assert torch.autograd.gradcheck(unit_rows, (x,))
    assert torch.equal(unit_rows(torch.zeros(2, 3)), torch.zeros(2, 3))


@pytest.mark.parametrize("rows", [3, TALL_ROWS + 3])
@pytest.mark.parametrize("with_bias", [True, False])
def test_rows_times_a_weight_and_its_gradients(rows: int, with_bias: bool) -> None:
    x, weight, bias = normal(rows, 20, seed=1), normal(20, 12, seed=2), normal(12, seed=3)
    given = (x, weight, bias) if with_bias else (x, weight)
    exact = [tensor.double().requires_grad_() for tensor in given]
    expected = exact[0] @ exact[1] + (exact[2] if with_bias else 0)
    got_of = [tensor.clone().requires_grad_() for tensor in given]
    got = rows_times(*got_of)
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)
    slope = normal(rows, 12, seed=4)
    for ours, theirs in zip(
        torch.autograd.grad(got, got_of, slope), torch.autograd.grad(expected, exact, slope.double()), strict=True
    ):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-3)


def by_kernel(student: torch.Tensor, teacher: torch.Tensor, *, reverse: bool) -> tuple[torch.Tensor, torch.Tensor]:
    loss = torch.empty(len(student))
    divergence_rows(student.numpy(), teacher.numpy(), reverse, loss.numpy(), 0, len(student))
    return loss, student


@pytest.mark.parametrize("shape", [(TALL_ROWS, 0, 3), (TALL_ROWS, 3, 0), (0, 3, 2)])
def test_rows_times_an_empty_weight(shape: tuple[int, int, int]) -> None:
    rows, inner, columns = shape
    assert torch.equal(rows_times(torch.ones(rows, inner), torch.ones(inner, columns)), torch.zeros(rows, columns))


def test_rows_times_a_weight_of_doubles() -> None:
    x, weight = normal(TALL_ROWS, 3, seed=0).double(), normal(3, 2, seed=1).double()
    torch.testing.assert_close(rows_times(x, weight), x @ weight)


@pytest.mark.parametrize("by", [by_kernel, divergence])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("columns", [1, 7, 1000])
@pytest.mark.parametrize("spread", [1.0, 10.0, 100.0])
def test_divergence_of_logits_near_and_far_apart(by: Divergence, reverse: bool, columns: int, spread: float) -> None:
    """To the float32 accuracy of logits up to ``spread``, which is that of a temperature of 1 / spread."""
    student, teacher = (spread * normal(50, columns, seed=seed).clamp(-1, 1) for seed in (0, 1))
    one = student.double().requires_grad_()
    log_student, log_teacher = one.log_softmax(1), teacher.double().log_softmax(1)
    if reverse:
        expected = (log_student.exp() * (log_student - log_teacher)).sum(1)
    else:
        expected = (log_teacher.exp() * (log_teacher - log_student)).sum(1)
    (slope,) = torch.autograd.grad(expected.sum(), one)
    loss, gradient = by(student.clone(), teacher.clone(), reverse=reverse)
    torch.testing.assert_close(loss.double(), expected.detach(), rtol=1e-5, atol=1e-6 * spread)
    torch.testing.assert_close(gradient.double(), slope, rtol=1e-4, atol=1e-6 * spread * (spread if reverse else 1))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("level", [1e2, 1e4])
def test_large_logits_close_to_each_other_keep_their_digits(reverse: bool, level: float) -> None:
    """Logits of ``level``, the teacher's 1 apart from the student's."""
    student = level * normal(200, 3, seed=0).sign()
    teacher = student + normal(200, 3, seed=1)
    log_student, log_teacher = (logits.double().log_softmax(1) for logits in (student, teacher))
    pair = (log_student, log_teacher) if reverse else (log_teacher, log_student)
    expected = (pair[0].exp() * (pair[0] - pair[1])).sum(1)
    loss, _ = by_kernel(student, teacher, reverse=reverse)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("place", [0, 5, 16])
def test_a_logit_that_is_no_number_makes_its_row_no_number(bad: float, side: int, place: int) -> None:
    """A run that diverges must be seen to, and its other rows are not touched."""
    logits = [normal(3, 17, seed=seed) for seed in (0, 1)]
    logits[side][1, place] = bad
    loss, gradient = by_kernel(logits[0], logits[1], reverse=False)
    assert torch.isfinite(loss).tolist() == [True, False, True]
    assert not torch.isfinite(gradient[1]).all()
    assert torch.isfinite(gradient[[0, 2]]).all()


def test_every_row_is_computed_once_by_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    counts, calls, meeting = np.zeros(1000, np.int64), itertools.count(), threading.Barrier(2, timeout=10)

    def kernel(first: int, last: int) -> None:
        if next(calls) < 2:
            meeting.wait()  # Raises where one thread makes both calls.
        counts[first:last] += 1

    over_rows(kernel, np.arange(1001) ** 2, 1 << 30)
    assert counts.tolist() == [1] * 1000


def test_what_a_helping_thread_raises_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    raised = threading.Event()

    def kernel(first: int, last: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            raised.set()
            raise ZeroDivisionError
        assert raised.wait(5)

    with pytest.raises(ZeroDivisionError):
        over_rows(kernel, np.arange(1001), 1 << 30)
