"""The embed stage: the encoder of an embedding set embeds the nodes of another bundle, without training.

The other bundle is a new graph of the same features and relations, or the same graph grown (``rgrl append``). A killed
stage goes on from its last chunk of rows when it is started again; a finished one answers with what is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from preprocessing.artifact import existing, fingerprint, read_manifest
from preprocessing.bundle import PPR, Bundle
from preprocessing.settings import Settings
from preprocessing.stage import Emitter
from trainer.embedding_set import EMBEDDING_SET, EmbeddingSet, summary, write
from trainer.launch import cuda_here
from trainer.settings import EmbedSettings
from trainer.transfer import TrainedOn, check_transfer

__all__ = ["EmbedSpec", "embed"]


class EmbedSpec(Settings):
    """What ``python -m trainer embed`` reads: whose encoder, whose nodes, and the embedding set to make."""

    embeddings: Path
    bundle: Path
    out: Path
    settings: EmbedSettings = EmbedSettings()


def embed(spec: dict[str, Any], emitter: Emitter) -> Mapping[str, Any]:
    """Write the embedding set at ``out``; its manifest's ``model`` says whose encoder made it.

    ``InputError`` where the encoder would mean something else in the bundle; ``UsageError`` where ``out`` is there and
    of another encoder or bundle.
    """
    request = EmbedSpec.model_validate(spec)
    source, bundle = EmbeddingSet(request.embeddings), Bundle(request.bundle)
    identity = _identity(source, bundle)
    there = existing(request.out, EMBEDDING_SET, identity, "what this encoder made of this bundle")
    if there is None:
        training = source.manifest["training"]
        check_transfer(TrainedOn.of(source.model, training["bundle"]), bundle, source.model.views)
        there = write(
            request.out,
            bundle,
            source.model,
            {
                "settings": source.manifest["settings"],
                "training": training | {"identity": identity},
                "model": {"path": str(source.path.absolute()), "content_hash": source.content_hash},
            },
            identity,
            emitter,
            device="cuda" if cuda_here(request.settings.device, "device") else "cpu",
        )
    return summary(request.out, there)


def _identity(source: EmbeddingSet, bundle: Bundle) -> str:
    """What decides the vectors: features that are hashed from PPR rows are not of the bundle's own files."""
    hashed = bundle.features is None and (bundle.path / "ppr").is_dir()
    derived = [read_manifest(bundle.path / "ppr", PPR)["content_hash"]] if hashed else []
    return fingerprint("embed", source.content_hash, bundle.content_hash, derived)
