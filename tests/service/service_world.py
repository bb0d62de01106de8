"""A server with something of every kind in it: graphs, jobs of every status, embedding sets, aliases, an event log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from embedding_fixtures import QUICK_MAP, add_set, write_bundle, write_set
from fastapi.testclient import TestClient
from service_harness import settings_in, tiny_bundle

from preprocessing.bundle import Bundle
from preprocessing.stage import Emitter
from service.api.app import create_app
from service.search.index_settings import IndexSettings
from service.search.indexing import build_index
from service.store import Job, NewJob, Store
from service.store.lifecycle import FileEvent
from service.store.rows import JobStatus, Scope

NODES, DIM = 40, 4
STATUSES: tuple[JobStatus, ...] = ("queued", "running", "cancelling", "succeeded", "failed", "cancelled")


@dataclass(frozen=True)
class World:
    """Ids by what they are: ``jobs`` by status; ``graph`` is ready, ``registered`` is not ingested yet; ``key`` is the
    id of a revoked key, ``tokens`` are live keys by scope, of which ``client`` sends that of admin.
    """

    client: TestClient
    graph: str
    registered: str
    embedding: str
    unindexed: str
    alias: str
    jobs: dict[str, str]
    key: str
    tokens: dict[str, str]


@contextmanager
def world(folder: Path, **changes: Any) -> Iterator[World]:
    """The server in this process. Its scheduler does not run: every job stays as it is, and those sent stay queued."""
    settings = settings_in(folder, **changes)
    app = create_app(settings)
    app.state.scheduler.start = lambda: None
    with TestClient(app, raise_server_exceptions=False) as client:
        store: Store = app.state.store
        scopes: tuple[Scope, ...] = ("read", "write", "admin")
        tokens = {scope: store.create_key(scope, [scope])[1] for scope in scopes}
        client.headers["Authorization"] = f"Bearer {tokens['admin']}"
        yield _fill(client, folder, tokens)


def _fill(client: TestClient, folder: Path, tokens: dict[str, str]) -> World:
    store: Store = client.app.state.store  # type: ignore[attr-defined]
    settings = client.app.state.settings  # type: ignore[attr-defined]
    bundle = tiny_bundle(folder / "data" / "bundle")
    (folder / "data" / "g.npz").touch()
    graph = client.post("/v1/graphs", json={"bundle": "bundle", "name": "ready"}).json()["id"]
    registered = client.post("/v1/graphs", json={"source": {"kind": "npz", "path": "g.npz"}}).json()["id"]
    vectors = np.random.default_rng(1).standard_normal((NODES, DIM)).astype(np.float32)
    edges = [(node, (node + 1) % NODES) for node in range(NODES)]
    content = write_bundle(folder / "ring", NODES, edges)
    indexed = write_set(settings.embeddings / "indexed", vectors, content=content)
    build_index(indexed, IndexSettings(kind="hnsw", projection=QUICK_MAP), Emitter("index"))
    (indexed / "report.json").write_text('{"objective": "rgrl", "epochs": 2, "losses": [{"epoch": 1, "loss": NaN}]}')
    names = [f"n{number}" for number in range(NODES)]
    named = write_set(settings.embeddings / "named", vectors, names, content=Bundle(bundle).content_hash)
    write_set(folder / "data" / "set", vectors[:4], [10, 20, 30, 40], content=Bundle(bundle).content_hash)
    embedding, unindexed = add_set(store, indexed, folder / "ring"), add_set(store, named, folder / "gone")
    store.put_alias("now", embedding, None)
    key, _ = store.create_key("revoked", ["admin"])
    store.revoke_key(key.id)
    jobs = {status: _job(store, settings.jobs, graph, status) for status in STATUSES}
    return World(client, graph, registered, embedding, unindexed, "now", jobs, key.id, tokens)


def _job(store: Store, folder: Path, graph: str, status: JobStatus) -> str:
    """A job that has come as far as ``status``, with events and a log."""
    new = NewJob(
        kind="train",
        name=status,
        labels={"status": status},
        graph=graph,
        embedding=None,
        alias=None,
        spec={"train": {}},
        idempotency_key=None,
        request_hash="0" * 64,
    )
    job, _ = store.submit_job(new, max_queued=100)
    if status == "queued":
        return job.id
    job = _started(store, folder, job)
    if status in ("cancelling", "cancelled"):
        store.request_cancel(job.id)
        job = store.transition(store.job(job.id), "cancelling")
    if status == "failed":
        error = {"code": "input_invalid", "message": "no good", "phase": "train", "log_tail": ["the end"]}
        store.transition(job, "failed", error=error)
    elif status in ("succeeded", "cancelled"):
        store.transition(job, status)
    return job.id


def _started(store: Store, folder: Path, job: Job) -> Job:
    started = store.transition(job, "running", attempt=1, token="t", started_at=datetime.now(UTC))
    figures = {"done": 1, "total": 2, "unit": "epochs", "rate": 1.0, "eta_s": 1.0}
    said: list[tuple[str, dict[str, Any]]] = [
        ("progress", figures),
        ("metrics", {"step": 1, "values": {"loss": 0.5, "rank": None}}),
        ("health", {"state": "healthy", "reason": None}),
    ]
    events = [FileEvent(datetime.now(UTC), name, "train", data) for name, data in said]
    (folder / job.id).mkdir(parents=True)
    (folder / job.id / "log.txt").write_text("first\nlast\n")
    (folder / job.id / "train" / "checkpoints" / "step-00000001").mkdir(parents=True)
    return store.record_events(started, 10, events)
