"""Refusing at submit what could never run, with what is there and what it would need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from preprocessing.artifact import read_manifest
from preprocessing.bundle import PPR, Bundle
from preprocessing.edge_tables import check_no_nodes
from preprocessing.errors import ArtifactError, InputError, ResourceError, UsageError
from preprocessing.meant_columns import listed
from preprocessing.previous import Previous
from preprocessing.settings import PreprocessSettings, PreviousSettings
from service.errors import ConflictError
from service.jobs.encoder import check_transfer
from service.jobs.graph_size import edge_tables, missing_column, table_columns
from service.jobs.resources import Capacity
from service.jobs.schemas import (
    AppendJob,
    EmbedJob,
    EvaluateJob,
    IndexJob,
    IngestJob,
    JobRequest,
    PipelineJob,
    PreprocessJob,
    TrainJob,
)
from service.store import Embedding, Graph
from trainer.settings import EmbedSettings, TrainSettings, check_extras, check_fits

__all__ = ["check_columns", "check_feasible"]


def check_feasible(
    request: JobRequest,
    graph: Graph,
    have: Capacity,
    embedding: Embedding | None = None,
    previous: Graph | None = None,
) -> None:
    """``ConflictError`` when the graph is in the wrong state, ``UsageError`` and ``ResourceError`` for settings.

    ``embedding`` is the set that the job is about or whose encoder it uses, ``previous`` the graph before a change.
    """
    match request:
        case AppendJob():
            _check_ready(graph)
        case EmbedJob():
            _check_ready(graph)
            assert embedding is not None
            check_transfer(Path(embedding.path), Path(graph.bundle))
            _check_device(request.embed, have)
        case IngestJob():
            _check_source(graph)
            check_columns(graph.source or {}, "/graph")
        case PreprocessJob():
            _check_ready(graph)
            _check_shards(request.preprocess, request.resources.cores or have.cores)
            if previous is not None and request.previous is not None:
                _check_ready(previous)
                _check_previous(request, graph, previous, request.previous.tolerance)
        case TrainJob():
            _check_ready(graph)
            _check_ppr(graph, request.train)
            _check_train(request.train, graph, have)
        case PipelineJob():
            if graph.state != "ready":
                check_columns(graph.source or {}, "/graph")
            _check_shards(request.preprocess, request.resources.cores or have.cores)
            _check_train(request.train, graph, have)
        case EvaluateJob() | IndexJob():
            return


def _check_source(graph: Graph) -> None:
    if graph.state == "ready":
        raise ConflictError("the graph has its bundle already", expected="a graph registered by its source")


def check_columns(source: dict[str, Any], pointer: str) -> None:
    """``InputError`` for columns that a graph's tables lack, and for a node table given as the edges.

    As far as files on this machine tell; else ingest says so, as its first word.
    """
    if source.get("source") is None and source.get("target") is None:
        for name in edge_tables(source):
            try:
                check_no_nodes(table_columns(name), name)
            except InputError as error:
                error.pointer = pointer
                raise
    missing = missing_column(source)
    if missing is not None:
        option, name, columns = missing
        raise InputError(
            f"the graph's table has no column {name}, which its source names (source.{option})",
            expected=f"one of: {listed(columns)}",
            remedy="name a column that there is; a graph that is registered already is to be registered anew with it",
            pointer=pointer,
        )


def _check_ready(graph: Graph) -> None:
    if graph.state != "ready":
        raise ConflictError(
            "the graph is not ingested yet",
            expected="a graph that is ready",
            remedy="submit an ingest job, or a pipeline",
        )


def _check_previous(request: PreprocessJob, graph: Graph, previous: Graph, tolerance: float) -> None:
    settings = PreviousSettings(bundle=Path(previous.bundle), tolerance=tolerance)
    try:
        Previous.open(settings, Bundle(graph.bundle), request.preprocess.ppr)
    except ArtifactError as error:
        raise ConflictError(
            "the graph before has no PPR rows of its own",
            expected="a preprocessed graph",
            remedy="submit a preprocess job on it, or leave `previous` out",
        ) from error
    except UsageError as error:
        error.pointer = "/previous/graph" if error.pointer == "/previous/bundle" else "/preprocess/ppr"
        error.given = None  # it names a path of the server's
        raise


def _check_device(embed: EmbedSettings, have: Capacity) -> None:
    if embed.device == "cuda" and have.gpus == 0:
        raise ResourceError(
            "embedding asks for a CUDA device and this machine has none",
            remedy="ask for device auto or cpu",
            pointer="/embed/device",
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
