"""What an embedding set's encoder needs of a graph, told from the set's files: the trainer's rule, without torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preprocessing.artifact import read_manifest
from preprocessing.bundle import BUNDLE, PPR
from preprocessing.errors import ArtifactError, InputError

__all__ = ["check_transfer", "layer_widths"]

EMBEDDING_SET = "embedding_set"


@dataclass(frozen=True)
class _Kind:
    """Feature columns of a graph (0: hashed from the graph itself) and its relations."""

    columns: int
    relations: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.columns} feature columns and relations {list(self.relations)}"


def check_transfer(embeddings: Path, bundle: Path) -> None:
    """``InputError`` where the encoder of a set would mean something else in the graph (see ``trainer.transfer``).

    ``ArtifactError`` when the set has no encoder, or the graph no PPR rows where features are hashed from them.
    """
    config, graph = _config(embeddings), read_manifest(bundle, BUNDLE)
    trained = _Kind(0 if config["hashed"] else int(config["in_dim"]), tuple(config["relations"]))
    given = _Kind(int((graph["features"] or {}).get("columns") or 0), tuple(graph.get("relations", {})))
    trained_on = read_manifest(embeddings, EMBEDDING_SET)["training"]["bundle"]["content_hash"]
    if trained_on == graph["content_hash"]:
        if given.columns == 0:
            read_manifest(bundle / "ppr", PPR)
        return
    if 0 in (trained.columns, given.columns):
        raise InputError(
            "features that are hashed from one graph mean nothing in another",
            expected="node features in both graphs",
            remedy="embed the graph that was trained on, or ingest with features",
            pointer="/graph",
        )
    if trained != given:
        raise InputError(
            f"the graph is of another kind than the one trained on: it has {given}",
            expected=str(trained),
            remedy="name a graph of the same features and relations",
            pointer="/graph",
        )


def layer_widths(embeddings: Path) -> list[int]:
    """Widths of the encoder's layers, the last that of the vectors."""
    return [int(width) for width in _config(embeddings)["encoder"]["layers"]]


def _config(embeddings: Path) -> dict[str, Any]:
    file = embeddings / "model" / "config.json"
    try:
        config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        missing = {"in_dim", "hashed", "relations", "encoder"} - set(config)
    except (OSError, ValueError, TypeError) as error:
        raise ArtifactError(
            "the embedding set has no encoder that can be read", expected="model/config.json"
        ) from error
    if missing:
        raise ArtifactError(f"the embedding set's encoder does not say its {min(missing)}", remedy="train again")
    return config
