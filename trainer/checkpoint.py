"""Checkpoints: weights as safetensors, the rest as JSON, whole or absent.

``work/checkpoints/step-00000050/`` holds ``model.safetensors`` (online, predictor and target, with their BatchNorm
statistics), ``optimizer.safetensors``, where there is a bank its files, and ``state.json``, which is written last and
carries the files' hashes. The last ``run.keep_checkpoints`` are kept, and the best (``trainer.best``). Draws have no
state (``trainer.randomness``), so nothing else is needed to go on.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from safetensors.torch import save as serialized
from torch import Tensor

from preprocessing.artifact import hash_file, write_json
from trainer.bank import FILES, Bank
from trainer.best import Best
from trainer.encoders import Encoder, RelationEncoders
from trainer.health import Health
from trainer.objectives import Objective
from trainer.plateau import Plateau
from trainer.trend import Trend

__all__ = [
    "Progress",
    "clear",
    "count",
    "drop",
    "load",
    "load_online",
    "newest",
    "progress_of",
    "save",
    "save_snapshot",
    "snapshots",
]

MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"


@dataclass(frozen=True)
class Progress:
    """How far a run has come, over all its resumptions: whole epochs, batches, seconds; and on what device.

    ``batch`` of the ``batches`` of the epoch under way are done, ``losses`` are what they were reported with: (loss,
    batches). ``peak_bytes``: the most memory that rank 0 has held, on the GPU where it trains on one. ``stopped``: the
    run ended early. ``health`` and ``best``: what is known of the run, and of its checkpoints, so far.
    """

    device: str
    epoch: int = 0
    batch: int = 0
    batches: int = 1
    losses: tuple[tuple[float, int], ...] = ()
    steps: int = 0
    seconds: float = 0.0
    peak_bytes: int = 0
    plateau: Plateau = field(default_factory=Plateau)
    stopped: bool = False
    health: Health = field(default_factory=Health)
    best: Best = field(default_factory=Best)

    @property
    def place(self) -> int:
        """The number of the batch that comes next, from the run's first, where all epochs have ``batches``."""
        return self.epoch * self.batches + self.batch

    def continued(self, batches: int, accumulate: int = 1) -> Progress:
        """With so many batches an epoch from now on: another number of workers takes others, from about as far, and
        from where ``accumulate`` of them begin a step.
        """
        batch = self.batch * batches // self.batches
        return replace(self, batch=batch - batch % accumulate, batches=batches)

    def advanced(self) -> Progress:
        """A batch later."""
        epochs, batch = divmod(self.batch + 1, self.batches)
        return replace(self, epoch=self.epoch + epochs, batch=batch, steps=self.steps + 1)


def save(
    work: Path,
    model: Objective,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    fingerprint: str,
    bank: Bank | None = None,
) -> Path:
    """Write the checkpoint of ``progress.steps``."""
    folder = work / "checkpoints"
    final = folder / _name(progress.steps)
    partial = folder / f".{final.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    _save_tensors(model.state_dict(), partial / MODEL)
    _save_tensors(_optimizer_tensors(optimizer), partial / OPTIMIZER)
    if bank is not None:
        bank.save(partial)
    names = (MODEL, OPTIMIZER, *(FILES if bank is not None else ()))
    hashes = {name: hash_file(partial / name) for name in names}
    write_json(partial / STATE, {**asdict(progress), "fingerprint": fingerprint, "files": hashes})
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)
    return final


def drop(work: Path, keep: int, best: int | None) -> None:
    """Remove all checkpoints but the last ``keep`` and that of step ``best``."""
    for old in _checkpoints(work)[:-keep]:
        if best is None or old.name != _name(best):
            shutil.rmtree(old)


def count(work: Path) -> int:
    """How many checkpoints there are, of whatever run."""
    return len(_checkpoints(work))


def newest(work: Path, fingerprint: str) -> Path | None:
    """The newest undamaged checkpoint of the run with this fingerprint."""
    for path in reversed(_checkpoints(work)):
        try:
            state = _state(path)
            whole = all(hash_file(path / name) == digest for name, digest in state["files"].items())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        if whole and state["fingerprint"] == fingerprint:
            return path
    return None


def load(path: Path, model: Objective, optimizer: torch.optim.Optimizer, bank: Bank | None = None) -> Progress:
    """Put the checkpoint's state into ``model``, ``optimizer`` and, of a run with one, the bank."""
    if bank is not None:
        bank.load(path)
    model.load_state_dict(load_file(path / MODEL))
    slots: dict[int, dict[str, Tensor]] = {}
    for name, tensor in load_file(path / OPTIMIZER).items():
        index, slot = name.split(".")
        slots.setdefault(int(index), {})[slot] = tensor
    optimizer.load_state_dict({"state": slots, "param_groups": optimizer.state_dict()["param_groups"]})
    return progress_of(path)


def progress_of(path: Path) -> Progress:
    """How far the run was at this checkpoint."""
    state = _state(path)
    # An earlier version's checkpoint tells less, and the rest begins anew.
    told = {part.name: state[part.name] for part in fields(Progress) if part.name in state}
    told["losses"] = tuple((float(loss), int(batches)) for loss, batches in told["losses"])
    told["plateau"] = Plateau(**told["plateau"])
    if "health" in told:
        health = told["health"]
        parts = {"plateau": Plateau(**health["plateau"]), "trend": Trend(**health["trend"])}
        told["health"] = Health(**{**health, **parts})
        told["best"] = Best(**told["best"])
    return Progress(**told)


def load_online(path: Path, encoder: Encoder | RelationEncoders) -> None:
    """Put the checkpoint's online encoder into ``encoder``."""
    prefix = "online."
    tensors = load_file(path / MODEL)
    encoder.load_state_dict({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})


def snapshots(work: Path) -> Path:
    """The folder of the online encoder's snapshots, ``epoch-00020.safetensors`` each."""
    return work / "snapshots"


def save_snapshot(work: Path, encoder: Encoder | RelationEncoders, epoch: int) -> None:
    """Write the online encoder as it is after ``epoch`` epochs."""
    folder = snapshots(work)
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"epoch-{epoch:05d}.safetensors"
    partial = folder / f".{final.name}"
    _save_tensors(encoder.state_dict(), partial)
    partial.replace(final)


def clear(work: Path) -> None:
    """Forget the checkpoints and snapshots of an earlier run."""
    for folder in (work / "checkpoints", snapshots(work)):
        shutil.rmtree(folder, ignore_errors=True)


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _checkpoints(work: Path) -> list[Path]:
    """From the oldest on; what is named otherwise is not ours."""
    found = [path for path in (work / "checkpoints").glob("step-*") if path.name.removeprefix("step-").isdecimal()]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))


def _state(path: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((path / STATE).read_text(encoding="utf-8"))
    return state


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    slots = optimizer.state_dict()["state"]
    return {f"{index}.{slot}": tensor for index, state in slots.items() for slot, tensor in state.items()}


def _save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Written by Python's own file, whose errors tell what the disk refused."""
    with path.open("wb") as file:
        file.write(serialized({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}))
        file.flush()
        os.fsync(file.fileno())
