"""From a job to the stages that fulfil it: their commands and specs, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from service.graphs.schemas import still_under_roots
from service.jobs.stages import stage_command
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
    """The stages of ``job``; ``NotFoundError`` when its graph or embedding set is gone, ``ForbiddenError`` when the
    source to ingest is no longer under the data roots.
    """
    graph = store.graph(job.graph)
    stages = stages_of(job.kind, graph)
    if "ingest" in stages and graph.source is not None:
        still_under_roots(graph.source, settings.data_roots, settings.data_uris)
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
            specs[stage] | ({"settings": job.spec[stage]} if stage in job.spec else {}),
        )
        for stage in stages
    ]
