"""The map of an embedding set as a table: a row a point, beside what the page colours it by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from preprocessing.array_types import Int64Array
from preprocessing.artifact import read_manifest
from preprocessing.attributes import AttributeType, is_none
from preprocessing.bundle import Bundle
from preprocessing.errors import ArtifactError, InputError
from preprocessing.stored_array import open_array
from service.errors import ConflictError
from service.search.embedding_set import PROJECTION, EmbeddingSet

__all__ = ["ColorType", "Projection", "read_projection"]

ColorType = AttributeType
_DRAW = "run an index job on this set, or rgrl index, with projection.method other than none"


@dataclass(frozen=True)
class Projection:
    """``table``: ``id``, ``x``, ``y``, then, of a graph that is there, ``label`` if it has one a node, ``degree``, and
    the attribute asked for as ``color``, of type ``color_type``. ``graph_missing``: why the graph is not there.
    """

    method: str
    nodes: int
    table: pa.Table
    color_type: ColorType | None
    graph_missing: str | None


def read_projection(embeddings: EmbeddingSet, color: str | None = None) -> Projection:
    """The set's map; ``color`` names an attribute of its graph.

    ``ConflictError`` for a set without a map, or whose map is of other vectors; ``InputError`` for an attribute that
    there is not; ``ArtifactError`` for a map that cannot be read, and with ``color`` for a graph that is gone or
    changed.
    """
    folder = embeddings.path / PROJECTION
    try:
        manifest = read_manifest(folder, PROJECTION)
    except ArtifactError as error:
        raise ConflictError("the embedding set has no map", remedy=_DRAW) from error
    if manifest["vectors"] != embeddings.manifest["content_hash"]:
        raise ConflictError("the map is of other vectors than the set's", remedy=_DRAW)
    embeddings.check(folder, manifest)
    rows, points = (np.asarray(open_array(folder / name)) for name in ("rows.npy", "points.npy"))
    columns = {
        "id": embeddings.ids.column(rows).cast(pa.string()),
        "x": pa.array(points[:, 0]),
        "y": pa.array(points[:, 1]),
    }
    color_type, graph_missing = None, None
    try:
        graph = embeddings.graph()
    except ArtifactError as error:
        if color is not None:
            raise
        graph_missing = error.problem
    else:
        columns |= _of_the_graph(graph, rows)
        if color is not None:
            columns["color"], color_type = _attribute(graph, color, rows)
    return Projection(manifest["method"], embeddings.nodes, pa.table(columns), color_type, graph_missing)


def _of_the_graph(graph: Bundle, rows: Int64Array) -> dict[str, pa.Array]:
    labels, indptr = graph.labels, graph.symmetric.indptr
    known = {} if labels is None else {"label": _named(labels.codes[rows], pa.array(labels.names, pa.string()))}
    return known | {"degree": pa.array(indptr[rows + 1] - indptr[rows])}


def _attribute(graph: Bundle, name: str, rows: Int64Array) -> tuple[pa.Array, ColorType]:
    if name not in graph.attributes:
        raise InputError(
            "the graph has no such attribute",
            expected="one of " + ", ".join(graph.attributes) if graph.attributes else "none: it has no attributes",
            remedy="leave color out, or ingest the graph with that column among its attributes",
            pointer="color",
        )
    attribute = graph.attribute(name)
    values: npt.NDArray[Any] = np.asarray(attribute.values[rows])
    if attribute.type == "string":
        return _named(values, attribute.strings.cast(pa.string())), attribute.type
    absent = is_none(values, attribute.type)
    return pa.array(values == 1 if attribute.type == "boolean" else values, mask=absent), attribute.type


def _named(codes: npt.NDArray[Any], names: pa.Array) -> pa.Array:
    """The names that ``codes`` stand for, null where a code is −1."""
    return names.take(pa.array(codes, mask=codes < 0))
