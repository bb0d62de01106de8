"""The Python client: graphs, jobs, vectors, neighbours and aliases of one server, typed.

>>> with Client("http://127.0.0.1:8000") as client:
...     graph = client.register_graph({"kind": "npz", "path": "cora.npz"}, name="cora")
...     job = client.submit("pipeline", graph=graph.id, train={"preset": "cora"}, alias="cora")
...     client.wait(job.id)
...     client.neighbors("cora", [{"id": 0}], k=5, exclude_connected=True)
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from service.client.export import exported
from service.client.models import (
    Alias,
    Answers,
    DryRun,
    Embedded,
    Embedding,
    Estimate,
    Event,
    Graph,
    Job,
    Lookup,
    Neighbor,
    Neighbors,
    PairScore,
    Projection,
    Resources,
)
from service.client.transport import ApiError, ServerBusyError, Transport, UnreachableError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Alias",
    "Answers",
    "ApiError",
    "Client",
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
    "UnreachableError",
]

NodeId = str | int
JobKind = Literal["ingest", "append", "preprocess", "train", "embed", "evaluate", "index", "pipeline"]

LOCAL = "http://127.0.0.1:8000"
LOOKUP_IDS = 100_000
NEIGHBOR_QUERIES = 256
RECONNECT_S = 1.0
PATIENCE_S = 60.0
"""How long a stream that broke off waits for the server to come back, as after a restart."""


class Client:
    """One server. Failures are ``ApiError`` (its kinds tell what to do) or ``UnreachableError``."""

    def __init__(self, url: str | None = None, key: str | None = None) -> None:
        """``key`` is an API key, where the server has any; by default ``RGRL_SERVER``, or this machine's, and
        ``RGRL_KEY``, as for commands.
        """
        self._transport = Transport(url or os.environ.get("RGRL_SERVER") or LOCAL, key or os.environ.get("RGRL_KEY"))

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The server's address, which is the page's too; no slash at its end."""
        return self._transport.url

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def info(self) -> dict[str, Any]:
        """Versions, devices and limits of the server."""
        answer: dict[str, Any] = self._json("GET", "/v1/info")
        return answer

    def register_graph(
        self,
        source: dict[str, Any] | None = None,
        *,
        bundle: str | None = None,
        name: str | None = None,
        direction: str | None = None,
        feature_dtype: str | None = None,
    ) -> Graph:
        """Register tables to ingest (``source``), or a bundle; paths are the server's, under its data roots."""
        given = {
            "source": source,
            "bundle": bundle,
            "name": name,
            "direction": direction,
            "feature_dtype": feature_dtype,
        }
        body = {field: value for field, value in given.items() if value is not None}
        response = self._transport.request("POST", "/v1/graphs", json=body, repeatable=False)
        return Graph.model_validate(response.json())

    def graph(self, graph_id: str) -> Graph:
        """One graph."""
        return Graph.model_validate(self._json("GET", f"/v1/graphs/{graph_id}"))

    def graphs(self, *, name: str | None = None) -> Iterator[Graph]:
        """Every graph, or every one of a name, newest first."""
        return (Graph.model_validate(item) for item in self._pages("/v1/graphs", {"name": name}))

    def delete_graph(self, graph_id: str) -> None:
        """Forget a graph that nothing uses, and the bundle the server made of it."""
        self._transport.request("DELETE", f"/v1/graphs/{graph_id}", repeatable=False)

    def submit(self, kind: JobKind, *, idempotency_key: str | None = None, **fields: Any) -> Job:
        """Queue a job. ``fields`` are those of its kind: ``graph`` or ``embedding``, ``train``, ``name``, ``labels`` …

        The key keeps a retried request from queueing a second job; one is made up unless given.
        """
        headers = {"Idempotency-Key": idempotency_key or secrets.token_hex(16)}
        response = self._transport.request("POST", "/v1/jobs", json=_job_body(kind, fields), headers=headers)
        return Job.model_validate(response.json())

    def dry_run(self, kind: JobKind, **fields: Any) -> DryRun:
        """What ``submit`` with these fields would do and take; nothing is queued. What it would refuse is refused."""
        body, params = _job_body(kind, fields), {"dry_run": True}
        return DryRun.model_validate(self._transport.request("POST", "/v1/jobs", json=body, params=params).json())

    def job(self, job_id: str) -> Job:
        """One job."""
        return Job.model_validate(self._json("GET", f"/v1/jobs/{job_id}"))

    def jobs(self, *, status: str | None = None, kind: str | None = None, label: str | None = None) -> Iterator[Job]:
        """Jobs, newest first."""
        filters = {"status": status, "kind": kind, "label": label}
        return (Job.model_validate(item) for item in self._pages("/v1/jobs", filters))

    def cancel(self, job_id: str) -> Job:
        """Ask for a job's end; ``wait`` tells when its processes are gone. ``ConflictError`` if it has ended."""
        return Job.model_validate(self._json("POST", f"/v1/jobs/{job_id}/cancel"))

    def edit_job(self, job_id: str, **changes: Any) -> Job:
        """Change ``name``, ``labels`` (all of them) or, while it is queued, ``priority``; what is left out stays."""
        return Job.model_validate(self._json("PATCH", f"/v1/jobs/{job_id}", changes))

    def delete_job(self, job_id: str) -> None:
        """Forget an ended job, its events, log and checkpoints; what it made stays."""
        self._transport.request("DELETE", f"/v1/jobs/{job_id}", repeatable=False)

    def logs(self, job_id: str, tail: int = 100) -> list[str]:
        """The last lines of a job's log."""
        answer = self._transport.request("GET", f"/v1/jobs/{job_id}/logs", params={"tail": tail}).json()
        lines: list[str] = answer["lines"]
        return lines

    def events(self, job_id: str, after: int | None = None) -> Iterator[Event]:
        """A job's events as they come, from the first or after event ``after``, to its end.

        A stream that breaks off is taken up again where it was; ``UnreachableError`` once the server stays away.
        """
        last = None if after is None else str(after)
        alive = time.monotonic()
        while True:
            try:
                with self._transport.events(f"/v1/jobs/{job_id}/events", last) as stream:
                    for message in stream:
                        alive = time.monotonic()
                        if message.event == "end":
                            return
                        last = message.id or last
                        yield Event.model_validate({**json.loads(message.data), "event": message.event})
            except (UnreachableError, ServerBusyError) as error:
                if time.monotonic() - alive > PATIENCE_S:
                    error.remedy = f"the job goes on without its server; `rgrl jobs watch {job_id}` follows it again"
                    raise
            time.sleep(RECONNECT_S)

    def wait(
        self, job_id: str, on_event: Callable[[Event], None] | None = None, *, progress: bool | None = None
    ) -> Job:
        """Wait for a job's end, handing over its events; the job as it ended.

        ``progress`` draws bars on standard error, without a terminal a line every ten seconds; by default where it is a
        terminal and no ``on_event`` is given.
        """
        # rich takes its time to load, and most clients only look up.
        from service.client.progress import ProgressView

        if progress is None:
            progress = on_event is None and sys.stderr.isatty()
        with ProgressView() if progress else nullcontext() as view:
            for event in self.events(job_id):
                if view is not None:
                    view.show(event.event, event.stage or "", event.data)
                if on_event is not None:
                    on_event(event)
        return self.job(job_id)

    def embeddings(self, graph: str | None = None) -> Iterator[Embedding]:
        """Embedding sets, newest first."""
        return (Embedding.model_validate(item) for item in self._pages("/v1/embeddings", {"graph": graph}))

    def register_embedding(self, path: str, graph: str, name: str | None = None) -> Embedding:
        """Register a set made on the command line, on the graph whose bundle it embeds; ``path`` is the server's.

        Once more brings its report and index up to date.
        """
        return Embedding.model_validate(
            self._json("POST", "/v1/embeddings", {"path": path, "graph": graph, "name": name})
        )

    def embedding(self, ref: str) -> Embedding:
        """One embedding set, by id or alias."""
        return Embedding.model_validate(self._json("GET", f"/v1/embeddings/{ref}"))

    def delete_embedding(self, ref: str) -> None:
        """Delete an embedding set that no alias names, and its files."""
        self._transport.request("DELETE", f"/v1/embeddings/{ref}", repeatable=False)

    def lookup(self, ref: str, ids: Sequence[NodeId]) -> Lookup:
        """Vectors of nodes, over Arrow, in as many requests as the server's limit asks for.

        ``TypeError`` for one id that is in no list.
        """
        import pyarrow as pa

        if isinstance(ids, str | int):
            raise TypeError(f"lookup takes a list of ids, not one id: [{ids!r}]")
        # The first answer's set is asked for the rest: an alias may be switched in between.
        vectors, found = [], []
        for start in range(0, max(1, len(ids)), LOOKUP_IDS):
            body = {"ids": list(ids[start : start + LOOKUP_IDS])}
            response = self._transport.request(
                "POST",
                f"/v1/embeddings/{ref}/lookup",
                json=body,
                headers={"Accept": "application/vnd.apache.arrow.stream"},
            )
            table = pa.ipc.open_stream(response.content).read_all().combine_chunks()
            ref = table.schema.metadata[b"embedding"].decode()
            column = table["vector"].chunk(0)
            dim = column.type.list_size
            vectors.append(column.values.fill_null(0).to_numpy(zero_copy_only=False).reshape(-1, dim))
            found.append(table["found"].to_numpy())
        return Lookup(ref, np.concatenate(vectors), np.concatenate(found), [str(node) for node in ids])

    def neighbors(
        self,
        ref: str,
        queries: Sequence[dict[str, Any]],
        k: int = 10,
        *,
        exclude_self: bool = True,
        exclude_connected: bool = False,
        exclude_ids: Sequence[NodeId] = (),
        filter: dict[str, Any] | None = None,
        exact: bool = False,
        effort: int | None = None,
    ) -> Answers:
        """Nearest nodes of each query (``{"id": …}``, ``{"vector": […]}`` or ``{"ids": [{"id": …, "weight": …}]}``).

        ``filter`` lets in by attributes: ``{"must": [{"key": "year", "range": {"gte": 2020}}]}``, and so on.
        """
        shared = {
            "k": k,
            "filter": filter,
            "exclude": {"self": exclude_self, "connected": exclude_connected, "ids": list(exclude_ids)},
            "search": {"exact": exact, "effort": effort},
        }
        answers = Answers()
        for start in range(0, len(queries), NEIGHBOR_QUERIES):
            body = {"queries": list(queries[start : start + NEIGHBOR_QUERIES]), **shared}
            answer = self._json("POST", f"/v1/embeddings/{ref}/neighbors", body)
            ref = answer["embedding"]
            answers.extend(Neighbors.model_validate(item) for item in answer["answers"])
        return answers

    def scores(self, ref: str, pairs: Sequence[tuple[NodeId, NodeId]]) -> list[PairScore]:
        """Cosine of pairs of nodes."""
        answer = self._json("POST", f"/v1/embeddings/{ref}/scores", {"pairs": [list(pair) for pair in pairs]})
        return [PairScore.model_validate(item) for item in answer["items"]]

    def embed(self, ref: str, nodes: Sequence[dict[str, Any]], edges: Sequence[dict[str, Any]] = ()) -> Embedded:
        """Vectors of nodes that the graph has not, by the set's encoder; nothing is added to graph or set.

        A node is ``{"id": …, "features": […]}`` (or ``{"columns": […], "values": […]}``), an edge
        ``{"source": …, "target": …}`` between two of them, or one of them and a node of the graph.
        """
        import pyarrow as pa

        response = self._transport.request(
            "POST",
            f"/v1/embeddings/{ref}/embed",
            json={"nodes": list(nodes), "edges": list(edges)},
            headers={"Accept": "application/vnd.apache.arrow.stream"},
        )
        table = pa.ipc.open_stream(response.content).read_all().combine_chunks()
        column = table["vector"].chunk(0)
        vectors = column.values.to_numpy().reshape(-1, column.type.list_size)
        return Embedded(table.schema.metadata[b"embedding"].decode(), table["id"].to_pylist(), vectors)

    def projection(self, ref: str, color: str | None = None) -> Projection:
        """The map that the index stage drew of a set, over Arrow; ``color`` is an attribute to give with each point.

        ``ConflictError`` for a set without a map.
        """
        import pyarrow as pa

        response = self._transport.request(
            "GET",
            f"/v1/embeddings/{ref}/projection",
            params={"color": color},
            headers={"Accept": "application/vnd.apache.arrow.stream"},
        )
        table = pa.ipc.open_stream(response.content).read_all().combine_chunks()
        facts = table.schema.metadata
        missing = facts[b"graph_missing"].decode() if b"graph_missing" in facts else None
        return Projection(facts[b"embedding"].decode(), facts[b"method"].decode(), int(facts[b"nodes"]), table, missing)

    def report(self, ref: str) -> dict[str, Any]:
        """What evaluate found of a set, whole; ``NotFoundError`` for a set that was not evaluated."""
        found: dict[str, Any] = self._transport.request("GET", f"/v1/embeddings/{ref}/report").json()
        return found

    def export(self, ref: str, *, shard: str = "0/1", cursor: str | None = None) -> Iterator[pa.RecordBatch]:
        """Every row of an embedding set, or of shard ``i/n``, as Arrow batches of ``id`` and ``vector``.

        A stream that breaks off is gone on with where it was; ``UnreachableError`` once the server stays away.
        """
        return exported(self._transport, ref, shard, cursor)

    def aliases(self) -> list[Alias]:
        """Every alias, by name."""
        return [Alias.model_validate(item) for item in self._pages("/v1/aliases", {})]

    def alias(self, name: str) -> Alias:
        """One alias."""
        return Alias.model_validate(self._json("GET", f"/v1/aliases/{name}"))

    def put_alias(self, name: str, embedding: str, if_version: int | None = None) -> Alias:
        """Make or switch an alias; ``ConflictError`` if it is no longer at ``if_version``."""
        response = self._transport.request(
            "PUT",
            f"/v1/aliases/{name}",
            json={"embedding": embedding},
            headers=_if_match(if_version),
            repeatable=if_version is None,
        )
        return Alias.model_validate(response.json())

    def delete_alias(self, name: str, if_version: int | None = None) -> None:
        """Remove an alias."""
        self._transport.request("DELETE", f"/v1/aliases/{name}", headers=_if_match(if_version), repeatable=False)

    def _json(self, method: str, path: str, body: Any = None) -> Any:
        return self._transport.request(method, path, json=body).json()

    def _pages(self, path: str, filters: dict[str, Any]) -> Iterator[dict[str, Any]]:
        cursor = None
        while True:
            page = self._transport.request("GET", path, params={**filters, "cursor": cursor}).json()
            yield from page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return


def _job_body(kind: JobKind, fields: dict[str, Any]) -> dict[str, Any]:
    return {"kind": kind} | {field: value for field, value in fields.items() if value is not None}


def _if_match(version: int | None) -> dict[str, str]:
    return {} if version is None else {"If-Match": f'"{version}"'}
