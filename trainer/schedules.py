"""What changes over a run: the learning rate and the target's decay, as functions of the step alone."""

from __future__ import annotations

import math

from trainer.settings import OptimizerSettings

__all__ = ["ema_decay", "learning_rate", "lr_factor"]


def learning_rate(settings: OptimizerSettings, step: int, steps_per_epoch: int, total_steps: int) -> float:
    """The rate of step 0 … ``total_steps`` − 1: up to ``lr`` over the warm-up, then as the schedule says."""
    warmup = settings.warmup_epochs * steps_per_epoch
    if step < warmup:
        return settings.lr * (step + 1) / warmup
    if settings.schedule == "constant":
        return settings.lr
    return settings.lr * _cosine((step - warmup) / (total_steps - warmup))


def lr_factor(settings: OptimizerSettings, batches: int) -> float:
    """What the rate is multiplied by where a step of the optimizer is made of so many batches."""
    power = {"none": 0.0, "sqrt": 0.5, "linear": 1.0}[settings.lr_scaling]
    return float(batches**power)


def ema_decay(settings: OptimizerSettings, step: int, total_steps: int) -> float:
    """γ after step ``step``: constant, or 1 − (1−γ) (1 + cos πt/T) / 2 (Thakoor et al., 2022, App. B)."""
    if settings.ema_schedule == "constant":
        return settings.ema_decay
    return 1 - (1 - settings.ema_decay) * _cosine(step / total_steps)


def _cosine(progress: float) -> float:
    """From 1 at the start to 0 at the end."""
    return (1 + math.cos(math.pi * progress)) / 2
