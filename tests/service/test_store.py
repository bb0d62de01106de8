"""The store: compare-and-set, events exactly once, aliases, keys, and what happens under many hands."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import Connection, func, select
from sqlalchemy.exc import StatementError

from preprocessing.errors import UsageError
from service.errors import BusyError, ConflictError, NotFoundError, PreconditionError
from service.identifiers import new_id
from service.jobs.schemas import JobAnswer
from service.settings import ServiceSettings
from service.store import Job, JobStatus, NewJob, Store
from service.store.embeddings import insert_embedding
from service.store.lifecycle import FileEvent, StaleJobError
from service.store.rows import Transition
from service.store.tables import embeddings, graphs, job_events, jobs

MOMENT = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def new_settings(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], ServiceSettings]:
    """Settings of a home and a database that are new, on either of the back ends."""
    server = request.getfixturevalue("postgres") if request.param == "postgresql" else None

    def make() -> ServiceSettings:
        url = None if server is None else server.new_database()
        return ServiceSettings(home=tmp_path_factory.mktemp("store"), database_url=url)

    return make


@pytest.fixture(scope="module")
def settings(new_settings: Callable[[], ServiceSettings]) -> ServiceSettings:
    return new_settings()


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


def test_a_store_of_a_later_version_is_refused(new_settings: Callable[[], ServiceSettings]) -> None:
    settings = new_settings()
    store = Store(settings)
    with store.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    store.close()
    with pytest.raises(UsageError, match="cannot be brought to this version's schema"):
        Store(settings)


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


def test_the_seconds_of_stages_are_of_the_last_time_each_was_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    def job(*steps: tuple[float, JobStatus, str | None], retry_at: datetime | None = None) -> dict[str, float]:
        transitions = tuple(
            Transition(status, phase, 1, MOMENT + timedelta(seconds=after)) for after, status, phase in steps
        )
        others: dict[str, Any] = dict.fromkeys(field.name for field in fields(Job))
        return Job(**others | {"transitions": transitions, "retry_at": retry_at}).stage_seconds

    monkeypatch.setattr("service.store.rows.now", lambda: MOMENT + timedelta(seconds=100))
    queued, starts, ingests = (0, "queued", None), (5, "running", None), (6, "running", "ingest")
    trains, lost, again = (8.5, "running", "train"), (40, "running", None), (41, "running", "train")
    assert job(queued, starts) == {}
    assert job(queued, starts, ingests) == {"ingest": 94}
    assert job(queued, starts, ingests, trains, lost, again) == {"ingest": 2.5, "train": 59}
    assert job(queued, starts, ingests, trains, (60.25, "succeeded", "train")) == {"ingest": 2.5, "train": 51.75}
    assert job(queued, starts, ingests, trains, retry_at=MOMENT) == {"ingest": 2.5}, "nothing runs"
    cancelling: tuple[float, JobStatus, str | None] = (7, "cancelling", "ingest")
    assert job(queued, starts, ingests, cancelling) == {"ingest": 94}
    assert job(queued, starts, ingests, cancelling, (9, "cancelled", "ingest")) == {"ingest": 3}


def test_a_move_and_its_effect_are_one(store: Store, graph: str) -> None:
    job = store.transition(new_job(store, graph), "running", attempt=1)

    def fail(connection: Connection) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        store.transition(job, "succeeded", effect=fail)
    assert store.job(job.id) == job


def test_a_stage_compiles_from_its_warning_until_its_work_moves(store: Store, graph: str) -> None:
    job = store.transition(new_job(store, graph), "running", attempt=1)

    def progress(stage: str, done: int, rate: float) -> FileEvent:
        data = {"done": done, "total": 9, "unit": "rows", "rate": rate, "eta_s": None}
        return FileEvent(MOMENT, "progress", stage, data)

    def compiling(stage: str) -> FileEvent:
        return FileEvent(MOMENT, "warning", stage, {"code": "compiling", "message": "kernels"})

    told = []
    for offset, event in enumerate(
        [
            compiling("ppr"),
            progress("ppr", 0, 0.0),
            FileEvent(MOMENT, "warning", "ppr", {"code": "tied", "message": "rows"}),
            progress("ppr", 3, 1.5),
            progress("ppr", 0, 0.0),
            compiling("ppr"),
            progress("train", 0, 0.0),
        ],
        start=1,
    ):
        job = store.record_events(job, offset, [event])
        shown = JobAnswer.model_validate(job).progress
        assert shown is not None
        told.append((shown.stage, shown.done, shown.compiling))
    assert told == [
        ("ppr", 0, True),
        ("ppr", 0, True),
        ("ppr", 0, True),
        ("ppr", 3, False),
        ("ppr", 0, False),
        ("ppr", 0, True),
        ("train", 0, False),
    ]


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
    with pytest.raises((StatementError, ValueError), match="not JSON compliant"):
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


def test_of_many_hands_on_one_state_one_moves_it(store: Store, graph: str) -> None:
    job = new_job(store, graph)
    moved: list[int] = []

    def move(number: int) -> None:
        with contextlib.suppress(StaleJobError):
            store.transition(job, "running", attempt=1, token=str(number))
            moved.append(number)

    in_parallel(move, range(12))
    assert len(moved) == 1
    assert store.job(job.id).token == str(moved[0])
    assert [step.status for step in store.job(job.id).transitions] == ["queued", "running"]


def test_of_many_requests_of_one_key_one_is_queued(store: Store, graph: str) -> None:
    new = NewJob(kind="train", name=None, labels={}, graph=graph, embedding=None, alias=None, spec={})
    found: list[tuple[Job, bool]] = []
    key = new_id("key")

    def send(_number: int) -> None:
        found.append(store.submit_job(replace(new, idempotency_key=key, request_hash="h"), max_queued=10_000))

    in_parallel(send, range(12))
    assert sorted(created for _, created in found) == [False] * 11 + [True]
    assert len({job.id for job, _ in found}) == 1


def test_events_get_their_numbers_in_the_order_they_appear_in(store: Store, graph: str) -> None:
    """A reader that goes on after the last number it saw would else miss what is committed late."""
    made = [store.transition(new_job(store, graph), "running", attempt=1) for _ in range(4)]
    over = threading.Event()
    seen: list[int] = []

    def read() -> None:
        while True:
            last = over.is_set()
            with store.reading() as connection:
                query = select(job_events.c.id).where(job_events.c.id > (seen[-1] if seen else 0))
                seen.extend(connection.execute(query.order_by(job_events.c.id)).scalars())
            if last:
                return

    def write(job: Job) -> None:
        for offset in range(20):
            job = store.record_events(job, offset + 1, [FileEvent(MOMENT, "metrics", None, {}) for _ in range(5)])

    reader = threading.Thread(target=read)
    reader.start()
    in_parallel(write, made)
    over.set()
    reader.join()
    with store.reading() as connection:
        assert seen == list(connection.execute(select(job_events.c.id).order_by(job_events.c.id)).scalars())


def test_a_read_sees_one_state(store: Store, graph: str) -> None:
    with store.reading() as connection:
        count = select(func.count()).select_from(jobs)
        before = connection.execute(count).scalar_one()
        new_job(store, graph)
        assert connection.execute(count).scalar_one() == before
    assert store.job(new_job(store, graph).id).graph == graph


def test_pages_are_in_the_order_of_bytes(store: Store, graph: str) -> None:
    """Also where the database's language orders A between a and b, and passes over the line."""
    made = new_job(store, graph).id
    names = ["job_0", "job_A", "job_a", "job_1", "job_B", "job__", "jab_c"]
    with store.writing() as connection:
        row = dict(connection.execute(jobs.select().where(jobs.c.id == made)).one()._mapping)
        for name in names:
            connection.execute(jobs.insert().values(row | {"id": name, "kind": "ordered", "idempotency_key": None}))
    found: list[str] = []
    cursor = None
    while cursor is not None or not found:
        page = store.list_jobs(kind=["ordered"], limit=2, cursor=cursor)
        found += [job.id for job in page.items]
        cursor = page.next_cursor
    assert found == sorted(names, reverse=True)
    with store.writing() as connection:
        connection.execute(jobs.delete().where(jobs.c.kind == "ordered"))


