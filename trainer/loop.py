"""The training loop. It knows no Ray: a ``Context`` tells it which worker it is and how workers meet."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from preprocessing.again import goes_on
from preprocessing.bundle import Bundle
from preprocessing.errors import DivergedError, Interrupted
from preprocessing.stage import Emitter
from trainer import checkpoint, curve
from trainer.bank import Bank
from trainer.batches import Steps, prefetched
from trainer.checkpoint import Progress
from trainer.copies import Copies, copied
from trainer.features import FeatureStore, load_features
from trainer.full_batch import FullBatch
from trainer.health import State
from trainer.look import Look, looks_at
from trainer.memory import peak_bytes
from trainer.mini_batch import MiniBatch
from trainer.objectives import Objective, Step, new_objective
from trainer.objectives.rgrl import RgrlObjective
from trainer.precision import check_precision, products_in
from trainer.process import release_memory
from trainer.query_order import locality_order
from trainer.schedules import ema_decay, learning_rate, lr_factor
from trainer.settings import TrainSettings

__all__ = ["Context", "Job", "run"]

REPORT_STEPS = 100
"""Batches between metrics inside a long epoch, or what accumulation rounds them up to; every epoch's end reports."""


@dataclass(frozen=True)
class Job:
    """A run as every worker is told it; ``resume`` is the checkpoint to go on from, ``logs`` where copies of its
    reports go (``trainer.copies``; default: ``work``).
    """

    bundle: Path
    work: Path
    settings: TrainSettings
    fingerprint: str
    resume: Path | None = None
    logs: Path | None = None


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

    def alone(self, wrapped: nn.Module, /) -> AbstractContextManager[None]:
        """While gradients stay this worker's own."""

    def mean(self, tensor: Tensor) -> Tensor:
        """The mean over workers, on all of them."""

    def gathered(self, rows: Tensor, counts: Sequence[int], /) -> Tensor:
        """All workers' rows, one after the other by rank; ``counts`` are how many each has."""

    def interrupts(self) -> AbstractContextManager[Callable[[], Interrupted | None]]:
        """Inside, whether the run is to end now is an answer to be asked for."""


def run(job: Job, context: Context) -> None:
    """Train to the last epoch; what comes of it are the checkpoints and snapshots under ``job.work``.

    ``DivergedError`` when the loss is not finite, ``ResourceError`` when the device lacks the precision asked for.
    """
    bundle = Bundle(job.bundle)
    job = replace(job, settings=job.settings.for_graph(bundle.num_nodes))
    settings = job.settings
    check_precision(settings.run, context.device)
    store = load_features(bundle, settings.features)
    steps = _steps(job, bundle, store, context)
    model = new_objective(store.num_columns, settings, len(bundle.relations)).to(context.device)
    optimizer = torch.optim.AdamW(
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        lr=settings.optimizer.lr,
        weight_decay=settings.optimizer.weight_decay,
        fused=True,
    )
    bank = _bank(job, bundle, context)
    progress = Progress(context.device.type)
    if job.resume is not None:
        progress = replace(checkpoint.load(job.resume, model, optimizer, bank), device=progress.device)
    with _copied(job, context, progress) as copies:
        _Training(job, context, steps, model, optimizer, progress, bank, copies).run()


def _steps(job: Job, bundle: Bundle, store: FeatureStore, context: Context) -> Steps:
    settings, rank, workers, device = job.settings, context.rank, context.world_size, context.device
    if settings.batch.mode == "full":
        return FullBatch(bundle, store, settings, rank=rank, world_size=workers, device=device)
    near_N = locality_order(bundle, job.work) if settings.batch.order == "near" else None
    return MiniBatch(bundle, store, settings, rank=rank, world_size=workers, device=device, near_N=near_N)


def _bank(job: Job, bundle: Bundle, context: Context) -> Bank | None:
    settings = job.settings
    if settings.anchors.bank == "none":
        return None
    views = len(bundle.relations) if settings.views == "relations" else 2
    shape = bundle.num_nodes, views, settings.encoder.layers[-1]
    return Bank(settings.anchors.bank, job.work, shape, context.device)


