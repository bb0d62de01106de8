"""Whether an encoder means in another graph what it meant in the one it was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from preprocessing.bundle import Bundle
from preprocessing.errors import InputError
from trainer.model import Model
from trainer.relations import view_topologies
from trainer.settings import ViewKind

__all__ = ["TrainedOn", "check_transfer"]


@dataclass(frozen=True)
class TrainedOn:
    """The graph of a training, as far as its encoder depends on it; ``columns`` is 0 without node features."""

    where: str
    content_hash: str
    columns: int
    relations: tuple[str, ...]

    @classmethod
    def bundle(cls, bundle: Bundle) -> TrainedOn:
        """A bundle that is there."""
        return cls(str(bundle.path), bundle.content_hash, _columns(bundle), bundle.relations)

    @classmethod
    def of(cls, model: Model, bundle: dict[str, str]) -> TrainedOn:
        """The bundle, perhaps gone, of ``path`` and ``content_hash``, that a model was trained on.

        ``InputError`` where the model lacks the standardisation that it was trained with: earlier versions kept none.
        """
        if model.config["features"]["transform"] == "standardize" and model.standardization is None:
            raise InputError(
                "the model does not say by which means and deviations its features were standardised",
                given="a model that an earlier version of rgrl wrote",
                expected="a model that this version wrote",
                remedy="train again",
            )
        columns = 0 if model.hashed else model.config["in_dim"]
        return cls(bundle["path"], bundle["content_hash"], columns, tuple(model.config["relations"]))


def check_transfer(trained: TrainedOn, embedded: Bundle, views: ViewKind) -> None:
    """``InputError`` where the encoder of ``trained`` cannot embed the nodes of ``embedded``."""
    if embedded.content_hash == trained.content_hash:
        return
    columns = _columns(embedded)
    if 0 in (columns, trained.columns):
        raise InputError(
            "features that are hashed from one graph mean nothing in another",
            where=str(embedded.path) if trained.columns else trained.where,
            given="a graph without node features",
            expected="node features in both graphs",
            remedy="embed the graph that is trained on, or ingest with features",
        )
    if columns != trained.columns or embedded.relations != trained.relations:
        raise InputError(
            "the graph to embed is of another kind than the one to train on",
            where=str(embedded.path),
            given=_told(columns, embedded.relations),
            expected=f"{_told(trained.columns, trained.relations)}, as {trained.where} has",
            remedy="name a bundle of the same features and relations",
        )
    view_topologies(embedded, views)


def _columns(bundle: Bundle) -> int:
    return 0 if bundle.features is None else bundle.features.shape[1]


def _told(columns: int, relations: Sequence[str]) -> str:
    return f"{columns} feature columns and relations {list(relations)}"
