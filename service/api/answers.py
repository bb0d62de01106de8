"""The large answers as bytes: built once from arrays, since a model for each of ten thousand entries costs more than
reading them. Their shapes are those of ``service.search.schemas``, which the documentation and the tests hold them to.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic_core import to_json

from service.arrow_streams import arrow_stream, whole_arrow_stream
from service.search.embedding_set import EmbeddingSet
from service.search.queries import QueryAnswer

__all__ = ["lookup_arrow", "lookup_json", "neighbors_arrow", "neighbors_json", "vector_json"]

Vectors = npt.NDArray[np.float32]
Found = npt.NDArray[np.bool_]


def vector_json(identity: str, node: str, vector: npt.NDArray[Any]) -> bytes:
    """A ``VectorOut``."""
    return _json({"id": node, "vector": vector.tolist(), "dim": len(vector), "embedding": identity})


def lookup_json(identity: str, ids: Sequence[str], vectors: Vectors, found: Found, *, as_base64: bool) -> bytes:
    """A ``LookupOut``: a vector as a list of numbers, or as the base64 of its little-endian float32 numbers."""
    encoded = _base64(vectors) if as_base64 else vectors.tolist()
    items = [
        {"id": node, "found": hit, "vector": vector if hit else None}
        for node, hit, vector in zip(ids, found.tolist(), encoded, strict=True)
    ]
    return _json({"embedding": identity, "dim": vectors.shape[1], "items": items})


def lookup_arrow(
    identity: str, dim: int, parts: Iterable[tuple[pa.Array, Vectors, Found]]
) -> Iterator[bytes | memoryview]:
    """A lookup as an Arrow IPC stream (``id``, ``found``, ``vector``), a batch a part; the metadata names the set."""
    schema = pa.schema(
        [("id", pa.string()), ("found", pa.bool_()), ("vector", pa.list_(pa.float32(), dim))],
        metadata={"embedding": identity},
    )

    def batch(ids: pa.Array, vectors: Vectors, found: Found) -> pa.RecordBatch:
        missing = None if found.all() else pa.array(~found)
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), dim, mask=missing)
        return pa.record_batch([ids, pa.array(found), column], schema)

    return arrow_stream(schema, itertools.starmap(batch, parts))


def neighbors_json(identity: str, embeddings: EmbeddingSet, found: Sequence[QueryAnswer]) -> bytes:
    """A ``NeighborsOut``."""
    names = iter(embeddings.ids.external(_rows(found)))
    answers = []
    for answer in found:
        neighbors = answer.neighbors
        edges = [None] * len(neighbors.rows) if answer.connected is None else answer.connected.tolist()
        results = [
            {"id": next(names), "score": score, "connected": edge}
            for score, edge in zip(neighbors.scores.tolist(), edges, strict=True)
        ]
        answers.append({"results": results, **_facts(answer)})
    return _json({"embedding": identity, "answers": answers})


def neighbors_arrow(identity: str, embeddings: EmbeddingSet, found: Sequence[QueryAnswer]) -> bytes:
    """The same as one Arrow IPC stream: ``query``, ``rank``, ``id``, ``score``, ``connected``, a row a neighbour.

    The metadata names the set, and tells of every query what JSON tells beside its results (``answers``, as JSON).
    """
    counts = [len(answer.neighbors.rows) for answer in found]
    connected = [
        pa.nulls(count, pa.bool_()) if answer.connected is None else pa.array(answer.connected)
        for answer, count in zip(found, counts, strict=True)
    ]
    columns = {
        "query": pa.array(np.repeat(np.arange(len(found), dtype=np.int32), counts)),
        "rank": pa.array(np.concatenate([np.arange(count, dtype=np.int32) for count in counts])),
        "id": embeddings.ids.column(_rows(found)).cast(pa.string()),
        "score": pa.array(np.concatenate([answer.neighbors.scores for answer in found])),
        "connected": pa.concat_arrays(connected),
    }
    facts = json.dumps([_facts(answer) for answer in found])
    return whole_arrow_stream(pa.table(columns), {"embedding": identity, "answers": facts})


def _rows(found: Sequence[QueryAnswer]) -> npt.NDArray[np.int64]:
    return np.concatenate([answer.neighbors.rows for answer in found])


def _facts(answer: QueryAnswer) -> dict[str, Any]:
    neighbors = answer.neighbors
    return {
        "returned": len(neighbors.rows),
        "exact": neighbors.exact,
        "strategy": neighbors.strategy,
        "complete": neighbors.complete,
    }


def _base64(vectors: Vectors) -> list[str]:
    return [base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii") for vector in vectors]


def _json(document: dict[str, Any]) -> bytes:
    return to_json(document, inf_nan_mode="null")
