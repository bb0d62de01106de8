"""What the networks' dense products are of: float32 or, by ``run.precision``, bfloat16.

Not torch's autocast, which goes by operation: it would also take the loss's similarities, which temperatures of 0.01
multiply, and PReLU for operations of few digits. Here ``dense.rows_times`` alone asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

from preprocessing.errors import ResourceError
from trainer.settings import RunSettings

__all__ = ["check_precision", "products_in", "rounds_products"]

_BFLOAT16_CAPABILITY = (8, 0)

_rounds: ContextVar[bool] = ContextVar("rounds_products", default=False)


@contextmanager
def products_in(precision: str) -> Iterator[None]:
    """The precision of the products whose forward this thread computes inside; their backward has the same."""
    token = _rounds.set(precision == "bfloat16")
    try:
        yield
    finally:
        _rounds.reset(token)


def rounds_products() -> bool:
    """Whether factors are rounded to bfloat16."""
    return _rounds.get()


def check_precision(run: RunSettings, device: torch.device) -> None:
    """``ResourceError`` where ``device`` has no products of the precision asked for. CPUs have all, slow or not."""
    if run.precision == "float32" or device.type != "cuda":
        return
    capability = torch.cuda.get_device_capability(device)
    if capability < _BFLOAT16_CAPABILITY:
        raise ResourceError(
            "the GPU has no bfloat16 products",
            given=f"run.precision = bfloat16 on a device of compute capability {capability[0]}.{capability[1]}",
            expected="compute capability 8.0 (Ampere) or later",
            remedy="run.precision = float32",
            pointer="/settings/run/precision",
        )
