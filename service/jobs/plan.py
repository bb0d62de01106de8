"""From a job to the stages that fulfil it: their commands and specs, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from service.jobs.stages import stage_command
from service.machine import machine
from service.settings import ServiceSettings
from service.store import Graph, Job, Store

__all__ = ["STAGES", "Planner", "StagePlan", "embedding_id", "plan_job", "stages_of"]

STAGES = ("ingest", "preprocess", "train", "evaluate", "index")


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


def stages_of(kind: str, graph: Graph) -> list[str]:
    """Names of a job's stages; a pipeline ingests only what has a source and no bundle yet."""
    if kind != "pipeline":
        return [kind]
    return [stage for stage in STAGES if stage != "ingest" or graph.state == "registered"]


def plan_job(job: Job, store: Store, settings: ServiceSettings) -> list[StagePlan]:
    """The stages of ``job``; ``NotFoundError`` when its graph or embedding set is gone."""
    graph = store.graph(job.graph)
    if job.kind in {"evaluate", "index"}:
        assert job.embedding is not None
        embeddings = store.embedding(job.embedding).path
    else:
        embeddings = str(settings.embeddings / embedding_id(job.id))
    specs: dict[str, dict[str, Any]] = {
        "ingest": {
            "out": graph.bundle,
            "settings": {
                "source": graph.source,
                "direction": graph.direction,
                "feature_dtype": graph.feature_dtype,
            },
        },
        "preprocess": {"bundle": graph.bundle},
        "train": {"bundle": graph.bundle, "out": embeddings, "work": str(settings.jobs / job.id / "train")},
        "evaluate": {"bundle": graph.bundle, "embeddings": embeddings},
        "index": {"embeddings": embeddings},
    }
    return [
        StagePlan(
            stage,
            stage_command(stage),
            specs[stage] | ({"settings": _with_threads(stage, job)} if stage in job.spec else {}),
        )
        for stage in stages_of(job.kind, graph)
    ]


def _with_threads(stage: str, job: Job) -> dict[str, Any]:
    """A stage's settings; where a job has fewer cores than the machine and they leave the threads open, as many as it
    has. What computes with OpenMP is told by the environment.
    """
    settings: dict[str, Any] = job.spec[stage]
    cores = machine().cores if job.resources is None else job.resources["cores"]
    if cores >= machine().cores or stage not in {"preprocess", "index"} or settings["threads"] is not None:
        return settings
    return settings | {"threads": max(cores // max(settings.get("num_workers", 0), 1), 1)}
