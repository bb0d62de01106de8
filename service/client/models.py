"""What the client answers with: the API's JSON, typed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

__all__ = ["Alias", "Embedded", "Embedding", "Event", "Graph", "Job", "Lookup", "Neighbor", "Neighbors", "PairScore"]


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
    """A job; ``progress``, ``health`` and ``error`` as the API documents them."""

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

    @property
    def ended(self) -> bool:
        """Whether the status is final."""
        return self.status in {"succeeded", "failed", "cancelled"}


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
    job: str | None
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
class Lookup:
    """vectors [n, D] float32 in the order asked for (zero where not found), found [n], and the set that answered."""

    embedding: str
    vectors: npt.NDArray[np.float32]
    found: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Embedded:
    """vectors [n, D] float32 of new nodes in the order asked for, their ids, and the set whose encoder made them."""

    embedding: str
    ids: list[str]
    vectors: npt.NDArray[np.float32]
