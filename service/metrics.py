"""Prometheus metrics of the server; every name starts with ``rgrl_``, labels are templates and kinds, never ids."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from preprocessing.artifact import code_version
from service.store import Job, JobStatus
from service.store.lifecycle import FileEvent

__all__ = ["Metrics"]

_HOURS = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600)
_STATUSES: tuple[JobStatus, ...] = ("queued", "running", "cancelling", "succeeded", "failed", "cancelled")


class Metrics:
    """One application's figures, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(namespace="rgrl", registry=registry)
        PlatformCollector(registry=registry)
        Gauge("rgrl_build_info", "Version of the server.", ["version"], registry=registry).labels(code_version()).set(1)
        self._requests = Counter(
            "rgrl_http_requests_total", "Requests answered.", ["method", "route", "status"], registry=registry
        )
        self._request_seconds = Histogram(
            "rgrl_http_request_seconds", "Time to the end of an answer.", ["method", "route"], registry=registry
        )
        # Looking labels up costs more than counting; methods, templates and statuses are few.
        self._held: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._jobs = Gauge("rgrl_jobs", "Jobs by status.", ["status"], registry=registry)
        self._cluster = Gauge("rgrl_cluster_up", "Whether the Ray cluster answers; NaN without one.", registry=registry)
        self._home_free = Gauge("rgrl_home_free_bytes", "What may be written on the home's disk.", registry=registry)
        self._home_size = Gauge("rgrl_home_size_bytes", "Size of the home's disk.", registry=registry)
        self._queue_seconds = Histogram(
            "rgrl_job_queue_seconds", "Wait before the first start.", ["kind"], buckets=_HOURS, registry=registry
        )
        self._run_seconds = Histogram(
            "rgrl_job_run_seconds", "First start to end.", ["kind", "status"], buckets=_HOURS, registry=registry
        )
        self._figure = Gauge(
            "rgrl_stage_figure", "Newest figure a stage reported, as loss.", ["stage", "figure"], registry=registry
        )
        self._step = Gauge("rgrl_stage_step", "Step of the newest figures.", ["stage"], registry=registry)
        self._done = Gauge("rgrl_stage_done", "Units done by a stage.", ["stage", "unit"], registry=registry)
        self._recall = Gauge("rgrl_index_recall", "Measured recall of the newest index.", ["index"], registry=registry)
        lookups = Counter("rgrl_lookup_ids_total", "Ids looked up.", ["outcome"], registry=registry)
        self._found, self._missed = lookups.labels("found"), lookups.labels("missed")
        self._searches = Counter(
            "rgrl_neighbor_queries_total",
            "Neighbour queries by how they were answered.",
            ["strategy"],
            registry=registry,
        )
        self._searches_held: dict[str, Counter] = {}
        self._search_seconds = Histogram(
            "rgrl_neighbor_seconds", "Time of a neighbours call, without its JSON.", registry=registry
        )
        self.scheduler_errors = Counter(
            "rgrl_scheduler_errors_total", "Rounds of the scheduler that failed.", registry=registry
        )

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request; ``route`` is its template."""
        labels = method, route, status
        held = self._held.get(labels)
        if held is None:
            held = self._requests.labels(method, route, str(status)), self._request_seconds.labels(method, route)
            self._held[labels] = held
        count, took = held
        count.inc()
        took.observe(seconds)

    def started(self, job: Job) -> None:
        """Note how long a job waited for its first start."""
        if job.attempt == 1 and job.started_at is not None:
            self._queue_seconds.labels(job.kind).observe(_seconds(job.created_at, job.started_at))

    def ended(self, job: Job) -> None:
        """Note how long a job ran."""
        if job.started_at is not None and job.ended_at is not None:
            self._run_seconds.labels(job.kind, job.status).observe(_seconds(job.started_at, job.ended_at))

    def reported(self, event: FileEvent) -> None:
        """Show what a stage reported last."""
        stage = event.stage or ""
        if event.event == "metrics":
            self._step.labels(stage).set(event.data.get("step") or 0)
            for name, value in (event.data.get("values") or {}).items():
                if isinstance(value, int | float):
                    self._figure.labels(stage, name).set(value)
        elif event.event == "result" and stage == "index":
            summary = event.data["summary"]
            self._recall.labels(summary["index"]).set(summary["recall"]["value"])
        elif event.event == "progress":
            self._done.labels(stage, str(event.data.get("unit"))).set(event.data.get("done") or 0)

    def looked_up(self, found: int, missed: int) -> None:
        """Count ids of a lookup."""
        self._found.inc(found)
        if missed:
            self._missed.inc(missed)

    def searched(self, strategies: Iterable[str], seconds: float) -> None:
        """Count the queries of a neighbours call by the strategy that answered each."""
        for strategy in strategies:
            if strategy not in self._searches_held:
                self._searches_held[strategy] = self._searches.labels(strategy)
            self._searches_held[strategy].inc()
        self._search_seconds.observe(seconds)

    def exposition(self, jobs: dict[JobStatus, int], cluster: bool | None, home: Path) -> bytes:
        """The text that Prometheus scrapes, with the present number of jobs by status, whether the cluster that they
        run on answers (None: there is none), and the disk of the home (NaN: it is gone).
        """
        size = free = float("nan")
        with suppress(OSError):
            size, _, free = shutil.disk_usage(home)
        self._home_free.set(free)
        self._home_size.set(size)
        self._cluster.set(float("nan") if cluster is None else cluster)
        for status in _STATUSES:
            self._jobs.labels(status).set(jobs.get(status, 0))
        return generate_latest(self.registry)


def _seconds(start: datetime, end: datetime) -> float:
    return max((end - start).total_seconds(), 0.0)
