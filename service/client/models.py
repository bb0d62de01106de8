"""What the client answers with: the API's JSON, typed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from service.client.frames import Frames

__all__ = [
    "Alias",
    "Answers",
    "DryRun",
    "Embedded",
    "Embedding",
    "Estimate",
    "Event",
    "Graph",
    "Job",
    "Lookup",
    "Neighbor",
    "Neighbors",
    "PairScore",
    "Projection",
    "Resources",
]


class _Answer(BaseModel):
    # A newer server may say more than this client knows.
    model_config = ConfigDict(frozen=True, extra="ignore")


class Graph(_Answer):
    """A registered graph; ``bundle`` is a path of the server's."""

    id: str
    name: str | None
    state: str
    bundle: str
    counts: dict[str, int] | None
    warnings: list[Any]
    created_at: datetime


class Job(_Answer):
    """A job; ``progress``, ``health``, ``error`` and ``stage_seconds`` as the API documents them."""

    id: str
    kind: str
    name: str | None
    labels: dict[str, str]
    status: Literal["queued", "running", "cancelling", "succeeded", "failed", "cancelled"]
    phase: str | None
    attempt: int
    graph: str | None
    embedding: str | None
    encoder: str | None = None
    new_graph: str | None = None
    alias: str | None
    progress: dict[str, Any] | None
    health: dict[str, Any] | None = None
    silent_since: datetime | None = None
    error: dict[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    stage_seconds: dict[str, float] = {}

    @property
    def ended(self) -> bool:
        """Whether the status is final."""
        return self.status in {"succeeded", "failed", "cancelled"}


class Estimate(_Answer):
    """What a job would roughly take; None where ``basis`` says why."""

    memory_bytes: int | None
    disk_bytes: int | None
    seconds: float | None
    basis: str


class Resources(_Answer):
    """Cores and GPUs, and bytes of memory, of the server's home and of the graph's folder."""

    cores: int
    gpus: int
    memory_bytes: int
    disk_bytes: int
    bundle_bytes: int


class DryRun(_Answer):
    """What a submit would do: its stages, their settings as resolved, what it would be given, and what there is."""

    stages: list[str]
    spec: dict[str, Any]
    estimate: Estimate
    resources: Resources
    available: Resources


class Event(_Answer):
    """One row of a job's history, as its stage reported it."""

    id: int
    event: str
    stage: str | None
    attempt: int
    at: datetime
    data: dict[str, Any]


class Embedding(_Answer):
    """An embedding set; ``report`` is what evaluate found, ``index`` the index and its measured recall."""

    id: str
    name: str | None = None
    graph: str
    graph_name: str | None = None
    job: str | None
    job_name: str | None = None
    job_status: str | None = None
    state: str
    path: str
    counts: dict[str, int]
    created_at: datetime
    report: dict[str, Any] | None
    index: dict[str, Any] | None
    aliases: list[str]


class Alias(_Answer):
    """A name for an embedding set; ``version`` is what ``if_version`` compares with."""

    name: str
    embedding: str
    version: int
    updated_at: datetime


class Neighbor(_Answer):
    """A node and its cosine to the query."""

    id: str
    score: float
    connected: bool | None


class Neighbors(_Answer):
    """Neighbours of one query, closest first."""

    results: list[Neighbor]
    returned: int
    exact: bool
    strategy: str
    complete: bool


class PairScore(_Answer):
    """Cosine of two nodes, and whether an edge joins them."""

    ids: tuple[str, str]
    score: float
    connected: bool | None


@dataclass(frozen=True)
class Lookup(Frames):
    """ids [n] as asked for, vectors [n, D] float32 (zero where not found), found [n], and the set that answered."""

    embedding: str
    vectors: npt.NDArray[np.float32]
    found: npt.NDArray[np.bool_]
    ids: list[str]

    def to_arrow(self) -> Any:
        """A row a node: ``id``, ``found`` and ``vector``, null where it is not found."""
        import pyarrow as pa

        dim = self.vectors.shape[1]
        column = pa.FixedSizeListArray.from_arrays(pa.array(self.vectors.reshape(-1)), dim, mask=pa.array(~self.found))
        return pa.table({"id": pa.array(self.ids, pa.string()), "found": pa.array(self.found), "vector": column})


class Answers(list[Neighbors], Frames):
    """Neighbours of several queries, in their order."""

    def to_arrow(self) -> Any:
        """A row a neighbour: ``query`` (its number, from 0), ``rank`` (from 1), ``id``, ``score``, ``connected``."""
        import pyarrow as pa

        rows = [
            {"query": query, "rank": rank, "id": found.id, "score": found.score, "connected": found.connected}
            for query, answer in enumerate(self)
            for rank, found in enumerate(answer.results, start=1)
        ]
        types = {
            "query": pa.int64(),
            "rank": pa.int64(),
            "id": pa.string(),
            "score": pa.float64(),
            "connected": pa.bool_(),
        }
        return pa.Table.from_pylist(rows, pa.schema(types))


@dataclass(frozen=True)
class Embedded:
    """vectors [n, D] float32 of new nodes in the order asked for, their ids, and the set whose encoder made them."""

    embedding: str
    ids: list[str]
    vectors: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Projection(Frames):
    """The map of the set that answered, which has ``nodes`` nodes: a row a point.

    ``table`` has ``id``, ``x``, ``y``, and what the graph knows of ``label``, ``degree`` and ``color``; where the graph
    could not be read, ``graph_missing`` says why.
    """

    embedding: str
    method: str
    nodes: int
    table: Any
    graph_missing: str | None = None

    def to_arrow(self) -> Any:
        """The table."""
        return self.table
