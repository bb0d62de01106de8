"""What to do once more: who ran a command runs it again, whereas a server's job is gone on with by the server.

A stage is the same in both, and its errors are read in both.
"""

from __future__ import annotations

import os

__all__ = ["JOB", "again", "goes_on", "in_job"]

JOB = "RGRL_JOB"
"""In the environment of all that a server's job runs."""


def in_job() -> bool:
    """Whether this process is a server's job's, and no command that somebody ran."""
    return JOB in os.environ


def again(continues: str | None = None) -> str:
    """The remedy once what was wrong is mended; ``continues`` tells from where a command goes on."""
    if in_job():
        return "submit the job again"
    return "run the same command again" + ("" if continues is None else f": {continues}")


def goes_on(continues: str) -> str | None:
    """The remedy for what was asked to end. Of a job it was asked by the server, which knows what comes next."""
    return None if in_job() else again(continues)
