"""The one tree of errors that domain code raises.

Only the edges (command line, HTTP) turn them into text or problem+json. A message always says what is wrong, what was
given, what was expected and what to do.
"""

from __future__ import annotations

import signal
from typing import Any, ClassVar

from preprocessing.again import goes_on

__all__ = [
    "ArtifactError",
    "CollapsedError",
    "DivergedError",
    "InputError",
    "Interrupted",
    "NotNowError",
    "ResourceError",
    "RgrlError",
    "UsageError",
    "WorkerLostError",
]


class RgrlError(Exception):
    """A failure with a cause a person can act on.

    ``code`` is stable and machine-readable; ``exit_code`` is what a process ends with; ``retryable``: the very same may
    go better later.
    """

    code: str = "internal"
    exit_code: ClassVar[int] = 1
    retryable: bool = False

    def __init__(
        self,
        problem: str,
        *,
        given: object = None,
        expected: str | None = None,
        remedy: str | None = None,
        where: str | None = None,
        pointer: str | None = None,
    ) -> None:
        """``where`` is the place in the input ("edges.parquet, row 17, column 'dst'"); ``pointer`` a JSON pointer."""
        self.problem = problem
        self.given = None if given is None else str(given)
        self.expected = expected
        self.remedy = remedy
        self.where = where
        self.pointer = pointer
        super().__init__(self.text())

    def text(self) -> str:
        """The whole message, one part a line."""
        lines = [self.problem if self.where is None else f"{self.where}: {self.problem}"]
        for label, value in (("given", self.given), ("expected", self.expected), ("remedy", self.remedy)):
            if value is not None:
                lines.append(f"  {label}: {value}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON: ``{code, message, where, given, expected, remedy, pointer, retryable}``."""
        return {
            "code": self.code,
            "message": self.problem,
            "where": self.where,
            "given": self.given,
            "expected": self.expected,
            "remedy": self.remedy,
            "pointer": self.pointer,
            "retryable": self.retryable,
        }


class UsageError(RgrlError):
    """A setting or argument that cannot be meant."""

    code = "usage_invalid"
    exit_code = 2


class InputError(RgrlError):
    """Data that cannot be used; nothing was written."""

    code = "input_invalid"
    exit_code = 3


class ArtifactError(RgrlError):
    """An artefact on disk is absent, incomplete, damaged or of another version."""

    code = "artifact_invalid"
    exit_code = 3


class ResourceError(RgrlError):
    """The job asks for more than the machine or the cluster has."""

    code = "resources_unavailable"


class NotNowError(ResourceError):
    """What is wanting may come back by itself: room on a disk, a cluster's answer."""

    retryable = True


class WorkerLostError(RgrlError):
    """A worker of Ray died or raised."""

    code = "worker_lost"
    retryable = True


class CollapsedError(RgrlError):
    """Training ended in embeddings without information."""

    code = "collapsed"


class DivergedError(RgrlError):
    """Training came to numbers that are none: infinite, or not a number."""

    code = "diverged"


class Interrupted(RgrlError):  # noqa: N818 (what happened was no error)
    """SIGTERM or SIGINT; the next run continues from what is on disk."""

    code = "interrupted"
    exit_code = 130
    retryable = True

    @classmethod
    def by_signal(cls, number: int) -> Interrupted:
        """What a signal was."""
        return cls(f"interrupted by {signal.Signals(number).name}", remedy=goes_on("it continues"))
