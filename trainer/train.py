"""The train stage: a bundle to an embedding set.

A killed stage goes on from its newest checkpoint when it is started again with the same settings and bundle; a
finished one answers with what is there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import field_validator

from preprocessing.artifact import fingerprint, locked, make_folder, read_manifest
from preprocessing.bundle import PPR, Bundle
from preprocessing.errors import ArtifactError, InputError, UsageError
from preprocessing.settings import Settings
from preprocessing.stage import Emitter
from trainer import checkpoint, curve, embedding_set
from trainer.encoders import new_encoder
from trainer.feature_scale import check_scale
from trainer.features import HASHED_COLUMNS, load_features
from trainer.launch import launch, uses_cuda
from trainer.loop import Job
from trainer.model import Model
from trainer.objectives import new_objective
from trainer.query_order import locality_order
from trainer.relations import view_topologies
from trainer.sampler import edge_weights
from trainer.sampler_backends import new_sampler
from trainer.settings import TrainSettings, check_extras, check_fits, resolve_preset
from trainer.transfer import TrainedOn, check_transfer

__all__ = ["TrainSpec", "train"]

CARRIED_OUT = {
    "run": {
        "checkpoint_every",
        "checkpoint_minutes",
        "keep_checkpoints",
        "num_workers",
        "device",
        "tensorboard",
        "mlflow",
    },
    "batch": {"feature_cache_gib", "loader_threads"},
    "features": {"read_threads"},
}
"""Settings of where and how a run is carried out, which change nothing about its result."""


class TrainSpec(Settings):
    """What ``python -m trainer train`` reads: ``work`` keeps checkpoints and snapshots, ``out`` is made when done.

    ``embed`` is the bundle whose nodes are embedded; without one, the bundle that is trained on. ``logs`` is where
    copies of the run's reports go, if its settings ask for any; without one, ``work``.
    """

    bundle: Path
    out: Path
    work: Path
    embed: Path | None = None
    logs: Path | None = None
    settings: TrainSettings = TrainSettings()

    @field_validator("settings", mode="before")
    @classmethod
    def _with_preset(cls, value: Any) -> Any:
        return resolve_preset(value) if isinstance(value, dict) else value


def train(spec: dict[str, Any], emitter: Emitter) -> Mapping[str, Any]:
    """Train, infer every node's embedding, and write the embedding set; the summary is what its manifest says of it."""
    request = TrainSpec.model_validate(spec)
    bundle = Bundle(request.bundle)
    embedded = bundle if request.embed is None else Bundle(request.embed)
    done = request.out.exists()
    if not done:
        _check(bundle, request.settings, emitter)
    request = request.model_copy(update={"settings": request.settings.for_graph(bundle.num_nodes)})
    identity = _identity(bundle, embedded, request.settings)
    if done:
        return _finished(request.out, identity)
    check_transfer(TrainedOn.bundle(bundle), embedded, request.settings.views)
    make_folder(request.work)
    with locked(request.work.absolute()):
        return _made(request, bundle, embedded, identity, emitter)


def _made(request: TrainSpec, bundle: Bundle, embedded: Bundle, identity: str, emitter: Emitter) -> Mapping[str, Any]:
    settings = request.settings
    final = _trained(request, identity, emitter)

    features = load_features(bundle, settings.features)
    encoder = new_encoder(features.num_columns, settings.encoder, len(bundle.relations))
    checkpoint.load_online(final, encoder)
    model = Model.trained(encoder, settings, bundle, features)
    training = {
        **_training_info(bundle, settings, final, identity),
        "parameters": _parameters(features.num_columns, bundle, settings),
        "losses": curve.read(request.work),
    }
    manifest = embedding_set.write(
        request.out,
        embedded,
        model,
        {"settings": settings.model_dump(), "training": training},
        fingerprint(identity, hashlib.sha256(model.weights).hexdigest()),
        emitter,
        snapshots=checkpoint.snapshots(request.work),
        device="cuda" if uses_cuda(settings.run) else "cpu",
    )
    return embedding_set.summary(request.out, manifest)


def _identity(bundle: Bundle, embedded: Bundle, settings: TrainSettings) -> str:
    """What decides a run's outcome: the data and every setting but those ``CARRIED_OUT``."""
    reads_ppr = (settings.uses_anchors or bundle.features is None) and (bundle.path / "ppr").is_dir()
    derived = [read_manifest(bundle.path / "ppr", PPR)["content_hash"]] if reads_ppr else []
    graphs = [bundle.content_hash, embedded.content_hash]
    return fingerprint("train", graphs, derived, settings.model_dump(exclude=CARRIED_OUT))


