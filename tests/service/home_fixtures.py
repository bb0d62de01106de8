"""A home with something of every kind in it, as a server leaves one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from embedding_fixtures import QUICK_MAP, write_set
from service_harness import tiny_bundle

from preprocessing.artifact import read_manifest, write_json
from preprocessing.bundle import Bundle
from preprocessing.stage import Emitter
from service.jobs.plan import embedding_id
from service.search.index_settings import IndexSettings
from service.search.indexing import build_index
from service.settings import ServiceSettings
from service.store import NewJob, Store
from service.store.embeddings import insert_embedding, set_part
from service.store.graphs import graph_ready
from service.store.rows import JobStatus


@dataclass(frozen=True)
class Filled:
    """Ids; the set is the ended job's."""

    graph: str
    embedding: str
    ended: str
    running: str
    key: str


def fill(settings: ServiceSettings, *, nodes: int = 4, dim: int = 4) -> Filled:
    """A graph that the server ingested, a set with index, report and alias, an ended and a running job, a key."""
    store = Store(settings)
    try:
        graph = store.add_graph(
            name="g",
            source={"kind": "npz", "path": "/data/g.npz"},
            bundle=None,
            manifest=None,
            direction="directed",
            feature_dtype="float32",
        )
        bundle = tiny_bundle(Path(graph.bundle))
        with store.writing() as connection:
            graph_ready(connection, graph.id, read_manifest(bundle, "graph_bundle"))
        ended, running = (add_job(store, settings, graph.id, status) for status in ("succeeded", "running"))
        made = add_made_set(store, settings, graph.id, ended, nodes, dim)
        store.put_alias("live", made)
        _, token = store.create_key("ci", ["admin"])
        return Filled(graph.id, made, ended, running, token)
    finally:
        store.close()


def add_made_set(store: Store, settings: ServiceSettings, graph: str, job: str, nodes: int = 4, dim: int = 4) -> str:
    """The set that the job made."""
    made = embedding_id(job)
    vectors = np.random.default_rng(int(job[-6:], 16)).standard_normal((nodes, dim)).astype(np.float32)
    ids = [10, 20, 30, 40] if nodes == 4 else list(range(nodes))
    content = Bundle(Path(store.graph(graph).bundle)).content_hash
    path = write_set(settings.embeddings / made, vectors, ids, content=content)
    index = build_index(path, IndexSettings(kind="exact", projection=QUICK_MAP), Emitter("index"))
    write_json(path / "report.json", {"summary": {"effective_rank": 3.0}})
    with store.writing() as connection:
        insert_embedding(connection, made, graph=graph, job=job, path=path, counts={"nodes": nodes, "dim": dim})
        set_part(connection, made, "index", dict(index))
    return made


def add_job(store: Store, settings: ServiceSettings, graph: str, status: JobStatus) -> str:
    """A train job that has come as far as ``status``, with a log, events and checkpoints."""
    new = NewJob(kind="train", name=None, labels={}, graph=graph, embedding=None, alias=None, spec={"train": {}})
    job, _ = store.submit_job(new, max_queued=100)
    folder = settings.jobs / job.id
    (folder / "train" / "checkpoints").mkdir(parents=True)
    (folder / "train" / "checkpoints" / "encoder.safetensors").write_bytes(bytes(1000))
    (folder / "log.txt").write_text(f"log of {job.id}\n")
    (folder / "events.jsonl").write_text("{}\n{}\n")
    started = store.transition(job, "running", attempt=1, token="t")
    started = store.record_events(started, 3, [])
    if status != "running":
        store.transition(started, status)
    return job.id
