"""Rows of graphs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, or_, select

from service.errors import ConflictError, NotFoundError
from service.identifiers import new_id
from service.store.database import Database
from service.store.pages import page
from service.store.rows import ACTIVE, Graph, Page, now
from service.store.tables import embeddings, graphs, jobs

__all__ = ["Graphs", "find_graph", "graph_ready", "insert_graph"]


class Graphs(Database):
    """Register, list and delete graphs."""

    graphs_dir: Path

    def add_graph(
        self,
        *,
        name: str | None,
        source: dict[str, Any] | None,
        bundle: Path | None,
        manifest: dict[str, Any] | None,
        direction: str,
        feature_dtype: str,
    ) -> Graph:
        """Register a whole bundle (with its manifest), or a source whose bundle this server is to make."""
        identity = new_id("graph")
        facts = _facts(manifest) if manifest is not None else _NO_FACTS
        with self.writing() as connection:
            connection.execute(
                graphs.insert().values(
                    id=identity,
                    name=name,
                    state="ready" if manifest is not None else "registered",
                    source=source,
                    direction=direction,
                    feature_dtype=feature_dtype,
                    bundle=str(bundle or self.graphs_dir / identity / "bundle"),
                    created_at=now(),
                    **facts,
                )
            )
            return find_graph(connection, identity)

    def graph(self, identity: str) -> Graph:
        """The graph of that id; ``NotFoundError``."""
        with self.reading() as connection:
            return find_graph(connection, identity)

    def list_graphs(self, *, limit: int = 50, cursor: str | None = None, name: str | None = None) -> Page[Graph]:
        """Newest first; of one name, or all."""
        query = select(graphs).where(graphs.c.state != "deleting")
        if name is not None:
            query = query.where(graphs.c.name == name)
        with self.reading() as connection:
            rows = page(connection, query, graphs.c.id, limit, cursor)
        return Page([Graph(**row._mapping) for row in rows.items], rows.next_cursor)

    def delete_graph(self, identity: str) -> None:
        """Remove the graph, and its bundle if this server made it; ``ConflictError`` while anything uses it."""
        with self.writing() as connection:
            find_graph(connection, identity)
            previous = jobs.c.spec[("previous", "graph")].as_string()
            about = or_(jobs.c.graph == identity, jobs.c.new_graph == identity, previous == identity)
            users = connection.execute(
                select(jobs.c.id)
                .where(about, jobs.c.status.in_(ACTIVE))
                .union_all(select(embeddings.c.id).where(embeddings.c.graph == identity))
            ).scalars()
            user = users.first()
            if user is not None:
                raise ConflictError(
                    f"the graph is in use by {user}",
                    expected="a graph without unfinished jobs and without embeddings",
                    remedy="cancel those jobs and delete those embeddings first",
                )
            connection.execute(graphs.update().where(graphs.c.id == identity).values(state="deleting"))
        self.finish_graph_deletion(identity)

    def finish_graph_deletion(self, identity: str) -> None:
        """Remove the files and then the row of a graph marked for deletion; safe to repeat."""
        shutil.rmtree(self.graphs_dir / identity, ignore_errors=True)
        with self.writing() as connection:
            connection.execute(graphs.delete().where(graphs.c.id == identity, graphs.c.state == "deleting"))

    def graphs_in_deletion(self) -> list[str]:
        """Ids whose deletion a crash may have interrupted."""
        with self.reading() as connection:
            return list(connection.execute(select(graphs.c.id).where(graphs.c.state == "deleting")).scalars())


def find_graph(connection: Connection, identity: str) -> Graph:
    """The live graph of that id, inside a transaction; ``NotFoundError``."""
    row = connection.execute(select(graphs).where(graphs.c.id == identity, graphs.c.state != "deleting")).one_or_none()
    if row is None:
        raise NotFoundError(
            "there is no such graph",
            given=identity,
            expected="a graph's id, not its name",
            remedy="`rgrl graphs list` tells the ids",
        )
    return Graph(**row._mapping)


def graph_ready(connection: Connection, identity: str, manifest: dict[str, Any]) -> None:
    """Take over the facts of a bundle that is whole now."""
    connection.execute(graphs.update().where(graphs.c.id == identity).values(state="ready", **_facts(manifest)))


def insert_graph(
    connection: Connection, identity: str, *, job: str, name: str | None, bundle: Path, manifest: dict[str, Any]
) -> None:
    """Add the graph whose bundle a job's append stage left, and tell the job; a second call changes nothing."""
    known = connection.execute(select(graphs.c.id).where(graphs.c.id == identity)).scalar()
    if known is None:
        settings = manifest["settings"]
        connection.execute(
            graphs.insert().values(
                id=identity,
                name=name,
                state="ready",
                source=settings["source"],
                direction=manifest["direction"],
                feature_dtype=settings["feature_dtype"],
                bundle=str(bundle),
                created_at=now(),
                **_facts(manifest),
            )
        )
        connection.execute(jobs.update().where(jobs.c.id == job).values(new_graph=identity))


_NO_FACTS: dict[str, Any] = {"counts": None, "features": None, "labels": None, "warnings": []}


def _facts(manifest: dict[str, Any]) -> dict[str, Any]:
    return {
        "counts": manifest["counts"],
        "features": manifest.get("features"),
        "labels": manifest.get("labels"),
        "warnings": manifest.get("warnings", []),
    }
