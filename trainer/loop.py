"""The training loop. It knows no Ray: a ``Context`` tells it which worker it is and how workers meet."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from preprocessing.bundle import Bundle
from preprocessing.errors import RgrlError
from preprocessing.stage import Emitter
from trainer import checkpoint, curve
from trainer.batches import FullBatch, MiniBatch, Steps, batch_mode, prefetched
from trainer.checkpoint import Progress
from trainer.features import load_features
from trainer.memory import peak_bytes
from trainer.objectives import Objective, Step, new_objective
from trainer.schedules import ema_decay, learning_rate
from trainer.settings import TrainSettings

__all__ = ["Context", "Job", "run"]

REPORT_STEPS = 100
"""Steps between metrics inside a long epoch; every epoch's end reports."""


@dataclass(frozen=True)
class Job:
    """A run as every worker is told it; ``resume`` is the checkpoint to go on from."""

    bundle: Path
    work: Path
    settings: TrainSettings
    fingerprint: str
    resume: Path | None = None


class Context(Protocol):
    """One worker among several."""

    @property
    def rank(self) -> int:
        """From 0; rank 0 writes the checkpoints."""

    @property
    def world_size(self) -> int:
        """How many workers there are."""

    @property
    def device(self) -> torch.device:
        """Where this worker computes."""

    @property
    def emitter(self) -> Emitter:
        """Where this worker's events go; only those of rank 0 are kept."""

    def wrap(self, model: Objective) -> nn.Module:
        """The model with gradients averaged over workers."""

    def mean(self, tensor: Tensor) -> Tensor:
        """The mean over workers, on all of them."""


def run(job: Job, context: Context) -> None:
    """Train to the last epoch; what comes of it are the checkpoints and snapshots under ``job.work``.

    ``RgrlError`` when the loss is not finite.
    """
    settings = job.settings
    bundle = Bundle(job.bundle)
    store = load_features(bundle, settings.features)
    mode = FullBatch if batch_mode(settings.batch, bundle.num_nodes) == "full" else MiniBatch
    steps = mode(bundle, store, settings, rank=context.rank, world_size=context.world_size, device=context.device)
    model = new_objective(store.num_columns, settings, len(bundle.relations)).to(context.device)
    optimizer = torch.optim.AdamW(
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        lr=settings.optimizer.lr,
        weight_decay=settings.optimizer.weight_decay,
        fused=True,
    )
    progress = Progress(context.device.type)
    if job.resume is not None:
        progress = replace(checkpoint.load(job.resume, model, optimizer), device=progress.device)
    _Training(job, context, steps, model, optimizer, progress).run()


