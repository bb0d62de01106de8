"""Refusing at submit what could never run, with what is there and what it would need."""

from __future__ import annotations

from pathlib import Path

from preprocessing.artifact import read_manifest
from preprocessing.bundle import PPR
from preprocessing.errors import ArtifactError, ResourceError, UsageError
from preprocessing.settings import PreprocessSettings
from service.errors import ConflictError
from service.jobs.resources import Capacity
from service.jobs.schemas import EvaluateJob, IndexJob, IngestJob, JobRequest, PipelineJob, PreprocessJob, TrainJob
from service.store import Graph
from trainer.settings import TrainSettings, check_extras, check_fits

__all__ = ["check_feasible"]


def check_feasible(request: JobRequest, graph: Graph, have: Capacity) -> None:
    """``ConflictError`` when the graph is in the wrong state, ``UsageError`` and ``ResourceError`` for settings."""
    match request:
        case IngestJob():
            _check_source(graph)
        case PreprocessJob():
            _check_ready(graph)
            _check_shards(request.preprocess, request.resources.cores or have.cores)
        case TrainJob():
            _check_ready(graph)
            _check_ppr(graph, request.train)
            _check_train(request.train, graph, have)
        case PipelineJob():
            _check_shards(request.preprocess, request.resources.cores or have.cores)
            _check_train(request.train, graph, have)
        case EvaluateJob() | IndexJob():
            return


def _check_source(graph: Graph) -> None:
    if graph.state == "ready":
        raise ConflictError("the graph has its bundle already", expected="a graph registered by its source")


def _check_ready(graph: Graph) -> None:
    if graph.state != "ready":
        raise ConflictError(
            "the graph is not ingested yet",
            expected="a graph that is ready",
            remedy="submit an ingest job, or a pipeline",
        )


def _check_ppr(graph: Graph, train: TrainSettings) -> None:
    """PPR rows serve as local anchors, and stand in for features that a graph lacks."""
    hashed = graph.features is not None and graph.features["layout"] == "none"
    if not train.uses_anchors and not hashed:
        return
    num_local = train.anchors.num_local if train.uses_anchors else 1
    try:
        stored = int(read_manifest(Path(graph.bundle) / "ppr", PPR)["settings"]["top_k"])
    except ArtifactError as error:
        raise ConflictError(
            "the graph has no PPR rows yet",
            expected="a preprocessed graph",
            remedy="submit a preprocess job, or a pipeline",
        ) from error
    if stored < num_local:
        raise UsageError(
            f"the graph's PPR rows hold {stored} nodes each, fewer than train.anchors.num_local, {num_local}",
            remedy=f"preprocess the graph with ppr.top_k of at least {num_local}",
            pointer="/train/anchors/num_local",
        )


def _check_shards(preprocess: PreprocessSettings, have: int) -> None:
    need = preprocess.num_workers * (preprocess.threads or 1)
    if need > have:
        raise ResourceError(
            f"preprocessing asks for {preprocess.num_workers} workers, {need} cores, and the job has {have} cores",
            remedy="ask for fewer workers or threads",
            pointer="/preprocess/num_workers",
        )


def _check_train(train: TrainSettings, graph: Graph, have: Capacity) -> None:
    if graph.counts is not None:
        check_fits(train, graph.counts["nodes"], "/train")
    run = train.run
    check_extras(run, "/train/run")
    if run.device == "cuda" and have.gpus < max(run.num_workers, 1):
        raise ResourceError(
            f"training asks for {max(run.num_workers, 1)} CUDA devices and this server has {have.gpus}",
            remedy="ask for fewer workers, or for device auto or cpu",
            pointer="/train/run/device",
        )
    if run.num_workers > have.cores:
        raise ResourceError(
            f"training asks for {run.num_workers} workers and this server has {have.cores} cores",
            remedy="ask for fewer workers",
            pointer="/train/run/num_workers",
        )
