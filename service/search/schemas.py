"""Embedding sets on the wire: what lookups, neighbours and scores may ask, and what they answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa
from pydantic import Field, ModelWrapValidatorHandler, PrivateAttr, model_validator

from service.schemas import Answer, Many, Name, Request
from service.search.arrow_bodies import read_body
from service.search.filter_schemas import Filter
from service.search.neighbors import Strategy
from service.search.queries import Exclude, NeighborQuery, NodeId, NodeIds, Search
from service.store import JobStatus

__all__ = [
    "EmbeddingIn",
    "EmbeddingOut",
    "LookupEntry",
    "LookupIn",
    "LookupOut",
    "Neighbor",
    "NeighborsIn",
    "NeighborsOut",
    "PairOut",
    "QueryOut",
    "ScoresIn",
    "ScoresOut",
    "VectorOut",
]

# Looked up sooner one by one than an Arrow column is made of them.
_FEW_IDS = 32


class EmbeddingIn(Request):
    """An embedding set made on the command line, which stays where it is."""

    path: str = Field(description="The set, under a data root.")
    graph: str = Field(description="The graph whose bundle the set embeds.")
    name: Name | None = None


class EmbeddingOut(Answer):
    """An embedding set; ``report`` is what evaluate found, ``index`` the kind of index and its measured recall,
    with the ``projection`` that was made (its method and how many points; null where none was wanted).

    ``job`` is null for a set that was made on the command line and registered. While ``job_status`` is not a final
    one, more is still being added to the set, such as its index; it is null once the job is deleted.
    """

    id: str
    name: str | None
    graph: str
    graph_name: str | None
    job: str | None
    job_name: str | None
    job_status: JobStatus | None
    state: str
    path: str
    counts: dict[str, int]
    created_at: datetime
    report: dict[str, Any] | None
    index: dict[str, Any] | None
    aliases: list[str]


class VectorOut(Answer):
    """The vector of one node."""

    id: str
    vector: list[float]
    dim: int
    embedding: str


class LookupIn(Request):
    """Nodes to look up."""

    ids: NodeIds
    encoding: Literal["json", "base64"] = Field(
        "json", description="`base64`: each vector as the base64 of its little-endian float32 numbers."
    )
    _column: pa.Array | None = PrivateAttr(None)

    @property
    def asked(self) -> Sequence[NodeId] | pa.Array:
        """The ids as an Arrow column; as a list where they are few, of two kinds, or of none that Arrow holds."""
        if self._column is None:
            if len(self.ids) <= _FEW_IDS:
                return self.ids
            try:
                self._column = pa.array(self.ids)
            except (pa.ArrowException, OverflowError, UnicodeError):
                return self.ids
        return self._column

    @model_validator(mode="wrap")
    @classmethod
    def _of_arrow(cls, document: Any, validate: ModelWrapValidatorHandler[LookupIn]) -> LookupIn:
        if not isinstance(document, bytes):
            return validate(document)
        # What is not JSON by its Content-Type comes as it was sent.
        made = cls.model_construct(ids=[])
        made._column = read_body(document, ("id",)).column
        return made


class LookupEntry(Answer):
    """One asked-for node; ``vector`` is null where it is not found."""

    id: str
    found: bool
    vector: list[float] | str | None


class LookupOut(Answer):
    """One entry per id, in the order of the request."""

    embedding: str
    dim: int
    items: list[LookupEntry]


class NeighborsIn(Request):
    """Nearest-neighbour queries that share ``k``, exclusions, filter and effort."""

    queries: Many[NeighborQuery] = Field(min_length=1)
    k: int = Field(10, ge=1)
    exclude: Exclude = Exclude()
    filter: Filter | None = Field(None, description="Which nodes may be in the answers, by their attributes.")
    search: Search = Search()
    _column: pa.Array | None = PrivateAttr(None)

    @property
    def asked(self) -> Sequence[NeighborQuery] | pa.Array:
        """The queries, as they came: a list, or an Arrow column of ids or vectors."""
        return self.queries if self._column is None else self._column

    @model_validator(mode="wrap")
    @classmethod
    def _of_arrow(cls, document: Any, validate: ModelWrapValidatorHandler[NeighborsIn]) -> NeighborsIn:
        if not isinstance(document, bytes):
            return validate(document)
        body = read_body(document, ("id", "vector"))
        made = validate(_shared_fields(body.metadata) | {"queries": [{"id": 0}]})
        made._column = body.column
        return made


def _shared_fields(metadata: dict[bytes, bytes]) -> dict[str, Any]:
    """What the schema's metadata says beside the queries, under ``request``: JSON, as the body has it without them."""
    try:
        fields = json.loads(metadata.get(b"request", b"{}"))
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or "queries" in fields:
        raise ValueError("the metadata `request` has to be a JSON object: the request's fields without `queries`")
    return fields


class Neighbor(Answer):
    """A node and its cosine to the query; ``connected`` is null for a bare vector, or without the graph."""

    id: str
    score: float
    connected: bool | None


class QueryOut(Answer):
    """The neighbours of one query, closest first; ``complete`` is false only where no more nodes may be returned."""

    results: list[Neighbor]
    returned: int
    exact: bool
    strategy: Strategy = Field(
        description="`exact`: a scan, asked for or by choice of index; `exact_no_index`: there is no index yet; "
        "`exact_fallback`: the index would have, or had, returned too few; `exact_filtered`: few nodes match the "
        "filter, and those alone were scanned; `hnsw`, `ivf`: the index; `hnsw_filtered`, `ivf_filtered`: the index, "
        "and what it found that matches."
    )
    complete: bool


class NeighborsOut(Answer):
    """One answer per query, in the order of the request."""

    embedding: str
    answers: list[QueryOut]


class ScoresIn(Request):
    """Pairs of nodes."""

    pairs: Many[tuple[NodeId, NodeId]] = Field(min_length=1)


class PairOut(Answer):
    """The cosine of two nodes, and whether an edge joins them (null without the graph)."""

    ids: tuple[str, str]
    score: float
    connected: bool | None


class ScoresOut(Answer):
    """One entry per pair, in the order of the request."""

    embedding: str
    items: list[PairOut]
