"""Where a run's workers live: in this process, or under Ray Train."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from preprocessing.errors import Interrupted, ResourceError
from preprocessing.stage import Emitter, interrupts_kept
from trainer import loop
from trainer.objectives import Objective
from trainer.settings import RunSettings

__all__ = ["InProcess", "cuda_here", "launch", "uses_cuda"]


@dataclass(frozen=True)
class InProcess:
    """The only worker, in the stage's own process."""

    device: torch.device
    emitter: Emitter
    rank: int = 0
    world_size: int = 1

    def wrap(self, model: Objective) -> nn.Module:
        """The model itself."""
        return model

    def alone(self, _wrapped: nn.Module, /) -> AbstractContextManager[None]:
        """As ever."""
        return contextlib.nullcontext()

    def mean(self, tensor: Tensor) -> Tensor:
        """The tensor itself."""
        return tensor

    def interrupts(self) -> AbstractContextManager[Callable[[], Interrupted | None]]:
        """The stage's own."""
        return interrupts_kept()

    def gathered(self, rows: Tensor, _counts: Sequence[int], /) -> Tensor:
        """The rows themselves."""
        return rows


def launch(job: loop.Job, emitter: Emitter) -> None:
    """Run the job to its end with the workers and on the device that its settings name."""
    run = job.settings.run
    if run.num_workers == 0:
        loop.run(job, InProcess(torch.device("cuda" if uses_cuda(run) else "cpu"), emitter))
        return
    from trainer.ray_train import run_with_ray  # Ray takes seconds to import

    # Ray and its workers take up to a minute, in which nothing else would show.
    emitter.progress(0, run.num_workers, "Ray workers")
    run_with_ray(job)


def uses_cuda(run: RunSettings) -> bool:
    """Whether a run computes on a GPU; ``ResourceError`` where one is asked for here and there is none.

    With Ray workers the device is theirs, on machines that may have what this one lacks.
    """
    if run.num_workers > 0:
        return torch.cuda.is_available() and run.device != "cpu"
    return cuda_here(run.device, "run.device")


def cuda_here(device: str, setting: str) -> bool:
    """Whether this process computes on a GPU, by the setting of that name; ``ResourceError`` as in ``uses_cuda``."""
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise ResourceError(
            "there is no CUDA device",
            given=f"{setting} = cuda",
            expected="a CUDA device and a torch build that uses it",
            remedy=f"{setting} = cpu, or install torch with CUDA",
            pointer="/settings/" + setting.replace(".", "/"),
        )
    return available and device != "cpu"