def _finished(out: Path, identity: str) -> Mapping[str, Any]:
    try:
        manifest = read_manifest(out, "embedding_set")
    except ArtifactError:
        manifest = None
    if manifest is None or manifest["training"]["identity"] != identity:
        raise UsageError(
            "the output exists already, and is not what this bundle and these settings make",
            given=out,
            expected="a path that does not exist",
            remedy="name another path, or delete the old embedding set",
            pointer="/out",
        )
    return embedding_set.summary(out, manifest)


def _check(bundle: Bundle, settings: TrainSettings, emitter: Emitter) -> None:
    """Refuse now what could only fail later, and say what is unusual."""
    check_extras(settings.run, "/settings/run")
    if bundle.num_nodes < 2:
        raise InputError("the graph is too small to train on", given=f"{bundle.num_nodes} nodes", expected="2 or more")
    topologies = view_topologies(bundle, settings.views)
    if settings.batch.mode_for(bundle.num_nodes) == "mini":
        new_sampler(settings.batch)
    if settings.batch.weighted:
        for topology in topologies:
            edge_weights(topology)
    if settings.uses_anchors:
        bundle.ppr(settings.anchors.num_local)
    check_fits(settings, bundle.num_nodes, "/settings")
    check_scale(bundle, settings.features)
    if settings.uses_anchors and settings.anchors.num_global >= bundle.num_nodes:
        emitter.warning(
            "anchors_are_all_nodes",
            f"anchors.num_global is {settings.anchors.num_global} and the graph has {bundle.num_nodes} nodes: "
            "every node is an anchor in every step, and degree weights change nothing",
        )
    if bundle.features is None:
        emitter.warning(
            "features_from_structure",
            f"the graph has no node features: {HASHED_COLUMNS} are hashed from its PPR rows, so embeddings tell where "
            "in the graph a node is and nothing else",
        )
    if bundle.topology.weights is not None:
        sampled = ", and so do the neighbours sampled" if settings.batch.weighted else ""
        emitter.warning(
            "weights_ignored",
            f"the graph has edge weights: PPR, and so local anchors, follow them{sampled}; the encoder counts every "
            "edge alike",
        )


def _trained(request: TrainSpec, identity: str, emitter: Emitter) -> Path:
    """The checkpoint of the last epoch, trained to from the newest there is."""
    epochs = request.settings.epochs
    resume = checkpoint.newest(request.work, identity)
    if resume is None:
        if others := checkpoint.count(request.work):
            emitter.warning(
                "discarded", f"{others} checkpoints of a run on other data or settings are removed from {request.work}"
            )
        checkpoint.clear(request.work)
        curve.clear(request.work)
    if resume is None or not _ended(checkpoint.progress_of(resume), epochs):
        if resume is not None:
            done = checkpoint.progress_of(resume).steps
            emitter.warning("resumed", f"training goes on from where an earlier run was after {done} steps")
        if request.settings.batch.order == "near":
            # Once, before there are several workers.
            locality_order(Bundle(request.bundle), request.work)
        logs = None if request.logs is None else request.logs.absolute()
        launch(
            Job(request.bundle.absolute(), request.work.absolute(), request.settings, identity, resume, logs), emitter
        )
        resume = checkpoint.newest(request.work, identity)
    if resume is None or not _ended(checkpoint.progress_of(resume), epochs):
        raise ArtifactError(
            "training left no whole checkpoint of its end",
            where=str(request.work),
            expected="a directory that all workers share",
            remedy="use a work directory on storage that every machine of the cluster mounts",
        )
    return resume


def _ended(progress: checkpoint.Progress, epochs: int) -> bool:
    return progress.stopped or progress.epoch >= epochs


def _training_info(bundle: Bundle, settings: TrainSettings, final: Path, identity: str) -> dict[str, Any]:
    progress = checkpoint.progress_of(final)
    mode = settings.batch.mode
    return {
        "epochs": progress.epoch,
        "steps": progress.steps,
        "seconds": round(progress.seconds, 3),
        "stopped_early": progress.stopped,
        "health": progress.health.state(settings.epochs).as_dict(),
        "peak_bytes": progress.peak_bytes,
        "workers": settings.run.num_workers,
        "device": progress.device,
        "batch_mode": mode,
        "bundle": {"path": str(bundle.path.absolute()), "content_hash": bundle.content_hash},
        "sampler": new_sampler(settings.batch).name if mode == "mini" else None,
        "identity": identity,
    }


def _parameters(columns: int, bundle: Bundle, settings: TrainSettings) -> int:
    """How many numbers the optimizer moves, for features of that many columns."""
    with torch.device("meta"):
        model = new_objective(columns, settings, len(bundle.relations))
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
