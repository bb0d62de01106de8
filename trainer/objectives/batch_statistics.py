"""One pass normalised by the batch statistics of another, with the gradient of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["normalizing_by", "recording"]

Statistics = Mapping[nn.BatchNorm1d, tuple[Tensor, Tensor]]


@contextmanager
def recording(network: nn.Module) -> Iterator[Statistics]:
    """The mean and variance of what comes to every BatchNorm in training mode, filled in by the pass made inside."""
    statistics: dict[nn.BatchNorm1d, tuple[Tensor, Tensor]] = {}

    def record(norm: nn.BatchNorm1d) -> Callable[..., None]:
        def hook(_: nn.Module, inputs: Any) -> None:
            variance, mean = torch.var_mean(inputs[0], dim=0, correction=0)
            statistics[norm] = mean, variance

        return hook

    with ExitStack() as hooks:
        for module in network.modules():
            if isinstance(module, nn.BatchNorm1d) and module.training:
                hooks.enter_context(module.register_forward_pre_hook(record(module)))
        yield statistics


@contextmanager
def normalizing_by(statistics: Statistics) -> Iterator[None]:
    """Their BatchNorms normalise by ``statistics`` in place of their running ones, which stay as they are.

    The statistics keep their gradient: taken for constants, they would teach the layers before to run away from them.
    """
    running = {norm: (norm.running_mean, norm.running_var) for norm in statistics}
    try:
        for norm, (mean, variance) in statistics.items():
            norm.running_mean, norm.running_var = mean, variance
            norm.eval()
        yield
    finally:
        for norm, (kept_mean, kept_variance) in running.items():
            norm.running_mean, norm.running_var = kept_mean, kept_variance
            norm.train()
