"""Shards as Ray tasks: the driver hands out numbers and counts; files pass between machines, arrays do not."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from preprocessing.again import again
from preprocessing.errors import ResourceError, RgrlError, WorkerLostError
from preprocessing.ray_cluster import connected

__all__ = ["run_shards"]

Result = TypeVar("Result")

RETRIES = 3
"""How often Ray starts a shard again whose worker was lost."""
PATIENCE_S = 30.0
"""How long cancelled shards may take to end."""
CONTINUE = "it continues from the shards that are done"


def run_shards(
    work: Callable[[int], Result], shards: Sequence[int], workers: int, threads: int
) -> Generator[tuple[int, Result]]:
    """``work(shard)`` for every shard, ``workers`` at a time with ``threads`` cores each; yields them as they end.

    ``work`` is pickled by Ray, and runs on machines where rgrl is installed and the paths it reads and writes are
    mounted. ``ResourceError`` at once when no machine has so many cores;
    ``WorkerLostError`` when a shard's worker is lost time and again; an ``RgrlError`` of ``work`` comes as it is.
    However it ends, closed or interrupted too, no shard is in work any more afterwards.
    """
    with connected() as ray:
        cores = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
        if sum(core // threads for core in cores) < workers:
            raise ResourceError(
                "the cluster is too small for this run",
                given=f"{workers} workers of {threads} cores; there are machines of {', '.join(map(str, cores))} cores",
                expected="no more workers than the cluster has room for",
                remedy="lower num_workers (0 runs in the stage's own process) or threads, or add machines",
                pointer="/settings/num_workers",
            )

        def run(shard: int) -> Result:
            return work(shard)

        task = ray.remote(num_cpus=threads, max_retries=RETRIES)(run)
        waiting = list(reversed(shards))
        running: dict[Any, int] = {}
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    shard = waiting.pop()
                    running[task.remote(shard)] = shard
                [done], _ = ray.wait(list(running), num_returns=1)
                shard = running.pop(done)
                try:
                    yield shard, ray.get(done)
                except ray.exceptions.RayTaskError as error:
                    if isinstance(error.cause, RgrlError):
                        raise error.cause from error
                    raise WorkerLostError(
                        f"shard {shard} failed", given=str(error.cause), remedy=again(CONTINUE)
                    ) from error
                except ray.exceptions.RayError as error:
                    raise WorkerLostError(
                        f"the worker of shard {shard} was lost", given=str(error), remedy=again(CONTINUE)
                    ) from error
        finally:
            for reference in running:
                ray.cancel(reference, force=True)
            if running:
                ray.wait(list(running), num_returns=len(running), timeout=PATIENCE_S)
