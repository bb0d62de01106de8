"""Rows of embedding sets, and the aliases that point at them."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection, func, or_, select

from service.errors import ConflictError, NotFoundError, PreconditionError
from service.identifiers import new_id
from service.store.database import Database
from service.store.graphs import find_graph
from service.store.pages import page
from service.store.rows import ACTIVE, Alias, Embedding, Page, now
from service.store.tables import aliases, embeddings, graphs, jobs

__all__ = ["Embeddings", "find_embedding", "point_alias"]

# Live sets with what their job and graph are called, as long as these are there.
_LIVE = (
    select(
        embeddings,
        jobs.c.name.label("job_name"),
        jobs.c.status.label("job_status"),
        graphs.c.name.label("graph_name"),
    )
    .select_from(
        embeddings.outerjoin(jobs, jobs.c.id == embeddings.c.job).outerjoin(graphs, graphs.c.id == embeddings.c.graph)
    )
    .where(embeddings.c.state == "ready")
)


class Embeddings(Database):
    """Find, list and delete embedding sets; read and switch aliases."""

    embeddings_dir: Path

    def embedding(self, ref: str) -> Embedding:
        """The embedding set of that id or alias; ``NotFoundError``."""
        with self.reading() as connection:
            return find_embedding(connection, ref)

    def list_embeddings(
        self, *, limit: int = 50, cursor: str | None = None, graph: str | None = None, job: str | None = None
    ) -> Page[Embedding]:
        """Newest first, of one graph or job if named."""
        query = _LIVE
        if graph is not None:
            query = query.where(embeddings.c.graph == graph)
        if job is not None:
            query = query.where(embeddings.c.job == job)
        with self.reading() as connection:
            rows = page(connection, query, embeddings.c.id, limit, cursor)
            names = _names(connection, [row.id for row in rows.items])
        return Page([Embedding(**row._mapping, aliases=names[row.id]) for row in rows.items], rows.next_cursor)

    def register_embedding(
        self, *, name: str | None, graph: str, path: Path, counts: dict[str, Any], report: Any, index: Any
    ) -> tuple[Embedding, bool]:
        """Add a set that lies at ``path``; the flag is False where it was known: its parts are brought up to date.

        ``NotFoundError`` without that graph, ``ConflictError`` when the set is registered on another one.
        """
        parts: dict[str, Any] = {"counts": counts, "report": report, "index": index}
        with self.writing() as connection:
            find_graph(connection, graph)
            known = connection.execute(
                select(embeddings).where(embeddings.c.path == str(path), embeddings.c.state == "ready")
            ).first()
            if known is None:
                identity = new_id("emb")
                row = {"id": identity, "graph": graph, "state": "ready", "path": str(path), "created_at": now()}
                connection.execute(embeddings.insert().values(name=name, **row, **parts))
                return find_embedding(connection, identity), True
            if known.graph != graph:
                raise ConflictError(
                    f"the set is registered already, as {known.id} on {known.graph}",
                    remedy="name that graph, or delete that embedding set first",
                )
            changes = parts if name is None else parts | {"name": name}
            connection.execute(embeddings.update().where(embeddings.c.id == known.id).values(**changes))
            return find_embedding(connection, known.id), False

    def delete_embedding(self, identity: str) -> None:
        """Remove an embedding set, and its files if this server made them.

        ``ConflictError`` while an alias or an unfinished job uses it.
        """
        with self.writing() as connection:
            found = find_embedding(connection, identity)
            if found.aliases:
                raise ConflictError(
                    f"the alias {found.aliases[0]} points at this embedding set",
                    remedy="switch or delete the alias first",
                )
            user = connection.execute(
                select(jobs.c.id).where(
                    or_(jobs.c.embedding == found.id, jobs.c.encoder == found.id, jobs.c.id == found.job),
                    jobs.c.status.in_(ACTIVE),
                )
            ).scalar()
            if user is not None:
                raise ConflictError(f"{user} is using this embedding set", remedy="wait for the job, or cancel it")
            connection.execute(embeddings.update().where(embeddings.c.id == found.id).values(state="deleting"))
        self.finish_embedding_deletion(found.id)

    def finish_embedding_deletion(self, identity: str) -> None:
        """Remove the files and then the row of a set marked for deletion; safe to repeat."""
        shutil.rmtree(self.embeddings_dir / identity, ignore_errors=True)
        with self.writing() as connection:
            connection.execute(embeddings.delete().where(embeddings.c.id == identity, embeddings.c.state == "deleting"))

    def embeddings_in_deletion(self) -> list[str]:
        """Ids whose deletion a crash may have interrupted."""
        with self.reading() as connection:
            return list(connection.execute(select(embeddings.c.id).where(embeddings.c.state == "deleting")).scalars())

    def alias(self, name: str) -> Alias:
        """The alias of that name; ``NotFoundError``."""
        with self.reading() as connection:
            return _find_alias(connection, name)

    def list_aliases(self) -> list[Alias]:
        """Every alias, by name."""
        with self.reading() as connection:
            return [Alias(**row._mapping) for row in connection.execute(select(aliases).order_by(aliases.c.name))]

    def latest_aliased(self, limit: int) -> list[Path]:
        """Where the embedding sets that aliases name lie, at most ``limit``, the one named last first."""
        query = (
            select(embeddings.c.path)
            .join(aliases, aliases.c.embedding == embeddings.c.id)
            .group_by(embeddings.c.path)
            .order_by(func.max(aliases.c.updated_at).desc())
            .limit(limit)
        )
        with self.reading() as connection:
            return [Path(path) for path in connection.execute(query).scalars()]

    def put_alias(self, name: str, embedding: str, if_match: str | None = None) -> Alias:
        """Point ``name`` at an embedding set (an id or another alias) in one step.

        ``if_match`` is the header as sent: ``PreconditionError`` unless it is the present version's tag, or ``*`` and
        there is such an alias.
        """
        with self.writing() as connection:
            _check_version(connection, name, if_match)
            return point_alias(connection, name, find_embedding(connection, embedding).id)

    def delete_alias(self, name: str, if_match: str | None = None) -> None:
        """Remove an alias; what it pointed at stays. ``NotFoundError``, ``PreconditionError``."""
        with self.writing() as connection:
            _find_alias(connection, name)
            _check_version(connection, name, if_match)
            connection.execute(aliases.delete().where(aliases.c.name == name))


def find_embedding(connection: Connection, ref: str) -> Embedding:
    """The live embedding set of that id or alias, inside a transaction; ``NotFoundError``."""
    target = select(aliases.c.embedding).where(aliases.c.name == ref).scalar_subquery()
    row = connection.execute(_LIVE.where(or_(embeddings.c.id == ref, embeddings.c.id == target))).first()
    if row is None:
        raise NotFoundError(
            "there is no such embedding set or alias",
            given=ref,
            remedy="`rgrl embeddings list` and `rgrl aliases list` tell which there are",
        )
    return Embedding(**row._mapping, aliases=_names(connection, [row.id])[row.id])


def insert_embedding(
    connection: Connection, identity: str, *, graph: str, job: str, path: Path, counts: dict[str, Any]
) -> None:
    """Add the set that a job's training stage left, and tell the job; a second call changes nothing."""
    known = connection.execute(select(embeddings.c.id).where(embeddings.c.id == identity)).scalar()
    if known is None:
        connection.execute(
            embeddings.insert().values(
                id=identity, graph=graph, job=job, state="ready", path=str(path), counts=counts, created_at=now()
            )
        )
        connection.execute(jobs.update().where(jobs.c.id == job).values(embedding=identity))


