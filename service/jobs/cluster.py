"""What a Ray cluster has, and whether a job finds a place on its machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from preprocessing.errors import ResourceError
from service.jobs.resources import Capacity, Resources, Room, ray_workers
from service.settings import ServiceSettings
from service.sizes import size_text

__all__ = ["check_machines", "cluster_capacity"]


def cluster_capacity(machines: Sequence[Mapping[str, float]], settings: ServiceSettings) -> Capacity:
    """The sum over machines given by Ray's names of resources; or what the settings say.

    Where they say more than there is, it is a cluster that grows when it is asked to.
    """
    rooms = tuple(Room(int(has.get("CPU", 0)), int(has.get("GPU", 0)), int(has.get("memory", 0))) for has in machines)
    cores, gpus, memory = (
        sum(room.cores for room in rooms),
        sum(room.gpus for room in rooms),
        sum(room.memory_bytes for room in rooms),
    )
    most = settings.max_cores, settings.max_gpus, settings.max_memory_bytes
    grows = any(limit is not None and limit > there for limit, there in zip(most, (cores, gpus, memory), strict=True))
    cores, gpus, memory = (
        there if limit is None else limit for limit, there in zip(most, (cores, gpus, memory), strict=True)
    )
    devices = tuple(str(number) for number in range(gpus))
    return Capacity(cores, devices, memory, rooms, cluster=True, grows=grows)


def check_machines(need: Resources, spec: Mapping[str, Any], have: Capacity) -> None:
    """``ResourceError`` with have and need where the cluster has it in all but no machine for it.

    A job without Ray workers runs on one machine; of those with them, every one needs a core, and a GPU if the job has.
    """
    if not have.cluster or have.grows:
        return
    there = "; ".join(f"{r.cores} cores, {r.gpus} GPUs, {size_text(r.memory_bytes)} of memory" for r in have.machines)
    workers = ray_workers(spec)
    if workers:
        threads = spec.get("preprocess", {}).get("threads") or 1
        shards = int(spec.get("preprocess", {}).get("num_workers", 0))
        places = sum(min(room.cores, room.gpus) if need.gpus else room.cores for room in have.machines)
        if places >= workers and sum(room.cores // threads for room in have.machines) >= shards:
            return
        wanted = f"{workers} workers with a core{' and a GPU' if need.gpus else ''} each"
    else:
        if any(_fits(need, room) for room in have.machines):
            return
        wanted = f"{need.cores} cores, {need.gpus} GPUs and {size_text(need.memory_bytes)} of memory on one machine"
    raise ResourceError(
        f"the job needs {wanted}, and the cluster's machines have: {there or 'nothing, for there are none'}",
        remedy="ask for less, or add machines",
        pointer="/resources",
    )


def _fits(need: Resources, room: Room) -> bool:
    return need.cores <= room.cores and need.gpus <= room.gpus and need.memory_bytes <= room.memory_bytes
