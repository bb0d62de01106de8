"""Graphs on the wire, and what a request to register one resolves to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, model_validator

from preprocessing.artifact import read_manifest
from preprocessing.bundle import BUNDLE
from preprocessing.errors import ArtifactError, InputError
from preprocessing.settings import NpzSource, PygSource, TableSource
from service.errors import ForbiddenError
from service.graphs.data_roots import under_roots, under_roots_or_uris
from service.schemas import Answer, Name, Request

__all__ = [
    "DegreeBucket",
    "DegreesAnswer",
    "GraphAnswer",
    "GraphRequest",
    "NodeAnswer",
    "held_source",
    "registration",
    "still_under_roots",
]


Source = TableSource | NpzSource | PygSource
TaggedSource = Annotated[Source, Field(discriminator="kind")]
_SOURCE: TypeAdapter[Source] = TypeAdapter(TaggedSource)


class GraphRequest(Request):
    """A graph by its tables, to be ingested by a job, or by a whole bundle: exactly one of them."""

    name: Name | None = None
    source: TaggedSource | None = None
    bundle: str | None = Field(None, description="A graph bundle under a data root.")
    direction: Literal["undirected", "directed", "reverse"] | None = Field(
        None, description="How edges of a source are read; default `undirected`. A bundle knows its own."
    )
    feature_dtype: Literal["float32", "float16"] | None = Field(
        None, description="Of a source's features; default `float32`. A bundle knows its own."
    )

    @model_validator(mode="after")
    def _one_origin(self) -> GraphRequest:
        if (self.source is None) == (self.bundle is None):
            raise ValueError("give exactly one of source and bundle")
        if self.bundle is not None and (self.direction is not None or self.feature_dtype is not None):
            raise ValueError("direction and feature_dtype belong to a source; a bundle has its own")
        return self


class GraphAnswer(Answer):
    """A graph; ``counts``, ``features`` and ``labels`` are null until its bundle is whole."""

    id: str
    name: str | None
    state: Literal["registered", "ready"]
    source: dict[str, Any] | None
    direction: str
    feature_dtype: str
    bundle: str
    counts: dict[str, int] | None
    features: dict[str, Any] | None
    labels: dict[str, Any] | None
    warnings: list[Any]
    created_at: datetime


class DegreeBucket(Answer):
    """How many nodes have ``low`` to ``high`` neighbours, both included."""

    low: int
    high: int
    nodes: int


class DegreesAnswer(Answer):
    """Neighbours a node, whatever the direction of edges: buckets of doubling width up to the largest degree."""

    mean: float
    max: int
    buckets: list[DegreeBucket]


class PprEntry(Answer):
    """One of a node's largest personalised PageRank scores."""

    id: str
    score: float


class PprAnswer(Answer):
    """A node's top K by personalised PageRank, largest first; ``exact`` when the set is proved."""

    entries: list[PprEntry]
    exact: bool


class NeighborsAnswer(Answer):
    """How many nodes this one hears from, and some of them."""

    total: int
    sample: list[str]


class NodeAnswer(Answer):
    """A node as the bundle knows it; ``ppr`` is null before preprocessing, and where its rows cannot be read.

    ``ppr_missing`` says why it is null.
    """

    id: str
    degree: int
    neighbors: NeighborsAnswer
    ppr: PprAnswer | None
    ppr_missing: str | None


def registration(request: GraphRequest, roots: Sequence[Path], uris: Sequence[str]) -> dict[str, Any]:
    """What ``Store.add_graph`` takes, every path real and under a data root, every table's URI below one of ``uris``.

    ``ForbiddenError`` and ``InputError`` as in ``under_roots``; ``InputError`` for a bundle that is not whole.
    """
    if request.source is not None:
        return {
            "name": request.name,
            "source": held_source(request.source, roots, uris, "/source").model_dump(mode="json"),
            "bundle": None,
            "manifest": None,
            "direction": request.direction or "undirected",
            "feature_dtype": request.feature_dtype or "float32",
        }
    assert request.bundle is not None
    path = under_roots(request.bundle, roots, "/bundle")
    try:
        manifest = read_manifest(path, BUNDLE)
    except ArtifactError as error:
        raise InputError(
            "there is no whole graph bundle at this path",
            expected="a directory that rgrl ingest made, with its manifest.json",
            pointer="/bundle",
        ) from error
    return {
        "name": request.name,
        "source": None,
        "bundle": path,
        "manifest": manifest,
        "direction": manifest["direction"],
        "feature_dtype": manifest["settings"]["feature_dtype"],
    }


def still_under_roots(source: dict[str, Any], roots: Sequence[Path], uris: Sequence[str]) -> dict[str, Any]:
    """A registered source as it is; ``ForbiddenError`` where a path of it leads elsewhere by now.

    Registration holds every path under the data roots, but a link may have taken the place of a file since.
    """
    registered = _SOURCE.validate_python(source)
    if held_source(registered, roots, uris, "/source") != registered:
        raise ForbiddenError(
            "a path of the graph's source leads elsewhere than when it was registered",
            remedy="register the graph again, by a path without links",
        )
    return source


def held_source(source: Source, roots: Sequence[Path], uris: Sequence[str], pointer: str) -> Source:
    """The same with every path real, and under ``roots`` or below ``uris``; ``pointer`` is the source's."""
    return source.model_copy(update=_held_paths(source, roots, uris, pointer))


def _held_paths(source: Source, roots: Sequence[Path], uris: Sequence[str], pointer: str) -> dict[str, Any]:
    def real(text: str, part: str) -> str:
        return under_roots_or_uris(text, roots, uris, pointer + part)

    match source:
        case TableSource():
            named = {name: getattr(source, name) for name in ("edges", "nodes")}
            tables = {name: real(text, f"/{name}") for name, text in named.items() if text is not None}
            relations = {name: real(text, f"/relations/{name}") for name, text in source.relations.items()}
            return {**tables, "relations": relations}
        case NpzSource():
            return {"path": real(source.path, "/path")}
        case PygSource():
            return {"root": str(under_roots(source.root, roots, f"{pointer}/root", must_exist=False))}
