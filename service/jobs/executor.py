"""Where the runners of jobs live: what the supervisor asks of a place, whatever it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from preprocessing.errors import RgrlError
from service.jobs.resources import Capacity
from service.store import Job

__all__ = ["Executor"]


class Executor(Protocol):
    """Starts ``service.jobs.runner`` for an attempt at a job, and follows and ends it.

    Everything else goes by the files in the job's folder. Nothing that it needs to go on is in memory alone.
    """

    remote: bool
    """Whether runners are on machines whose processes the server does not see."""

    def capacity(self) -> Capacity:
        """What there is for all jobs together; ``UnavailableError`` while that is not known."""

    def answers(self) -> bool | None:
        """Whether the place answered when it was asked last; None for one that need not be asked."""

    def why_not_now(self) -> str | None:
        """Why no attempt can be started now, if so."""

    def start(self, job: Job, directory: Path) -> int | None:
        """Start the runner of the attempt that the row tells of; its process, where that is on this machine.

        ``UnavailableError`` where it is not known whether it started: ``alive`` will see, and start it if it did not.
        """

    def alive(self, job: Job, directory: Path) -> bool:
        """Whether the attempt's runner lives, or may live for all that is known."""

    def terminate(self, job: Job, directory: Path) -> None:
        """Ask the runner for its end; it passes that on to its stage once, and ends when that has."""

    def end(self, job: Job, directory: Path) -> int:
        """End by force what there is of the job; how many things there were."""

    def cause(self, job: Job) -> RgrlError:
        """Why an attempt that ``alive`` said is over left no word, as far as the place can tell."""

    def forget(self, job: Job) -> None:
        """Drop what is in memory of an attempt that is settled."""

    def close(self) -> None:
        """Let go of connections; what runs goes on."""

    def tidy(self, active: Sequence[Job]) -> None:
        """End what there is of jobs that are not ``active``; ``UnavailableError`` if it cannot be told now."""
