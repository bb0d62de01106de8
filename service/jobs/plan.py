"""From a job to the stages that fulfil it: their commands and specs, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from service.graphs.schemas import still_under_roots
from service.jobs.stages import stage_command
from service.machine import machine
from service.settings import ServiceSettings
from service.store import Graph, Job, Store

__all__ = ["STAGES", "Planner", "StagePlan", "embedding_id", "new_graph_id", "plan_job", "stages_of"]

PIPELINE = ("ingest", "preprocess", "train", "evaluate", "index")
STAGES = (*PIPELINE, "append", "embed")


@dataclass(frozen=True)
class StagePlan:
    """One process: ``argv`` and then the path of a file that holds ``spec``."""

    name: str
    argv: list[str]
    spec: dict[str, Any]


Planner = Callable[[Job, Store, ServiceSettings], list[StagePlan]]


def embedding_id(job: str) -> str:
    """The embedding set that a job of that id makes: every attempt the same one."""
    return "emb_" + job.removeprefix("job_")


def new_graph_id(job: str) -> str:
    """The graph that an append job of that id makes: every attempt the same one."""
    return "graph_" + job.removeprefix("job_")


def stages_of(kind: str, graph: Graph, spec: dict[str, Any]) -> list[str]:
    """Names of a job's stages; a pipeline ingests only what has a source and no bundle yet."""
    match kind:
        case "pipeline":
            return [stage for stage in PIPELINE if stage != "ingest" or graph.state == "registered"]
        case "embed":
            return [stage for stage in ("embed", "index") if stage in spec]
        case _:
            return [kind]


def plan_job(job: Job, store: Store, settings: ServiceSettings) -> list[StagePlan]:
    """The stages of ``job``; ``NotFoundError`` when its graph or embedding set is gone, ``ForbiddenError`` when the
    source to ingest is no longer under the data roots.
    """
    graph = store.graph(job.graph)
    stages = stages_of(job.kind, graph, job.spec)
    if "ingest" in stages and graph.source is not None:
        still_under_roots(graph.source, settings.data_roots, settings.data_uris)
    return [
        StagePlan(
            stage,
            stage_command(stage),
            _paths(stage, job, graph, store, settings)
            | ({"settings": _with_threads(stage, job, settings.ray_address is not None)} if stage in job.spec else {}),
        )
        for stage in stages
    ]


def _paths(stage: str, job: Job, graph: Graph, store: Store, settings: ServiceSettings) -> dict[str, Any]:
    """A stage's spec, less its settings."""
    made = str(settings.embeddings / embedding_id(job.id))
    about = made
    if job.kind in {"evaluate", "index"}:
        assert job.embedding is not None
        about = store.embedding(job.embedding).path
    match stage:
        case "ingest":
            source = {"source": graph.source, "direction": graph.direction, "feature_dtype": graph.feature_dtype}
            return {"out": graph.bundle, "settings": source}
        case "append":
            return {"bundle": graph.bundle, "out": str(settings.graphs / new_graph_id(job.id) / "bundle")}
        case "preprocess":
            return {"bundle": graph.bundle} | _previous(job, store)
        case "train":
            return {"bundle": graph.bundle, "out": made, "work": str(settings.jobs / job.id / "train")}
        case "embed":
            assert job.encoder is not None
            return {"embeddings": store.embedding(job.encoder).path, "bundle": graph.bundle, "out": made}
        case "evaluate":
            return {"bundle": graph.bundle, "embeddings": about}
        case _:
            return {"embeddings": about}


def _previous(job: Job, store: Store) -> dict[str, Any]:
    previous = job.spec.get("previous")
    if previous is None:
        return {}
    return {"previous": {"bundle": store.graph(previous["graph"]).bundle, "tolerance": previous["tolerance"]}}


def _with_threads(stage: str, job: Job, on_cluster: bool) -> dict[str, Any]:
    """A stage's settings; where a job has fewer cores than the machine and they leave the threads open, as many as it
    has. What computes with OpenMP is told by the environment. Ray workers on a cluster have a core each, which fits.
    """
    settings: dict[str, Any] = job.spec[stage]
    if on_cluster and settings.get("threads", 0) is None:
        cores = 1 if settings.get("num_workers") or job.resources is None else job.resources["cores"]
        return settings | {"threads": cores}
    cores = machine().cores if job.resources is None else job.resources["cores"]
    if cores >= machine().cores or settings.get("threads", 0) is not None:
        return settings
    return settings | {"threads": max(cores // max(settings.get("num_workers", 0), 1), 1)}
