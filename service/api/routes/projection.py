"""The map of an embedding set, as the page draws it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from pydantic_core import to_json

from service.api.accept import ARROW_STREAM, chosen
from service.api.routes.embeddings import SetsDep
from service.arrow_streams import whole_arrow_stream
from service.search.projection import Projection, read_projection
from service.search.projection_schemas import ProjectionOut

__all__ = ["router"]

router = APIRouter(prefix="/v1/embeddings", tags=["embeddings"])


@router.get(
    "/{ref}/projection",
    response_model=ProjectionOut,
    responses={200: {"content": {ARROW_STREAM: {"schema": {"type": "string", "format": "binary"}}}}},
)
def get_projection(
    ref: str,
    sets: SetsDep,
    color: Annotated[
        str | None,
        Query(min_length=1, max_length=200, description="An attribute of the graph to give with each point."),
    ] = None,
    accept: Annotated[str, Header()] = "*/*",
) -> Response:
    """The set's nodes as points of the plane, which its index stage placed: at most 200,000, a sample of a larger set.

    JSON, or an Arrow stream by `Accept` with a column for each list of the JSON, its other fields in the metadata. 409
    for a set without a map.
    """
    media_type = chosen(accept, ["application/json", ARROW_STREAM])
    identity, embeddings = sets.get(ref)
    found = read_projection(embeddings, color)
    answer = _arrow(identity, found, color) if media_type == ARROW_STREAM else _json(identity, found, color)
    return Response(answer, media_type=media_type)


def _json(identity: str, found: Projection, color: str | None) -> bytes:
    """A ``ProjectionOut``."""
    lists = dict.fromkeys(("label", "degree"))
    lists |= {name: column.to_pylist() for name, column in zip(found.table.column_names, found.table, strict=True)}
    values = lists.pop("color", None)
    colors = None if color is None else {"key": color, "type": found.color_type, "values": values}
    document = {"embedding": identity, "method": found.method, "nodes": found.nodes, **lists, "color": colors}
    return to_json(document | {"graph_missing": found.graph_missing}, inf_nan_mode="null")


def _arrow(identity: str, found: Projection, color: str | None) -> bytes:
    facts = {"embedding": identity, "method": found.method, "nodes": str(found.nodes)}
    if color is not None:
        facts |= {"color": color, "color_type": str(found.color_type)}
    if found.graph_missing is not None:
        facts["graph_missing"] = found.graph_missing
    return whole_arrow_stream(found.table, facts)
