"""The map of an embedding set on the wire."""

from __future__ import annotations

from pydantic import Field

from service.schemas import Answer
from service.search.projection import ColorType

__all__ = ["ColorOut", "ProjectionOut"]


class ColorOut(Answer):
    """An attribute of every point, null where its node has none."""

    key: str
    type: ColorType
    values: list[bool | int | float | str | None]


class ProjectionOut(Answer):
    """Lists of one length, an entry a point; ``nodes`` is how many the set has.

    ``label`` is null for a graph without one label a node, and like ``degree`` where the graph is gone or has changed:
    ``graph_missing`` says so.
    """

    embedding: str
    method: str = Field(description="`tsne`, `umap` or `pca`.")
    nodes: int
    id: list[str]
    x: list[float]
    y: list[float]
    label: list[str | None] | None
    degree: list[int] | None
    color: ColorOut | None
    graph_missing: str | None
