"""The thread that alone decides what runs: one a home, held by a lock, going on from the rows after any stop."""

from __future__ import annotations

import fcntl
import threading
import time
from pathlib import Path
from typing import IO

import structlog

from preprocessing.errors import UsageError
from service.causes import cause_of
from service.errors import ConflictError, NotFoundError, UnavailableError
from service.jobs.choice import choose, given
from service.jobs.executor import Executor
from service.jobs.plan import Planner
from service.jobs.resources import Capacity, too_little_disk
from service.jobs.supervisor import Supervisor
from service.metrics import Metrics
from service.settings import ServiceSettings
from service.store import Job, Store
from service.store.lifecycle import StaleJobError

__all__ = ["Scheduler"]

SILENCE_S = 30.0
WRITES_EVERY_S = 2.0
"""How often it is seen that something could be written, while nothing is."""

log = structlog.get_logger(__name__)


class Scheduler:
    """Looks at the unfinished jobs again and again: follows those that run, starts those that may.

    Jobs are processes of their own, or a cluster's: they go on when the scheduler stops, and the next one adopts them.
    """

    def __init__(
        self, store: Store, settings: ServiceSettings, plan: Planner, metrics: Metrics, executor: Executor
    ) -> None:
        self._store = store
        self._settings = settings
        self._metrics = metrics
        self._executor = executor
        self._supervisor = Supervisor(store, settings, plan, metrics, executor)
        self._tidied = False
        self._lock: IO[str] | None = None
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._stopping = False
        self._looked_at = float("-inf")
        self._failure: str | None = None
        self._wrote_at = float("-inf")

    @property
    def trouble(self) -> str | None:
        """Why jobs are not looked after now: its last round failed, or took too long, or there is none."""
        failure = self._failure
        if self._thread is None or not self._thread.is_alive():
            return "it does not run"
        if failure is not None:
            return f"its last round failed: {failure}"
        if time.monotonic() - self._looked_at >= SILENCE_S:
            return f"it has completed no round for {SILENCE_S:.0f} seconds"
        return None

    @property
    def cluster(self) -> bool | None:
        """Whether the cluster that jobs run on answered when it was asked last; None without one."""
        return self._executor.answers()

    def capacity(self) -> Capacity:
        """What there is for all jobs together; ``UnavailableError`` while that is not known."""
        return self._executor.capacity()

    def acquire(self) -> None:
        """Take the home and the database, and tidy up after an earlier server. Again it changes nothing.

        ``UsageError`` when another server has either, or jobs run where this one does not look for them.
        """
        if self._lock is not None:
            return
        lock = (self._settings.home / "scheduler.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise UsageError(
                "another server runs on this home",
                given=self._settings.home,
                expected="one server a home",
                remedy="stop the other server, or name another home with RGRL_HOME",
            ) from None
        if not self._store.claim.held():
            lock.close()
            raise UsageError(
                "another server runs on this database",
                expected="one server a database",
                remedy="stop the other server, or name another database with RGRL_DATABASE_URL",
            )
        self._lock = lock
        try:
            self._tidy()
        except UsageError:
            self.stop()
            raise

    def start(self) -> None:
        """Take the home, and begin to look."""
        self.acquire()
        self._looked_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and give the home back; jobs go on."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=SILENCE_S)
        self._executor.close()
        self._store.claim.release()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def wake(self) -> None:
        """Look at once: a job was submitted, or a wish was written."""
        self._wake.set()

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._check_claim()
                self._look()
                self._check_writes()
                self._looked_at = time.monotonic()
                self._failure = None
            except Exception as error:
                # A locked database or a full disk passes; the rows still say what is to do.
                self._failure = cause_of(error).problem
                self._metrics.scheduler_errors.inc()
                log.exception("a round of the scheduler failed")
            self._wake.wait(self._settings.poll_s)
            self._wake.clear()

    def _check_claim(self) -> None:
        """The claim goes with its connection, and another server may have it by the time that there is a new one."""
        if not self._store.claim.held():
            raise ConflictError("another server runs on this database")

    def _check_writes(self) -> None:
        """After the jobs were looked at: to end one may be what makes room."""
        if self._failure is None and time.monotonic() < self._wrote_at + WRITES_EVERY_S:
            return
        self._store.check_writable()
        self._wrote_at = time.monotonic()

    def _tidy(self) -> None:
        try:
            self._supervisor.tidy(self._store.active_jobs())
            self._tidied = True
        except UnavailableError as error:
            log.warning("what is left of jobs that are over cannot be looked for yet", error=error.text())

    def _look(self) -> None:
        for job in self._store.active_jobs():
            try:
                if job.status != "queued":
                    self._supervisor.look_after(job)
                elif job.cancel_requested:
                    self._supervisor.cancel_idle(job)
            except StaleJobError:
                log.warning("a job moved on by another hand", job=job.id)
        queued = [job for job in self._store.active_jobs() if job.status == "queued"]
        why = self._supervisor.why_not_now(queued)
        if why is not None:
            self._store.set_waiting([(job, why) for job in queued])
            return
        if not self._tidied:
            self._tidy()
        self._start_some()

    def _start_some(self) -> None:
        """Start the queued jobs whose turn it is, and note what the others wait for."""
        have = self.capacity()
        choice = choose(self._store.active_jobs(), have, self._settings.max_running, self._lack_of_disk)
        for job, need in choice.impossible:
            self._supervisor.refuse(job, need)
        for job, devices in choice.start:
            self._supervisor.start(job, devices if have.devices else None)
        self._store.set_waiting(choice.waiting)

    def _lack_of_disk(self, job: Job, promised: int) -> str | None:
        need = given(job, self.capacity())
        try:
            bundle = Path(self._store.graph(job.graph).bundle)
        except NotFoundError:
            return None  # its start will say so
        return too_little_disk(need, self._settings.home, bundle, promised)
