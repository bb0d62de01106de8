"""Embedding nodes that the graph has not, by the encoder of an embedding set."""

from __future__ import annotations

import base64
from typing import Annotated

import pyarrow as pa
from fastapi import APIRouter, Header, Response

from preprocessing.array_types import Float32Array
from service.api.accept import ARROW_STREAM, wants_arrow
from service.api.dependencies import SettingsDep, TurnDep
from service.api.routes.embeddings import SetsDep
from service.arrow_streams import whole_arrow_stream
from service.errors import LimitError
from service.search.new_node_schemas import EmbedIn, EmbedOut, NewVector

__all__ = ["router"]

router = APIRouter(prefix="/v1/embeddings", tags=["embeddings"])


@router.post(
    "/{ref}/embed",
    response_model=EmbedOut,
    responses={200: {"content": {ARROW_STREAM: {"schema": {"type": "string", "format": "binary"}}}}},
)
def embed_new_nodes(
    ref: str,
    body: EmbedIn,
    sets: SetsDep,
    settings: SettingsDep,
    turn: TurnDep,
    accept: Annotated[str, Header()] = "*/*",
) -> Response:
    """Vectors of nodes that the graph has not, from their features and edges: JSON, or Arrow (``id``, ``vector``).

    They are those that `rgrl append` and `rgrl embed` would give these nodes, were they all that is new; nothing is
    added to the graph or to the set. Their edges change what the encoder hears of known nodes around them, which is
    computed for the answer alone: known nodes keep their vectors.
    """
    _check_limit(len(body.nodes), settings.max_embed_nodes, "new nodes", "max_embed_nodes", "/nodes")
    _check_limit(len(body.edges), settings.max_embed_edges, "edges", "max_embed_edges", "/edges")
    arrow = wants_arrow(accept)
    identity, embeddings = sets.get(ref)
    with turn():
        vectors = embeddings.new_nodes().embed(body.nodes, body.edges, settings.max_embed_edges)
    names = [str(node.id) for node in body.nodes]
    if arrow:
        return Response(_arrow(identity, names, vectors), media_type=ARROW_STREAM)
    encode = _base64 if body.encoding == "base64" else _numbers
    items = [
        NewVector.model_construct(id=name, vector=encode(vector)) for name, vector in zip(names, vectors, strict=True)
    ]
    answer = EmbedOut.model_construct(embedding=identity, dim=vectors.shape[1], items=items)
    return Response(answer.model_dump_json(), media_type="application/json")


def _check_limit(given: int, limit: int, what: str, setting: str, pointer: str) -> None:
    if given > limit:
        raise LimitError(
            f"more {what} than one call embeds",
            given=given,
            expected=f"at most {limit} {what} a call (setting {setting})",
            remedy="send fewer a call, or append them to the graph (rgrl append) and embed it (rgrl embed)",
            pointer=pointer,
        )


def _base64(vector: Float32Array) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")


def _numbers(vector: Float32Array) -> list[float]:
    numbers: list[float] = vector.tolist()
    return numbers


def _arrow(identity: str, names: list[str], vectors: Float32Array) -> bytes:
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    return whole_arrow_stream(pa.table({"id": pa.array(names, pa.string()), "vector": column}), {"embedding": identity})
