"""``/v1/jobs``: submit, list, edit and cancel jobs. Handlers write rows and wishes; status is the scheduler's."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Query, Response, status
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, AwareDatetime, BeforeValidator
from pydantic_core import PydanticKnownError

from preprocessing.artifact import fingerprint
from preprocessing.errors import RgrlError, UsageError
from service.api.auth import WRITE
from service.api.dependencies import SchedulerDep, SettingsDep, StoreDep
from service.graphs.schemas import held_source, still_under_roots
from service.jobs.cluster import check_machines
from service.jobs.compiling import compile_seconds
from service.jobs.encoder import layer_widths
from service.jobs.estimate import estimate
from service.jobs.feasibility import check_feasible
from service.jobs.graph_size import GraphSize, graph_size
from service.jobs.kept import kept
from service.jobs.plan import stages_of
from service.jobs.resources import check_resources, default_cores, free_bytes, needed
from service.jobs.schemas import (
    AppendJob,
    EmbedJob,
    EvaluateJob,
    IndexJob,
    JobAnswer,
    JobKind,
    JobPatch,
    JobRequest,
    PipelineJob,
    PreprocessJob,
    ResourcesAnswer,
)
from service.schemas import Answer, Items
from service.settings import ServiceSettings
from service.store import Embedding, Graph, Job, JobStatus, NewJob, Store
from service.store.pages import MAX_LIMIT

__all__ = ["router"]

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


class EstimateAnswer(Answer):
    """What a job would roughly take on this machine; nulls where ``basis`` says why."""

    memory_bytes: int | None
    disk_bytes: int | None
    seconds: float | None
    basis: str


class AvailableAnswer(Answer):
    """What the server has for all jobs together, and what is free now on the disks of its home and of the graph."""

    cores: int
    gpus: int
    memory_bytes: int
    disk_bytes: int
    bundle_bytes: int


class DryRunAnswer(Answer):
    """What a submit would do. A job that does not fit is refused, as by a submit."""

    stages: list[str]
    spec: dict[str, Any]
    estimate: EstimateAnswer
    resources: ResourcesAnswer
    available: AvailableAnswer


@router.post(
    "",
    status_code=status.HTTP_201_CREATED,
    dependencies=[WRITE],
    response_model=JobAnswer,
    responses={200: {"model": JobAnswer | DryRunAnswer, "description": "A dry run, or a repeated Idempotency-Key"}},
)
def submit_job(
    request: Annotated[JobRequest, Body()],
    response: Response,
    store: StoreDep,
    settings: SettingsDep,
    scheduler: SchedulerDep,
    dry_run: bool = False,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255)] = None,
) -> Job | Response:
    """Queue a job. The same ``Idempotency-Key`` with the same body answers with the job it queued before."""
    digest = fingerprint(request.model_dump(mode="json"), request.spec)
    if idempotency_key is not None and not dry_run:
        earlier = store.submitted_job(idempotency_key, digest)
        if earlier is not None:
            return _replay(earlier, response)
    graph, embedding, previous = _subject(request, store)
    request = _held(request, settings)
    have = scheduler.capacity()
    check_feasible(request, graph, have, embedding, previous)
    stages = stages_of(request.kind, graph, request.spec)
    encoder = embedding if isinstance(request, EmbedJob) else None
    dim = None if embedding is None else embedding.counts["dim"]
    layers = None if encoder is None else layer_widths(Path(encoder.path))
    cores = request.resources.cores or default_cores(request.spec, have)
    size = _size(graph, settings)
    made = kept(request, graph, embedding, previous)
    # A cluster's machines have caches of their own, which nobody looks into here.
    compile_s = compile_seconds(stages, made) if settings.ray_address is None else 0.0
    figures = estimate(stages, request.spec, size, dim, cores, layers, made, compile_s)
    need = needed(request, figures, have)
    check_resources(need, have, settings.home, Path(graph.bundle))
    check_machines(need, request.spec, have)
    if dry_run:
        plan = DryRunAnswer(
            stages=stages,
            spec=request.spec,
            estimate=EstimateAnswer.model_validate(figures),
            resources=ResourcesAnswer.model_validate(need),
            available=AvailableAnswer(
                cores=have.cores,
                gpus=have.gpus,
                memory_bytes=have.memory_bytes,
                disk_bytes=free_bytes(settings.home),
                bundle_bytes=free_bytes(Path(graph.bundle)),
            ),
        )
        return JSONResponse(plan.model_dump(mode="json"))
    about = None if encoder is not None else embedding
    new = NewJob(
        kind=request.kind,
        name=request.name,
        labels=request.labels,
        graph=graph.id,
        embedding=None if about is None else about.id,
        encoder=None if encoder is None else encoder.id,
        alias=request.alias if isinstance(request, PipelineJob | EmbedJob) else None,
        spec=request.spec,
        priority=request.priority,
        timeout_s=request.timeout_s,
        resources=asdict(need),
        idempotency_key=idempotency_key,
        request_hash=digest,
    )
    job, created = store.submit_job(new, max_queued=settings.max_queued)
    if not created:
        return _replay(job, response)
    scheduler.wake()
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return job


def _in_utc(value: datetime) -> datetime:
    """The same moment in UTC, in which some moments near the calendar's ends have no date."""
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("the moment has no date in UTC") from None


