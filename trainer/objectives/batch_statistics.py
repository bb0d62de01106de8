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
    """Their BatchNorms normalise by ``statistics``, and leave their running ones alone.

    The statistics keep their gradient: taken for constants, they would teach the layers before to run away from them.
    """

    def normalize(norm: nn.BatchNorm1d, mean: Tensor, variance: Tensor) -> Callable[..., Tensor]:
        def hook(_: nn.Module, inputs: Any, __: Tensor) -> Tensor:
            unit: Tensor = (inputs[0] - mean) * (variance + norm.eps).rsqrt()
            return unit * norm.weight + norm.bias

        return hook

    with ExitStack() as hooks:
        for norm, (mean, variance) in statistics.items():
            hooks.enter_context(norm.register_forward_hook(normalize(norm, mean, variance)))
            hooks.callback(norm.train)
            norm.eval()
        yield
