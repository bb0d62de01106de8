"""The training loop under Ray Train: one process a worker, on this machine or on the cluster of ``RAY_ADDRESS``.

Rank 0 appends its events to the stage's own file and writes the checkpoints, so workers on other machines need
``work``, the bundle and the events file on storage that all of them mount. Ray carries no metrics and no checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from preprocessing.again import again
from preprocessing.errors import Interrupted, ResourceError, RgrlError, WorkerLostError
from preprocessing.ray_cluster import connected
from preprocessing.stage import EVENTS_VARIABLE, Emitter
from trainer import loop
from trainer.objectives import Objective
from trainer.process import THREADING, tune_process
from trainer.settings import TrainSettings

__all__ = ["Machine", "cpus_per_worker", "run_with_ray"]

ENVIRONMENT = {
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    **THREADING,
}


@dataclass(frozen=True)
class Machine:
    """What a machine of the cluster has in all."""

    cpus: int
    gpus: int


@dataclass(frozen=True)
class RayWorker:
    """One worker of a torch process group."""

    rank: int
    world_size: int
    device: torch.device
    emitter: Emitter

    def wrap(self, model: Objective) -> nn.Module:
        """DistributedDataParallel; BatchNorm's statistics stay each worker's own."""
        return nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)

    def alone(self, wrapped: nn.Module, /) -> contextlib.AbstractContextManager[None]:
        """Without DistributedDataParallel's sum over workers."""
        assert isinstance(wrapped, nn.parallel.DistributedDataParallel)
        return wrapped.no_sync()

    def mean(self, tensor: Tensor) -> Tensor:
        """All-reduced over the process group, on this worker's device."""
        total = tensor.to(self.device, copy=True)
        torch.distributed.all_reduce(total)
        return total / self.world_size

    def gathered(self, rows: Tensor, counts: Sequence[int], /) -> Tensor:
        """Gathered over the process group, padded to the same number from each."""
        padded = rows.new_zeros((max(counts), *rows.shape[1:]))
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in counts]
        torch.distributed.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    def interrupts(self) -> contextlib.AbstractContextManager[Callable[[], Interrupted | None]]:
        """None: a signal is the driver's, who ends its workers."""
        return contextlib.nullcontext(lambda: None)


def run_with_ray(job: loop.Job) -> None:
    """Run the job on ``num_workers`` Ray workers.

    ``ResourceError`` at once when the cluster is too small; ``WorkerLostError`` when a worker dies or raises anything
    but an ``RgrlError``, which comes through as it is. Whatever happens, the Ray started here is gone afterwards.
    """
    run = job.settings.run
    if "RAY_ADDRESS" not in os.environ:
        # Spare the seconds of Ray's start; GPUs are counted by Ray, and there is a CPU for each or there is no run.
        cpus_per_worker([Machine(os.cpu_count() or 1, 0)], run.num_workers, gpu=False)
    with connected(ENVIRONMENT) as ray, _storage(job.work) as storage:
        machines = [
            Machine(int(node["Resources"].get("CPU", 0)), int(node["Resources"].get("GPU", 0)))
            for node in ray.nodes()
            if node["Alive"]
        ]
        gpu = run.device == "cuda" or (run.device == "auto" and any(machine.gpus for machine in machines))
        cpus = cpus_per_worker(machines, run.num_workers, gpu=gpu)

        from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
        from ray.train.torch import TorchTrainer

        class Trainer(TorchTrainer):
            """Leaves SIGINT to ``_interruptible``, where Ray's own handler would end in an exit of another code."""

            def _register_sigint_handler(self, controller: Any) -> None: ...

        trainer = Trainer(
            _worker,
            train_loop_config=_document(job, cpus),
            scaling_config=ScalingConfig(num_workers=run.num_workers, use_gpu=gpu, resources_per_worker={"CPU": cpus}),
            run_config=RunConfig(name="rgrl", storage_path=str(storage), failure_config=FailureConfig(max_failures=0)),
        )
        try:
            trainer.fit()
        except TrainingFailedError as error:
            raise _cause(error) from error


def cpus_per_worker(machines: Sequence[Machine], num_workers: int, *, gpu: bool) -> int:
    """The most CPUs that every worker can have; ``ResourceError`` where not every worker finds a place."""
    need = f"{num_workers} workers with a CPU{' and a GPU' if gpu else ''} each"
    for cpus in range(max((machine.cpus for machine in machines), default=0), 0, -1):
        if sum(min(m.cpus // cpus, m.gpus) if gpu else m.cpus // cpus for m in machines) >= num_workers:
            return cpus
    have = (
        f"{len(machines)} machines with {sum(m.cpus for m in machines)} CPUs and {sum(m.gpus for m in machines)} GPUs"
    )
    raise ResourceError(
        "the cluster is too small for this run",
        given=f"{need}; there are {have}",
        expected="no more workers than the cluster has room for",
        remedy="lower run.num_workers (0 trains in the stage's own process), or add machines",
        pointer="/settings/run/num_workers",
    )


def _document(job: loop.Job, cpus: int) -> dict[str, Any]:
    return {
        "bundle": str(job.bundle),
        "work": str(job.work),
        "settings": job.settings.model_dump(),
        "fingerprint": job.fingerprint,
        "resume": None if job.resume is None else str(job.resume),
        "logs": None if job.logs is None else str(job.logs),
        "events": os.environ.get(EVENTS_VARIABLE),
        "threads": cpus,
    }


def _worker(document: dict[str, Any]) -> None:
    """The function that Ray runs on every worker."""
    import ray.train
    import ray.train.torch

    context = ray.train.get_context()
    rank, work = context.get_world_rank(), Path(document["work"])
    if not work.is_dir():
        raise ResourceError(
            "a worker's machine does not see the work directory",
            given=work,
            expected="bundle, work directory and events file on storage that every machine mounts",
        )
    tune_process()
    torch.set_num_threads(document["threads"])
    events = document["events"] if rank == 0 else None
    job = loop.Job(
        bundle=Path(document["bundle"]),
        work=work,
        settings=TrainSettings.model_validate(document["settings"]),
        fingerprint=document["fingerprint"],
        resume=None if document["resume"] is None else Path(document["resume"]),
        logs=None if document["logs"] is None else Path(document["logs"]),
    )
    emitter = Emitter("train", None if events is None else Path(events))
    emitter.progress(context.get_world_size(), context.get_world_size(), "Ray workers")
    loop.run(job, RayWorker(rank, context.get_world_size(), ray.train.torch.get_device(), emitter))


def _cause(error: Any) -> RgrlError:
    """A worker's own ``RgrlError`` if one raised it, else the loss of the worker, by its rank and reason."""
    failures: dict[int, BaseException] = getattr(error, "worker_failures", {})
    for failure in failures.values():
        if isinstance(failure, RgrlError):
            return failure
    if not failures:
        return WorkerLostError("training under Ray failed", given=str(error), remedy=again())
    rank, failure = min(failures.items())
    return WorkerLostError(
        f"training worker {rank} was lost",
        given=str(failure),
        remedy=again("it continues from the last checkpoint"),
    )


@contextlib.contextmanager
def _storage(work: Path) -> Iterator[Path]:
    """A directory for what Ray Train insists on storing."""
    storage = work / "ray"
    try:
        yield storage
    finally:
        shutil.rmtree(storage, ignore_errors=True)
