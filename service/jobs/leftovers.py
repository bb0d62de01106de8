"""What a job that failed or was cancelled leaves half made. No other job goes on with it, so it is removed.

What ``ingest`` has of a registered graph stays: the next job on that graph goes on there.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

from service.jobs.plan import embedding_id, new_graph_id
from service.settings import ServiceSettings

__all__ = ["jobs_with_leftovers", "remove_leftovers"]


def remove_leftovers(job: str, settings: ServiceSettings) -> None:
    """Remove the unfinished embedding set and the unfinished new graph of a job that has ended."""
    graph = settings.graphs / new_graph_id(job)
    for target in (settings.embeddings / embedding_id(job), graph / "bundle"):
        shutil.rmtree(target.parent / f".{target.name}.partial", ignore_errors=True)
        with contextlib.suppress(OSError):
            (target.parent / f".{target.name}.lock").unlink()
    # Only where nothing is in it: a registered graph's folder has such a name, too.
    with contextlib.suppress(OSError):
        graph.rmdir()


def jobs_with_leftovers(settings: ServiceSettings) -> Iterator[str]:
    """Jobs that may have left something: there is something half made of the name that theirs would have."""
    for partial in settings.embeddings.glob(".emb_*.partial"):
        yield _job(partial.name[1 : -len(".partial")])
    for partial in settings.graphs.glob("graph_*/.bundle.partial"):
        yield _job(partial.parent.name)


def _job(made: str) -> str:
    return "job_" + made.split("_", 1)[1]