def _copied(job: Job, context: Context, progress: Progress) -> AbstractContextManager[Copies | None]:
    """Rank 0's copies of its reports."""
    if context.rank > 0:
        return contextlib.nullcontext()
    folder = job.work if job.logs is None else job.logs
    return copied(job.settings, folder, progress.steps, job.fingerprint, context.emitter.warning)


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
        bank: Bank | None,
        copies: Copies | None,
    ) -> None:
        self.copies = copies
        self.job, self.context, self.steps = job, context, steps
        self.model, self.wrapped, self.optimizer = model, context.wrap(model), optimizer
        self.bank = bank
        self.accumulate = job.settings.optimizer.accumulate
        self.progress = progress.continued(steps.num_steps, self.accumulate)
        self.total_steps = job.settings.epochs * steps.num_steps
        if job.settings.run.max_steps is not None:
            # What is left of them, from wherever a run with another number of workers goes on.
            left = job.settings.run.max_steps * self.accumulate - self.progress.steps
            self.total_steps = min(self.total_steps, self.progress.place + max(left, self.accumulate))
        self.lr_factor = lr_factor(job.settings.optimizer, context.world_size * self.accumulate)
        self.report_every = -(-REPORT_STEPS // self.accumulate) * self.accumulate
        self.window = _Window()
        self.kept_at = time.monotonic()
        self.told: State | None = None
        self.rank: float | None = None

    def run(self) -> None:
        with self.context.interrupts() as interrupted:
            self._run(interrupted)

    def _run(self, interrupted: Callable[[], Interrupted | None]) -> None:
        emitter = self.context.emitter
        for done, step in prefetched(self.steps, self.progress.place, self.total_steps, self._threads()):
            self.window.waited()
            self._train(done, step)
            self.progress = self.progress.advanced()
            epoch_ended = self.progress.batch == 0
            cut_short = done + 1 == self.total_steps and self.progress.epoch < self.job.settings.epochs
            if epoch_ended or cut_short or self.progress.batch % self.report_every == 0:
                self._report()
                if epoch_ended:
                    self._decide()
                if cut_short:
                    self.progress = replace(self.progress, stopped=True)
                self._tell()
                self._keep(epoch_ended=epoch_ended)
            if self.progress.steps % self.report_every == 0 and self.job.settings.batch.mode == "mini":
                release_memory()
            emitter.progress(done + 1, done + 1 if self.progress.stopped else self.total_steps, "steps")
            if self.progress.stopped:
                break
            asked = interrupted()
            if asked is not None and done + 1 < self.total_steps and (done + 1) % self.accumulate == 0:
                self._end(asked)

    def _end(self, asked: Interrupted) -> None:
        """Leave a checkpoint of the step that is done, for whoever goes on from it."""
        if self.window.steps > 0:
            self._report()
        self._save()
        raise Interrupted(asked.problem, remedy=goes_on(f"it continues from step {self.progress.steps}"))

    def _threads(self) -> int:
        """That make steps ahead. On a CPU they and the networks share the cores."""
        asked = self.job.settings.batch.loader_threads
        spare = 1 if self.context.device.type == "cpu" else torch.get_num_threads() - 1
        return asked or max(1, spare)

    def _train(self, done: int, step: Step) -> None:
        """One batch, the run's ``done``-th from 0; the last of those that are accumulated moves the parameters."""
        settings = self.job.settings
        self.wrapped.train(settings.encoder.batch_norm_statistics == "batch" or done == 0)
        if self.bank is not None:
            step = self.bank.served(step, self.progress.steps)
        last = (done + 1) % self.accumulate == 0
        if self.context.rank == 0 and looks_at(
            done, self.total_steps, self.steps.num_steps, self.report_every, settings.run.checkpoint_every
        ):
            self.model.look = Look()
        with contextlib.nullcontext() if last else self.context.alone(self.wrapped):
            with products_in(settings.run.precision):
                losses = self.wrapped(step)
            # Workers' gradients are averaged, their shares of the loss are to be summed.
            (losses[0] * (self.context.world_size / self.accumulate)).backward()
        if self.bank is not None:
            self._store(self.bank, step)
        if last:
            self.optimizer.param_groups[0]["lr"] = self.lr_factor * learning_rate(
                settings.optimizer, done, self.steps.num_steps, self.total_steps
            )
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.model.update_target(ema_decay(settings.optimizer, done, self.total_steps))
        self.window.add(losses.detach(), step.num_queries)

    def _store(self, bank: Bank, step: Step) -> None:
        """Every worker's queries go into every worker's bank."""
        assert step.bank is not None
        assert isinstance(self.model, RgrlObjective)
        asked = step.bank.asked
        own_QVD = self.model.query_targets_QVD.half()
        targets_TVD = self.context.gathered(own_QVD, [len(part) for part in asked])
        bank.store(np.concatenate(asked), targets_TVD, self.progress.steps)

    def _report(self) -> None:
        """Metrics of the steps since the last report, over all workers; every worker calls this equally often.

        A report is where workers agree: BatchNorm's running statistics, which differ between those with different
        queries, go on as their mean, and so a checkpoint may follow.
        """
        for buffer in self.model.buffers():
            if buffer.is_floating_point():
                buffer.copy_(self.context.mean(buffer))
        window, self.window = self.window, _Window()
        losses = (self.context.mean(torch.as_tensor(window.losses)) * self.context.world_size / window.steps).tolist()
        if not all(math.isfinite(loss) for loss in losses):
            raise DivergedError(
                "the loss is not finite",
                given=f"{losses[0]} in epoch {self.progress.epoch}, step {self.progress.steps}",
                remedy="lower optimizer.lr, or scale the features (features.transform = standardize)",
            )
        seconds = time.perf_counter() - window.began
        self.progress = replace(
            self.progress,
            losses=(*self.progress.losses, (losses[0], window.steps)),
            seconds=self.progress.seconds + seconds,
            peak_bytes=max(self.progress.peak_bytes, peak_bytes(self.context.device)),
        )
        values = dict(zip(self.model.loss_names, losses, strict=True))
        if self.context.rank == 0:
            place = {"epoch": self.progress.epoch, "step": self.progress.steps, "seconds": self.progress.seconds}
            curve.append(self.job.work, {**place, **values})
        values |= {
            "lr": self.optimizer.param_groups[0]["lr"],
            "steps_per_s": window.steps / seconds,
            "nodes_per_s": window.queries / seconds,
            "data_wait_s": window.wait_s,
            **self.steps.told(),
            "peak_bytes": self.progress.peak_bytes,
            **self._looked(),
        }
        if self.bank is not None:
            values |= self.bank.staleness()
        self.context.emitter.metrics(self.progress.steps, values)
        if self.copies is not None:
            self.copies.add(self.progress.steps, values)

    def _looked(self) -> dict[str, float]:
        """What the look at the step before this report found, if there was one."""
        look, self.model.look, self.rank = self.model.look, None, None
        if look is None:
            return {}
        collapse, cosine = look.collapse, look.cosine
        found = {} if cosine is None else {"online_target_cosine": cosine}
        if collapse is not None:
            self.rank = found["effective_rank"] = collapse.effective_rank
            self.progress = replace(self.progress, health=self.progress.health.looked(collapse))
        return found

    def _decide(self) -> None:
        """Whether the run ends here for what its loss does. The loss is all workers', and so is the answer."""
        stop = self.job.settings.run.stop
        losses = self.progress.losses
        loss = sum(loss * steps for loss, steps in losses) / sum(steps for _, steps in losses)
        plateau = self.progress.plateau.after(loss, stop.window, stop.tolerance)
        stopped = stop.rule == "plateau" and plateau.flat >= stop.patience
        health = self.progress.health.after(loss, self.job.settings.epochs)
        self.progress = replace(self.progress, losses=(), plateau=plateau, stopped=stopped, health=health)

    def _tell(self) -> None:
        """The run's state, where it is another than was told."""
        state = self.progress.health.state(self.job.settings.epochs)
        if self.context.rank == 0 and (self.told is None or state.state != self.told.state):
            self.context.emitter.health(state.state, state.reason)
            self.told = state

    def _keep(self, *, epoch_ended: bool) -> None:
        """Write what is due after a report. Snapshots start at the first interval: the untrained encoder is one of
        evaluation's baselines already.
        """
        if self.context.rank > 0:
            return
        run, epoch = self.job.settings.run, self.progress.epoch
        last = self.progress.stopped or (epoch_ended and epoch == self.job.settings.epochs)
        if run.snapshot_every is not None and epoch_ended and (last or epoch % run.snapshot_every == 0):
            checkpoint.save_snapshot(self.job.work, self.model.online, epoch)
        late = time.monotonic() - self.kept_at >= 60 * run.checkpoint_minutes
        if last or late or (epoch_ended and epoch % run.checkpoint_every == 0):
            if epoch_ended and self.rank is not None:
                best = self.progress.best.after(self.progress.steps, self.rank, settled=self.progress.health.settled)
                self.progress = replace(self.progress, best=best)
            self._save()

    def _save(self) -> None:
        job = self.job
        checkpoint.save(job.work, self.model, self.optimizer, self.progress, job.fingerprint, self.bank)
        checkpoint.drop(job.work, job.settings.run.keep_checkpoints, self.progress.best.step)
        self.kept_at = time.monotonic()


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
