"""What a stage's result means for the store: a graph becomes ready, an embedding set appears or gains a part."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from preprocessing.artifact import read_manifest
from preprocessing.bundle import BUNDLE
from service.jobs.plan import embedding_id, new_graph_id
from service.store import Job, Store
from service.store.embeddings import insert_embedding, point_alias, set_part
from service.store.graphs import graph_ready, insert_graph
from service.store.lifecycle import Effect, FileEvent

__all__ = ["EMBEDDING_SET", "file_event", "success_effect"]

EMBEDDING_SET = "embedding_set"


def file_event(line: dict[str, Any], job: Job, store: Store) -> FileEvent:
    """A line of the event file as a row, with its effect.

    ``ArtifactError`` when a stage reports a result but what it made is not whole.
    """
    fields = {name: value for name, value in line.items() if name not in {"time", "event", "stage"}}
    event, stage = str(line.get("event")), line.get("stage")
    effect = _result_effect(str(stage), fields.get("summary") or {}, job, store) if event == "result" else None
    return FileEvent(_moment(line.get("time")), event, None if stage is None else str(stage), fields, effect)


def success_effect(job: Job) -> Effect | None:
    """Point the alias that the job was to set at what it made."""
    alias, made = job.alias, job.embedding
    if alias is None or made is None:
        return None

    def switch(connection: Connection) -> None:
        point_alias(connection, alias, made)

    return switch


def _result_effect(stage: str, summary: dict[str, Any], job: Job, store: Store) -> Effect | None:
    match stage:
        case "ingest":
            graph = store.graph(job.graph)
            manifest = read_manifest(Path(graph.bundle), BUNDLE)
            return lambda connection: graph_ready(connection, graph.id, manifest)
        case "append":
            new = new_graph_id(job.id)
            bundle = store.graphs_dir / new / "bundle"
            facts = read_manifest(bundle, BUNDLE)
            name = job.name or store.graph(job.graph).name
            return lambda connection: insert_graph(
                connection, new, job=job.id, name=name, bundle=bundle, manifest=facts
            )
        case "train" | "embed":
            made = embedding_id(job.id)
            path = store.embeddings_dir / made
            counts = read_manifest(path, EMBEDDING_SET)["counts"]
            return lambda connection: insert_embedding(
                connection, made, graph=job.graph, job=job.id, path=path, counts=counts
            )
        case "evaluate":
            return lambda connection: set_part(connection, _embedding_of(job), "report", summary)
        case "index":
            return lambda connection: set_part(connection, _embedding_of(job), "index", summary)
        case _:
            return None


def _embedding_of(job: Job) -> str:
    return job.embedding or embedding_id(job.id)


def _moment(text: Any) -> datetime:
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC)
    except ValueError:
        return datetime.now(UTC)
