import math

import pytest
from pydantic import ValidationError

from trainer.schedules import ema_decay, learning_rate
from trainer.settings import OptimizerSettings, TrainSettings


def rates(steps_per_epoch: int, epochs: int, **settings: object) -> list[float]:
    chosen = OptimizerSettings.model_validate({"lr": 2.0, **settings})
    total = steps_per_epoch * epochs
    return [learning_rate(chosen, step, steps_per_epoch, total) for step in range(total)]


def test_the_rate_is_constant_unless_it_is_scheduled() -> None:
    assert rates(2, 3) == [2.0] * 6


def test_the_warm_up_is_linear_in_steps() -> None:
    assert rates(2, 4, warmup_epochs=2) == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0, 2.0, 2.0]


def test_cosine_starts_at_the_top_and_would_end_at_zero() -> None:
    got = rates(1, 6, warmup_epochs=2, schedule="cosine")
    root = math.sqrt(2)
    assert got == pytest.approx([1.0, 2.0, 2.0, 1 + root / 2, 1.0, 1 - root / 2])


def test_the_decay_grows_to_one() -> None:
    constant, cosine = (OptimizerSettings(ema_decay=0.9, ema_schedule=kind) for kind in ("constant", "cosine"))
    assert [ema_decay(constant, step, 4) for step in range(5)] == [0.9] * 5
    expected = [1 - 0.1 * (math.cos(math.pi * t / 4) + 1) / 2 for t in range(5)]
    assert [ema_decay(cosine, step, 4) for step in range(5)] == pytest.approx(expected)
    assert (expected[0], expected[2], expected[4]) == pytest.approx((0.9, 0.95, 1.0))


def test_a_warm_up_as_long_as_the_run_is_refused() -> None:
    with pytest.raises(ValidationError, match="warmup_epochs is 5"):
        TrainSettings.model_validate({"run": {"epochs": 5}, "optimizer": {"warmup_epochs": 5}})
    TrainSettings.model_validate({"run": {"epochs": 6}, "optimizer": {"warmup_epochs": 5}})