def set_part(connection: Connection, identity: str, part: Literal["report", "index"], summary: dict[str, Any]) -> None:
    """Note the summary of what was added to an embedding set."""
    connection.execute(embeddings.update().where(embeddings.c.id == identity).values({part: summary}))


def point_alias(connection: Connection, name: str, identity: str) -> Alias:
    """Insert or switch an alias, inside a write transaction."""
    version = connection.execute(select(aliases.c.version).where(aliases.c.name == name)).scalar()
    if version is None:
        connection.execute(aliases.insert().values(name=name, embedding=identity, version=1, updated_at=now()))
    else:
        connection.execute(
            aliases.update()
            .where(aliases.c.name == name)
            .values(embedding=identity, version=version + 1, updated_at=now())
        )
    return _find_alias(connection, name)


def _find_alias(connection: Connection, name: str) -> Alias:
    row = connection.execute(select(aliases).where(aliases.c.name == name)).one_or_none()
    if row is None:
        raise NotFoundError("there is no such alias", given=name, remedy="`rgrl aliases list` tells which there are")
    return Alias(**row._mapping)


def _check_version(connection: Connection, name: str, if_match: str | None) -> None:
    if if_match is None:
        return
    version = connection.execute(select(aliases.c.version).where(aliases.c.name == name)).scalar()
    present = set() if version is None else {"*", f'"{version}"'}
    if present.isdisjoint(tag.strip() for tag in if_match.split(",")):
        raise PreconditionError(
            "the alias has another version by now", remedy="read the alias again and decide by its present version"
        )


def _names(connection: Connection, identities: Sequence[str]) -> dict[str, tuple[str, ...]]:
    names: dict[str, tuple[str, ...]] = defaultdict(tuple)
    query = select(aliases.c.name, aliases.c.embedding).where(aliases.c.embedding.in_(identities))
    for name, embedding in connection.execute(query.order_by(aliases.c.name)):
        names[embedding] += (name,)
    return names