class _Training:
    """A run in progress on one worker."""

    def __init__(
        self,
        job: Job,
        context: Context,
        steps: Steps,
        model: Objective,
        optimizer: torch.optim.Optimizer,
        progress: Progress,
    ) -> None:
        self.job, self.context, self.steps = job, context, steps
        self.model, self.wrapped, self.optimizer = model, context.wrap(model), optimizer
        self.progress = progress
        self.total_steps = job.settings.run.epochs * steps.num_steps
        self.window = _Window()
        self.epoch_losses: list[tuple[float, int]] = []

    def run(self) -> None:
        epochs = self.job.settings.run.epochs
        last = self.steps.num_steps - 1
        for epoch, number, step in prefetched(self.steps, self.progress.epoch, epochs):
            self.window.waited()
            self._train(step)
            if number == last:
                self.progress = replace(self.progress, epoch=epoch + 1)
            if number == last or (number + 1) % REPORT_STEPS == 0:
                self._report()
            if number == last:
                self._decide()
                self._keep()
            done = self.progress.steps
            self.context.emitter.progress(done, done if self.progress.stopped else self.total_steps, "steps")
            if self.progress.stopped:
                break

    def _train(self, step: Step) -> None:
        settings = self.job.settings
        done = self.progress.steps
        self.optimizer.param_groups[0]["lr"] = learning_rate(
            settings.optimizer, done, self.steps.num_steps, self.total_steps
        )
        self.wrapped.train(settings.encoder.batch_norm_statistics == "batch" or done == 0)
        losses = self.wrapped(step)
        self.optimizer.zero_grad()
        # Workers' gradients are averaged, their shares of the loss are to be summed.
        (losses[0] * self.context.world_size).backward()
        self.optimizer.step()
        self.model.update_target(ema_decay(settings.optimizer, done, self.total_steps))
        self.progress = replace(self.progress, steps=done + 1)
        self.window.add(losses.detach(), step.num_queries)

    def _report(self) -> None:
        """Metrics of the steps since the last report, over all workers; every worker calls this equally often."""
        window, self.window = self.window, _Window()
        losses = (self.context.mean(torch.as_tensor(window.losses)) * self.context.world_size / window.steps).tolist()
        if not all(math.isfinite(loss) for loss in losses):
            raise RgrlError(
                "the loss is not finite",
                given=f"{losses[0]} in epoch {self.progress.epoch}, step {self.progress.steps}",
                remedy="lower optimizer.lr, raise the temperatures, or look for extreme feature values",
            )
        seconds = time.perf_counter() - window.began
        self.epoch_losses.append((losses[0], window.steps))
        self.progress = replace(
            self.progress,
            seconds=self.progress.seconds + seconds,
            peak_bytes=max(self.progress.peak_bytes, peak_bytes(self.context.device)),
        )
        values = dict(zip(self.model.loss_names, losses, strict=True))
        if self.context.rank == 0:
            place = {"epoch": self.progress.epoch, "step": self.progress.steps, "seconds": self.progress.seconds}
            curve.append(self.job.work, {**place, **values})
        values |= {
            "lr": self.optimizer.param_groups[0]["lr"],
            "nodes_per_s": window.queries / seconds,
            "data_wait_s": window.wait_s,
        }
        self.context.emitter.metrics(self.progress.steps, values)

    def _decide(self) -> None:
        """Whether the run ends here for what its loss does. The loss is all workers', and so is the answer."""
        stop = self.job.settings.run.stop
        loss = sum(loss * steps for loss, steps in self.epoch_losses) / sum(steps for _, steps in self.epoch_losses)
        self.epoch_losses = []
        plateau = self.progress.plateau.after(loss, stop.window, stop.tolerance)
        stopped = stop.rule == "plateau" and plateau.flat >= stop.patience
        self.progress = replace(self.progress, plateau=plateau, stopped=stopped)

    def _keep(self) -> None:
        """Write what is due after this epoch. Snapshots start at the first interval: the untrained encoder is one of
        evaluation's baselines already.
        """
        run, epoch = self.job.settings.run, self.progress.epoch
        last = epoch == run.epochs or self.progress.stopped
        snapshot_due = run.snapshot_every is not None and (last or epoch % run.snapshot_every == 0)
        checkpoint_due = last or epoch % run.checkpoint_every == 0
        if snapshot_due or checkpoint_due:
            self._average_statistics()
        if self.context.rank > 0:
            return
        if snapshot_due:
            checkpoint.save_snapshot(self.job.work, self.model.online, epoch)
        if checkpoint_due:
            checkpoint.save(self.job.work, self.model, self.optimizer, self.progress, self.job.fingerprint)

    def _average_statistics(self) -> None:
        """BatchNorm's running statistics differ between workers with different queries; go on with their mean."""
        for buffer in self.model.buffers():
            if buffer.is_floating_point():
                buffer.copy_(self.context.mean(buffer))


class _Window:
    """Sums over the steps between two reports."""

    def __init__(self) -> None:
        self.began = self.ready = time.perf_counter()
        self.losses: Tensor | float = 0.0
        self.steps = self.queries = 0
        self.wait_s = 0.0

    def waited(self) -> None:
        """The next step's data has come."""
        self.wait_s += time.perf_counter() - self.ready

    def add(self, losses: Tensor, queries: int) -> None:
        """A step is done."""
        self.losses = losses + self.losses
        self.steps += 1
        self.queries += queries
        self.ready = time.perf_counter()