def test_texts_of_every_kind_come_back(store: Store, graph: str) -> None:
    """A stage may print what it likes: null characters and halves of surrogate pairs are JSON too."""
    odd = {"text": "null \x00, half \ud800, é, 🦆", "deep": [None, True, 1e300, -0.0, 2**63], "": ""}
    job = store.transition(new_job(store, graph, labels={"a.b": "🦆", "c": "'\"%s"}, name="🦆"), "running", attempt=1)
    job = store.record_events(job, 1, [FileEvent(MOMENT, "metrics", "train", odd)])
    assert store.job_events(job.id)[-1].data == odd
    ended = store.transition(job, "failed", error=odd)
    assert (store.job(job.id).error, ended.name, ended.labels) == (odd, "🦆", {"a.b": "🦆", "c": "'\"%s"})
    for labels in ({"a.b": "🦆"}, {"c": "'\"%s"}):
        assert [found.id for found in store.list_jobs(labels=labels, limit=1).items] == [job.id]


def test_one_server_schedules_on_a_database(store: Store, settings: ServiceSettings) -> None:
    other = Store(settings)
    try:
        assert store.claim.held()
        assert store.claim.held()
        assert not other.claim.held()
        store.claim.release()
        assert other.claim.held()
        assert not store.claim.held()
    finally:
        other.close()
    assert store.claim.held()
    store.claim.release()


@pytest.mark.parametrize(
    "url", ["mysql://x/y", "sqlite://", "sqlite:///:memory:", "nonsense", "postgresql+other://a/b"]
)
def test_what_is_no_database(settings: ServiceSettings, url: str) -> None:
    with pytest.raises(UsageError, match="database") as caught:
        Store(settings.model_copy(update={"database_url": url}))
    assert "postgresql://" in (caught.value.expected or "")


def test_a_database_that_does_not_answer_is_told_without_its_password(settings: ServiceSettings) -> None:
    url = "postgresql://me:secret@/none?host=/nowhere"
    with pytest.raises(UsageError, match="does not answer") as caught:
        Store(settings.model_copy(update={"database_url": url}))
    assert "secret" not in caught.value.text()


def in_parallel(function: Callable[[Any], None], arguments: Iterable[Any]) -> None:
    threads = [threading.Thread(target=function, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


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
        connection.execute(embeddings.update().where(embeddings.c.id == identity).values(state="deleting"))
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
        connection.execute(graphs.update().where(graphs.c.id == graph).values(state="deleting"))
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
