"""What this server has of cores, GPUs, memory and disk, and what of it a job is given."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preprocessing.errors import NotNowError, ResourceError
from service.jobs.estimate import Estimate
from service.jobs.schemas import JobRequest, PipelineJob, TrainJob
from service.machine import machine
from service.settings import ServiceSettings
from service.sizes import size_text

__all__ = [
    "Capacity",
    "Resources",
    "Room",
    "capacity",
    "check_resources",
    "default_cores",
    "free_bytes",
    "needed",
    "ray_workers",
    "too_little_disk",
]


@dataclass(frozen=True)
class Room:
    """What one machine of a cluster has."""

    cores: int
    gpus: int
    memory_bytes: int


@dataclass(frozen=True)
class Capacity:
    """Cores, GPUs by the names that CUDA_VISIBLE_DEVICES gives them, and bytes of memory, for all jobs together.

    Of a cluster also its machines, if any are up, and whether it ``grows`` when more is asked for.
    """

    cores: int
    devices: tuple[str, ...]
    memory_bytes: int
    machines: tuple[Room, ...] = ()
    cluster: bool = False
    grows: bool = False

    @property
    def gpus(self) -> int:
        """How many GPUs."""
        return len(self.devices)


@dataclass(frozen=True)
class Resources:
    """What one job is given: cores and GPUs to compute on, and bytes that it may come to hold in memory, in the
    server's home and in its graph's folder.
    """

    cores: int
    gpus: int
    memory_bytes: int
    disk_bytes: int
    bundle_bytes: int


def capacity(settings: ServiceSettings) -> Capacity:
    """The machine's, or less where the settings say so; they may also say more, as for what they alone know of."""
    have = machine()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(number) for number in range(have.gpus)] if visible is None else [n for n in visible.split(",") if n]
    if settings.max_gpus is not None:
        names = names[: settings.max_gpus]
    return Capacity(settings.max_cores or have.cores, tuple(names), settings.max_memory_bytes or have.memory)


def needed(request: JobRequest, figures: Estimate, have: Capacity) -> Resources:
    """What the request asks for; else every core, a GPU for every worker that trains on one, and the estimate."""
    asked, gpus = request.resources, 0
    if isinstance(request, TrainJob | PipelineJob):
        run = request.train.run
        workers = max(run.num_workers, 1)
        gpus = {"cpu": 0, "cuda": workers, "auto": min(workers, have.gpus)}[run.device]
    gpus = gpus if asked.gpus is None else asked.gpus
    return Resources(
        asked.cores or default_cores(request.spec, have, gpus),
        gpus,
        asked.memory_bytes or figures.memory_bytes or 0,
        figures.home_bytes if asked.disk_bytes is None else asked.disk_bytes,
        figures.bundle_bytes if asked.disk_bytes is None else 0,
    )


def ray_workers(spec: Mapping[str, Any]) -> int:
    """The most Ray workers that a stage of a job of this spec asks for; 0: all is done in the stages' processes."""
    train = spec.get("train", {}).get("run", {}).get("num_workers", 0)
    return max(int(train), int(spec.get("preprocess", {}).get("num_workers", 0)))


def default_cores(spec: Mapping[str, Any], have: Capacity, gpus: int = 0) -> int:
    """All there are; of a cluster, for a job without Ray workers, those of one machine, of those with so many GPUs."""
    if ray_workers(spec) > 0 or not have.machines:
        return have.cores
    return max((room.cores for room in have.machines if room.gpus >= gpus), default=have.cores)


def check_resources(need: Resources, have: Capacity, home: Path, bundle: Path) -> None:
    """``ResourceError`` with have and need where a job can never start here, ``NotNowError`` where its disk is too full
    for it now.
    """
    for name, wanted, there, told, unit in (
        ("cores", need.cores, have.cores, str, "cores"),
        ("gpus", need.gpus, have.gpus, str, "CUDA devices"),
        ("memory_bytes", need.memory_bytes, have.memory_bytes, size_text, "of memory"),
    ):
        if wanted > there:
            less = " (train.batch: mini-batches hold less than a full batch)" if name == "memory_bytes" else ""
            owner = "the cluster" if have.cluster else "this server"
            raise ResourceError(
                f"the job needs {told(wanted)} {unit} and {owner} has {told(there)}",
                remedy=f"ask for less, in its settings{less} or as resources.{name} where the estimate is too high",
                pointer=f"/resources/{name}",
            )
    lack = too_little_disk(need, home, bundle)
    if lack is not None:
        raise NotNowError(
            lack,
            remedy="make room, or say resources.disk_bytes where the estimate is too high",
            pointer="/resources/disk_bytes",
        )


def too_little_disk(need: Resources, home: Path, bundle: Path, promised: int = 0) -> str | None:
    """What is wanting where the disks of the home and of the graph's folder have no room for a job, with have and
    need; ``promised`` bytes are other jobs', wherever they are written.
    """
    wanted: dict[int, tuple[Path, int]] = {}
    for place, size in ((home, need.disk_bytes), (bundle, need.bundle_bytes)):
        folder = _existing(place)
        device = folder.stat().st_dev
        first, before = wanted.get(device, (folder, 0))
        wanted[device] = first, before + size
    for folder, size in wanted.values():
        free = free_bytes(folder) - promised
        if size > 0 and size > free:
            return f"the job needs {size_text(size)} of disk and {size_text(max(free, 0))} are free"
    return None


def free_bytes(path: Path) -> int:
    """Bytes that may be written on the disk of ``path``, which need not exist yet."""
    return shutil.disk_usage(_existing(path)).free


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path
