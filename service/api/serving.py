"""The requests that embedding sets are there for, as functions of their bodies: one vector, many vectors, neighbours.

The routes answer by them, and so does ``service.api.direct``. They read memory-mapped files and search: threads' work.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from fastapi.responses import Response, StreamingResponse

from service.api.accept import ARROW_STREAM
from service.api.answers import lookup_arrow, lookup_json, neighbors_arrow, neighbors_json
from service.errors import LimitError
from service.metrics import Metrics
from service.search.embedding_set import EmbeddingSet, EmbeddingSets
from service.search.queries import NodeId, find_neighbors
from service.search.schemas import LookupIn, NeighborsIn
from service.search.turns import Turns
from service.settings import ServiceSettings

__all__ = ["Held", "Serving", "check_limit", "is_quick"]

ARROW_BATCH = 8192
QUICK_K = 100

Held = tuple[str, EmbeddingSet]
"""The id of an open set, and the set."""


@dataclass(frozen=True)
class Serving:
    """What the answers are made from."""

    sets: EmbeddingSets
    settings: ServiceSettings
    metrics: Metrics
    searches: Turns

    def lookup(self, held: Held, body: LookupIn, arrow: bool) -> Response:
        """Vectors of many nodes, as JSON or Arrow; ``LimitError``."""
        asked = body.asked
        limit = self.settings.max_lookup_ids_arrow if arrow else self.settings.max_lookup_ids
        check_limit(len(asked), limit, "ids a lookup", "/ids")
        identity, embeddings = held
        if not arrow:
            vectors, found = self._look_up(embeddings, asked)
            names = _names(asked).to_pylist() if isinstance(asked, pa.Array) else list(map(str, asked))
            answer = lookup_json(identity, names, vectors, found, as_base64=body.encoding == "base64")
            embeddings.check_unchanged()
            return Response(answer, media_type="application/json")
        stream = lookup_arrow(identity, embeddings.dim, self._parts(embeddings, asked))
        if len(asked) <= ARROW_BATCH:
            return Response(b"".join(stream), media_type=ARROW_STREAM)
        return StreamingResponse(stream, media_type=ARROW_STREAM)

    def neighbors(self, held: Held, body: NeighborsIn, arrow: bool, *, wait: bool = True) -> Response:
        """Nearest neighbours, as JSON or Arrow; ``LimitError``, and what ``find_neighbors`` raises; without ``wait``
        ``BusyError`` where it is not the search's turn at once, or the graph has to be read first.
        """
        asked = body.asked
        check_limit(body.k, self.settings.max_k, "neighbours a query", "/k")
        check_limit(len(asked), self.settings.max_queries, "queries a call", "/queries")
        identity, embeddings = held
        with self.searches.turn(wait=wait):
            began = time.perf_counter()
            found = find_neighbors(embeddings, asked, body.k, body.exclude, body.search, body.filter, wait=wait)
            self.metrics.searched((answer.neighbors.strategy for answer in found), time.perf_counter() - began)
            # Serialised within the turn: a quarter of a million neighbours are memory, too.
            answer = (neighbors_arrow if arrow else neighbors_json)(identity, embeddings, found)
            embeddings.check_unchanged()
            return Response(answer, media_type=ARROW_STREAM if arrow else "application/json")

    def _look_up(
        self, embeddings: EmbeddingSet, ids: Sequence[NodeId] | pa.Array
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        vectors, found = embeddings.lookup(ids)
        hits = int(np.count_nonzero(found))
        self.metrics.looked_up(hits, len(ids) - hits)
        return vectors, found

    def _parts(
        self, embeddings: EmbeddingSet, ids: Sequence[NodeId] | pa.Array
    ) -> Iterator[tuple[pa.Array, npt.NDArray[np.float32], npt.NDArray[np.bool_]]]:
        """A lookup a batch at a time: ids as text, vectors, and which were found."""
        for start in range(0, len(ids), ARROW_BATCH):
            # Who reads a long answer slowly may do so for longer than a writer waits.
            embeddings.check_as_opened()
            part = ids[start : start + ARROW_BATCH]
            found = self._look_up(embeddings, part)
            embeddings.check_unchanged()
            yield _names(part), *found


def is_quick(body: NeighborsIn, embeddings: EmbeddingSet) -> bool:
    """Whether the search takes less time than handing it to a thread: one plain query of an open HNSW index."""
    space = embeddings.opened_space
    plain = body.filter is None and not body.search.exact and body.search.effort is None
    unlimited = not body.exclude.connected and not body.exclude.ids
    indexed = space is not None and space.index is not None and space.kind == "hnsw"
    return indexed and plain and unlimited and body.k <= QUICK_K and len(body.asked) == 1


def check_limit(given: int, limit: int, what: str, pointer: str) -> None:
    """``LimitError`` for more than ``limit``."""
    if given > limit:
        raise LimitError(
            f"more {what} than this server answers", given=given, expected=f"at most {limit} {what}", pointer=pointer
        )


def _names(ids: Sequence[NodeId] | pa.Array) -> pa.Array:
    return ids.cast(pa.string()) if isinstance(ids, pa.Array) else pa.array(map(str, ids), pa.string())
