"""The job store: rows are the truth about graphs, jobs, embedding sets, aliases and keys."""

from __future__ import annotations

from preprocessing.errors import UsageError
from service.room import check_room
from service.settings import ServiceSettings
from service.store.embeddings import Embeddings
from service.store.graphs import Graphs
from service.store.identity import give_identity
from service.store.jobs import Jobs, NewJob
from service.store.keys import ApiKeys
from service.store.lifecycle import Lifecycle
from service.store.rows import Alias, ApiKey, Embedding, Graph, Job, JobEvent, JobStatus, Page, Scope, Transition

__all__ = [
    "RESTORING",
    "Alias",
    "ApiKey",
    "Embedding",
    "Graph",
    "Job",
    "JobEvent",
    "JobStatus",
    "NewJob",
    "Page",
    "Scope",
    "Store",
    "Transition",
]


RESTORING = "restoring.json"
"""In a home that is not whole yet: ``rgrl restore`` removes it last."""
_TURN_MS = 2_000


class Store(Graphs, Jobs, Embeddings, ApiKeys, Lifecycle):
    """One home's rows and the artefacts they stand for."""

    def __init__(self, settings: ServiceSettings) -> None:
        """Open the store of ``settings``, making or migrating it as needed; ``UsageError`` when that cannot be."""
        self.home = settings.home
        self.graphs_dir = settings.graphs
        self.jobs_dir = settings.jobs
        self.embeddings_dir = settings.embeddings
        if (settings.home / RESTORING).exists():
            raise UsageError(
                "the home is being made of a backup, or half of it was",
                given=str(settings.home),
                expected="a home that is whole",
                remedy="wait for rgrl restore to end, or run it again: it goes on",
            )
        try:
            for folder in (settings.graphs, settings.jobs, settings.embeddings):
                folder.mkdir(parents=True, exist_ok=True)
            give_identity(settings.home)
        except OSError as error:
            raise UsageError(
                f"the home cannot be used: {error.strerror}",
                given=str(settings.home),
                expected="a folder that may be written to, or made",
                remedy="name another with --home or RGRL_HOME",
            ) from error
        super().__init__(settings.database)

    def check_writable(self) -> None:
        """Raise what the next write would: as ``check_room``, or ``OperationalError`` where the database is held by
        another or refuses.
        """
        self.check_room()
        self.take_turn(_TURN_MS)

    def check_room(self) -> None:
        """Raise ``OSError`` where a disk of the home's or the database's has no room, or takes no file."""
        for folder in {self.home, self.folder or self.home}:
            check_room(folder)

    def finish_deletions(self) -> None:
        """Remove what deletions that a crash cut short have left."""
        for identity in self.graphs_in_deletion():
            self.finish_graph_deletion(identity)
        for identity in self.embeddings_in_deletion():
            self.finish_embedding_deletion(identity)
        self.remove_unknown_job_folders()
