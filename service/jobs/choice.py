"""Which of the queued jobs start now, and what the others wait for.

Strictly by priority, then age. A job that lacks cores, GPUs, memory or room holds back all behind it, so that a large
one gets its turn as those that run end. One that waits for its graph or for disk holds back none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from service.jobs.resources import Capacity, Resources
from service.sizes import size_text
from service.store import Job

__all__ = ["Choice", "choose", "given"]


@dataclass
class Choice:
    """Jobs to start, each with its GPUs; jobs that this server can never start, with the reason; and what each of
    the others waits for, as ``code`` and ``detail``.
    """

    start: list[tuple[Job, list[str]]] = field(default_factory=list)
    impossible: list[tuple[Job, str]] = field(default_factory=list)
    waiting: list[tuple[Job, dict[str, str]]] = field(default_factory=list)


def choose(active: Sequence[Job], have: Capacity, max_running: int, disk: Callable[[Job, int], str | None]) -> Choice:
    """Choose among the unfinished jobs.

    ``disk`` tells what a job lacks of disk, with so many bytes of it promised to others.
    """
    choice, front = Choice(), None
    running = [job for job in active if job.status != "queued"]
    free = list(have.devices)
    for job in running:
        free = [device for device in free if device not in (job.devices or ())]
    for job in sorted(active, key=lambda job: (-job.priority, job.id)):
        if job.status != "queued" or job.cancel_requested:
            continue
        need = given(job, have)
        beyond = _lack(need, have.cores, have.gpus, have.memory_bytes)
        if beyond is not None and have.cluster:
            # Machines come back. It was refused at submit if they were never there.
            choice.waiting.append((job, {"code": beyond[0], "detail": f"the cluster has too little: {beyond[1]}"}))
            continue
        if beyond is not None:
            choice.impossible.append((job, beyond[1]))
            continue
        reason = _graph(job, running)
        if reason is None and front is not None:
            reason = ("turn", f"{front.id} is in front of it")
        elif reason is None:
            reason = _room(running, max_running) or _left(need, have, free, running)
            if reason is not None:
                front = job
            else:
                lack = disk(job, sum(_disk(given(other, have)) for other in running))
                reason = None if lack is None else ("disk", lack)
        if reason is not None:
            choice.waiting.append((job, {"code": reason[0], "detail": reason[1]}))
            continue
        choice.start.append((job, free[: need.gpus]))
        free = free[need.gpus :]
        running.append(job)
    return choice


def given(job: Job, have: Capacity) -> Resources:
    """What a job is given; one submitted to a version that did not say gets every core."""
    return Resources(**job.resources) if job.resources is not None else Resources(have.cores, 0, 0, 0, 0)


def _graph(job: Job, running: Sequence[Job]) -> tuple[str, str] | None:
    other = next((other.id for other in running if other.graph == job.graph), None)
    return None if other is None else ("graph", f"{other} works on its graph")


def _room(running: Sequence[Job], most: int) -> tuple[str, str] | None:
    return ("room", f"{most} jobs run, the setting max_running") if len(running) >= most else None


def _left(need: Resources, have: Capacity, free: Sequence[str], running: Sequence[Job]) -> tuple[str, str] | None:
    held = [given(job, have) for job in running]
    cores = have.cores - sum(other.cores for other in held)
    return _lack(need, cores, len(free), have.memory_bytes - sum(other.memory_bytes for other in held))


def _lack(need: Resources, cores: int, gpus: int, memory: int) -> tuple[str, str] | None:
    for code, wanted, there, told, unit in (
        ("cores", need.cores, cores, str, "cores"),
        ("gpus", need.gpus, gpus, str, "GPUs"),
        ("memory", need.memory_bytes, memory, size_text, "of memory"),
    ):
        if wanted > max(there, 0):
            return code, f"it needs {told(wanted)} {unit}, and {told(max(there, 0))} are free"
    return None


def _disk(held: Resources) -> int:
    return held.disk_bytes + held.bundle_bytes