def _dated(value: Any) -> Any:
    """A date first of all: a bare number would be taken for seconds since 1970."""
    if isinstance(value, str) and not re.match(r"\d{4}-", value):
        raise PydanticKnownError("datetime_from_date_parsing", {"error": "expected as 2026-11-29T12:00:00Z"})
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_dated), AfterValidator(_in_utc)]


@router.get("")
def list_jobs(
    store: StoreDep,
    status: Annotated[list[JobStatus] | None, Query(description="Any of these.")] = None,
    kind: Annotated[list[JobKind] | None, Query(description="Any of these.")] = None,
    label: Annotated[list[str] | None, Query(description="All of these, each `key=value`.")] = None,
    created_after: Moment | None = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = 50,
    cursor: str | None = None,
) -> Items[JobAnswer]:
    """Jobs, newest first."""
    found = store.list_jobs(
        limit=limit,
        cursor=cursor,
        status=status or (),
        kind=kind or (),
        labels=_labels(label or []),
        created_after=created_after,
    )
    return Items[JobAnswer].model_validate(found)


@router.get("/{id}", response_model=JobAnswer)
def get_job(id: str, store: StoreDep) -> Job:
    """One job."""
    return store.job(id)


@router.patch("/{id}", dependencies=[WRITE], response_model=JobAnswer)
def patch_job(id: str, patch: JobPatch, store: StoreDep, scheduler: SchedulerDep) -> Job:
    """Change a job's name, labels or, while it is queued, its priority; what is left out stays."""
    job = store.patch_job(id, patch.model_dump(exclude_unset=True))
    scheduler.wake()
    return job


@router.delete("/{id}", status_code=status.HTTP_204_NO_CONTENT, dependencies=[WRITE])
def delete_job(id: str, store: StoreDep) -> None:
    """Forget an ended job, its events, log and checkpoints; what it made stays."""
    store.delete_job(id)


@router.post(
    "/{id}/cancel",
    status_code=status.HTTP_202_ACCEPTED,
    dependencies=[WRITE],
    response_model=JobAnswer,
    responses={200: {"model": JobAnswer, "description": "Asked before"}},
)
def cancel_job(id: str, response: Response, store: StoreDep, scheduler: SchedulerDep) -> Job:
    """Ask for a job's end: SIGTERM, a grace period, SIGKILL. 409 once it has ended."""
    job, first = store.request_cancel(id)
    if not first:
        response.status_code = status.HTTP_200_OK
    scheduler.wake()
    return job


def _subject(request: JobRequest, store: Store) -> tuple[Graph, Embedding | None, Graph | None]:
    """The graph a job is about, the embedding set it is about or embeds by, and the graph before a change."""
    match request:
        case EvaluateJob() | IndexJob():
            embedding = store.embedding(request.embedding)
            return store.graph(embedding.graph), embedding, None
        case EmbedJob():
            return store.graph(request.graph), store.embedding(request.embedding), None
        case PreprocessJob(previous=before) if before is not None:
            return store.graph(request.graph), None, store.graph(before.graph)
        case _:
            return store.graph(request.graph), None, None


def _size(graph: Graph, settings: ServiceSettings) -> GraphSize | None:
    """None where files of a source cannot tell it, or may not be looked at any more: its ingest will say so."""
    if graph.counts is None and graph.source is not None:
        try:
            still_under_roots(graph.source, settings.data_roots, settings.data_uris)
        except RgrlError:
            return None
    return graph_size(graph)


def _held(request: JobRequest, settings: ServiceSettings) -> JobRequest:
    """The same, with the paths of tables real and under the data roots."""
    if not isinstance(request, AppendJob):
        return request
    source = held_source(request.append.source, settings.data_roots, settings.data_uris, "/append/source")
    return request.model_copy(update={"append": request.append.model_copy(update={"source": source})})


def _replay(job: Job, response: Response) -> Job:
    response.status_code = status.HTTP_200_OK
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    response.headers["Idempotent-Replayed"] = "true"
    return job


def _labels(pairs: list[str]) -> dict[str, str]:
    if not all("=" in pair for pair in pairs):
        raise UsageError("a label filter has another form", expected="key=value", pointer="query/label")
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
