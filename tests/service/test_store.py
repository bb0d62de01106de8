"""The store: compare-and-set, events exactly once, aliases, keys, and what happens under many hands."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import StatementError

from preprocessing.errors import UsageError
from service.errors import BusyError, ConflictError, NotFoundError, PreconditionError
from service.identifiers import new_id
from service.settings import ServiceSettings
from service.store import Job, NewJob, Store
from service.store.embeddings import insert_embedding
from service.store.lifecycle import FileEvent, StaleJobError

MOMENT = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> ServiceSettings:
    return ServiceSettings(home=tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def store(settings: ServiceSettings) -> Iterator[Store]:
    store = Store(settings)
    yield store
    store.close()


@pytest.fixture
def graph(store: Store) -> str:
    return new_graph(store)


def new_graph(store: Store) -> str:
    source = {"kind": "npz", "path": "/data/x.npz"}
    return store.add_graph(
        name=None, source=source, bundle=None, manifest=None, direction="directed", feature_dtype="float16"
    ).id


def new_job(store: Store, graph: str, **fields: Any) -> Job:
    new = NewJob(kind="train", name=None, labels={}, graph=graph, embedding=None, alias=None, spec={"a": 1})
    return store.submit_job(replace(new, **fields), max_queued=10_000)[0]


def new_embedding(store: Store, graph: str) -> str:
    identity = new_id("emb")
    with store.writing() as connection:
        path = store.embeddings_dir / identity
        insert_embedding(connection, identity, graph=graph, job="job_1", path=path, counts={"nodes": 3, "dim": 2})
    return identity


def test_ids_are_version_7_and_sort_by_creation() -> None:
    ids = [new_id("job") for _ in range(2000)]
    assert ids == sorted(set(ids))
    digits = ids[0].removeprefix("job_")
    assert len(digits) == 32
    assert digits[12] == "7"
    assert digits[16] in "89ab"
    assert abs(int(digits[:12], 16) / 1000 - datetime.now(UTC).timestamp()) < 5


def test_rows_survive_another_opening(store: Store, settings: ServiceSettings, graph: str) -> None:
    job = new_job(store, graph, labels={"ü": "ö"})
    again = Store(settings)
    try:
        assert again.job(job.id) == job
        assert again.graph(graph) == store.graph(graph)
        assert again.graph(graph).created_at.tzinfo is UTC
    finally:
        again.close()


def test_times_are_one_moment_whatever_their_zone(store: Store, graph: str) -> None:
    job = store.transition(new_job(store, graph), "running", attempt=1, started_at=MOMENT)
    assert job.started_at == MOMENT
    east = timezone(timedelta(hours=5))
    found = store.list_jobs(created_after=(job.created_at - timedelta(microseconds=1)).astimezone(east))
    assert job.id in {item.id for item in found.items}
    assert job.id not in {item.id for item in store.list_jobs(created_after=job.created_at.astimezone(east)).items}


def test_a_store_of_a_later_version_is_refused(tmp_path: Path) -> None:
    settings = ServiceSettings(home=tmp_path)
    store = Store(settings)
    with store.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    store.close()
    with pytest.raises(UsageError, match="cannot be brought to this version's schema"):
        Store(settings)


def test_a_store_of_the_first_version_is_brought_to_this_one(tmp_path: Path) -> None:
    settings = ServiceSettings(home=tmp_path)
    store = Store(settings)
    job = new_job(store, new_graph(store))
    with store.writing() as connection:
        for column in ("health", "silent_since", "encoder", "new_graph"):
            connection.exec_driver_sql(f"ALTER TABLE jobs DROP COLUMN {column}")
        connection.exec_driver_sql("ALTER TABLE embeddings DROP COLUMN name")
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0001'")
    store.close()
    store = Store(settings)
    assert store.job(job.id) == job
    store.close()


def test_the_migrations_make_the_tables_as_declared(store: Store) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from service.store.tables import metadata

    with store.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_only_the_state_that_was_read_can_be_left(store: Store, graph: str) -> None:
    queued = new_job(store, graph)
    running = store.transition(queued, "running", attempt=1, token="t", started_at=MOMENT)
    with pytest.raises(StaleJobError):
        store.transition(queued, "running", attempt=1, token="other")
    with pytest.raises(StaleJobError):
        store.set_process(replace(running, attempt=2), 7)
    ended = store.transition(running, "failed", error={"code": "x", "message": "y"})
    assert (ended.status, ended.token, ended.error) == ("failed", "t", {"code": "x", "message": "y"})
    assert [(t.status, t.attempt) for t in ended.transitions] == [("queued", 0), ("running", 1), ("failed", 1)]
    assert ended.ended_at is not None


def test_a_move_and_its_effect_are_one(store: Store, graph: str) -> None:
    job = store.transition(new_job(store, graph), "running", attempt=1)

    def fail(connection: Connection) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        store.transition(job, "succeeded", effect=fail)
    assert store.job(job.id) == job


def test_events_are_taken_over_once(store: Store, graph: str) -> None:
    job = store.transition(new_job(store, graph), "running", attempt=1)
    done: list[str] = []
    events = [
        FileEvent(MOMENT, "stage", "ppr", {}),
        FileEvent(MOMENT, "progress", "ppr", {"done": 1, "total": 2, "unit": "rows", "rate": 0.0, "eta_s": None}),
        FileEvent(MOMENT, "progress", "ppr", {"done": 2, "total": 2, "unit": "rows", "rate": 1.0, "eta_s": 0.0}),
        FileEvent(MOMENT, "result", "ppr", {"summary": {}}, effect=lambda _connection: done.append("effect")),
    ]
    after = store.record_events(job, 100, events)
    assert (after.events_offset, after.phase) == (100, "ppr")
    assert after.progress == {"stage": "ppr", "done": 2, "total": 2, "unit": "rows", "rate": 1.0, "eta_s": 0.0}
    with pytest.raises(StaleJobError):
        store.record_events(job, 100, events)
    rows = store.job_events(job.id)
    assert [row.event for row in rows] == ["transition", "transition", "transition", "stage", "progress", "result"]
    assert rows[4].data["done"] == 2
    assert (rows[2].data, rows[2].at) == ({"status": "running", "phase": "ppr"}, MOMENT)
    assert store.job_events(job.id, after=rows[3].id) == rows[4:]


def test_figures_that_are_no_json_never_reach_the_store(store: Store, graph: str) -> None:
    job = store.transition(new_job(store, graph), "running", attempt=1)
    with pytest.raises(StatementError, match="not JSON compliant"):
        store.record_events(job, 1, [FileEvent(MOMENT, "metrics", "train", {"values": {"loss": float("nan")}})])
    assert store.job(job.id) == job


def test_writers_take_turns(store: Store, graph: str) -> None:
    """Each reads and writes in one transaction; with deferred locks some would fail or overwrite each other."""
    identity = new_embedding(store, graph)
    threads = [
        threading.Thread(target=lambda: [store.put_alias("turns", identity) for _ in range(10)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.alias("turns").version == 80


def test_the_queue_has_an_end(store: Store, graph: str) -> None:
    waiting = store.count_jobs().get("queued", 0)
    new = NewJob(kind="train", name=None, labels={}, graph=graph, embedding=None, alias=None, spec={})
    store.submit_job(new, max_queued=waiting + 1)
    with pytest.raises(BusyError, match=f"{waiting + 1} jobs wait"):
        store.submit_job(new, max_queued=waiting + 1)


def test_a_job_of_a_graph_that_is_gone(store: Store, graph: str) -> None:
    store.delete_graph(graph)
    with pytest.raises(NotFoundError):
        new_job(store, graph)


def test_aliases(store: Store, graph: str) -> None:
    first, second = new_embedding(store, graph), new_embedding(store, graph)
    alias = store.put_alias("live", first)
    assert (alias.embedding, alias.version, alias.etag) == (first, 1, '"1"')
    assert store.embedding("live").id == first
    assert store.embedding(first).aliases == ("live",)
    assert store.put_alias("live", second, if_match='"1"').version == 2
    assert store.embedding(first).aliases == ()
    for stale in ('"1"', "2", '"x"'):
        with pytest.raises(PreconditionError):
            store.put_alias("live", first, if_match=stale)
        with pytest.raises(PreconditionError):
            store.delete_alias("live", if_match=stale)
    assert store.put_alias("also", "live").embedding == second, "an alias may be named by an alias"
    assert store.put_alias("live", first, if_match="*").version == 3
    with pytest.raises(PreconditionError):
        store.put_alias("new", first, if_match="*")
    with pytest.raises(NotFoundError):
        store.put_alias("live", "emb_absent")
    assert {"live", "also"} <= {alias.name for alias in store.list_aliases()}
    store.delete_alias("live", if_match='"3"')
    with pytest.raises(NotFoundError):
        store.alias("live")
    with pytest.raises(NotFoundError):
        store.delete_alias("live")


def test_embeddings_are_listed_and_deleted(store: Store, graph: str) -> None:
    ids = [new_embedding(store, graph) for _ in range(3)]
    page = store.list_embeddings(graph=graph, limit=2)
    assert [e.id for e in page.items] == [ids[2], ids[1]]
    assert [e.id for e in store.list_embeddings(graph=graph, limit=2, cursor=page.next_cursor).items] == [ids[0]]
    store.put_alias("held", ids[0])
    with pytest.raises(ConflictError, match="alias held"):
        store.delete_embedding(ids[0])
    job = new_job(store, graph, kind="index", embedding=ids[1])
    with pytest.raises(ConflictError, match=job.id):
        store.delete_embedding(ids[1])
    folder = store.embeddings_dir / ids[2]
    folder.mkdir()
    store.delete_embedding(ids[2])
    assert not folder.exists()
    with pytest.raises(NotFoundError):
        store.embedding(ids[2])


def test_a_deletion_cut_short_is_hidden_and_can_be_finished(store: Store, graph: str) -> None:
    identity = new_embedding(store, graph)
    with store.writing() as connection:
        connection.exec_driver_sql("UPDATE embeddings SET state = 'deleting' WHERE id = ?", (identity,))
    folder = store.embeddings_dir / identity
    folder.mkdir()
    with pytest.raises(NotFoundError):
        store.embedding(identity)
    assert store.embeddings_in_deletion() == [identity]
    store.finish_embedding_deletion(identity)
    assert store.embeddings_in_deletion() == []
    assert not folder.exists()


def test_deletions_cut_short_are_finished(store: Store, graph: str) -> None:
    job = new_job(store, graph)
    for name in (job.id, "job_gone"):
        (store.jobs_dir / name).mkdir()
    (store.graphs_dir / graph).mkdir()
    other = new_graph(store)
    with store.writing() as connection:
        connection.exec_driver_sql("UPDATE graphs SET state = 'deleting' WHERE id = ?", (graph,))
    store.finish_deletions()
    assert [path.name for path in store.jobs_dir.iterdir()] == [job.id]
    assert not (store.graphs_dir / graph).exists()
    assert store.graphs_in_deletion() == []
    assert store.graph(other).id == other


def test_keys(store: Store) -> None:
    key, token = store.create_key("ci", ["read"])
    assert len(token) > 40
    assert token not in repr(store.list_keys())
    assert store.list_keys(live=True) == [key]
    store.revoke_key(key.id)
    assert store.list_keys(live=True) == []
    assert store.list_keys()[0].revoked_at is not None
    with pytest.raises(NotFoundError):
        store.revoke_key(key.id)
    with pytest.raises(UsageError):
        store.create_key("none", [])
