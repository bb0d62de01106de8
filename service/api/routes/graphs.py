"""``/v1/graphs``: register, list, look into and delete graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Response, status

from service.api.auth import WRITE
from service.api.dependencies import SettingsDep, StoreDep, VerifiedDep
from service.errors import ConflictError
from service.graphs.degrees import degrees
from service.graphs.node_view import node_view
from service.graphs.schemas import DegreesAnswer, GraphAnswer, GraphRequest, NodeAnswer, registration
from service.jobs.feasibility import check_columns
from service.schemas import Items, Name
from service.store import Graph
from service.store.pages import MAX_LIMIT

__all__ = ["router"]

router = APIRouter(prefix="/v1/graphs", tags=["graphs"])


@router.post("", status_code=status.HTTP_201_CREATED, dependencies=[WRITE], response_model=GraphAnswer)
def register_graph(request: GraphRequest, response: Response, store: StoreDep, settings: SettingsDep) -> Graph:
    """Register tables to ingest, or a whole bundle, by a path under a data root or a URI this server may read."""
    registered = registration(request, settings.data_roots, settings.data_uris)
    check_columns(registered["source"] or {}, "/source")
    graph = store.add_graph(**registered)
    response.headers["Location"] = f"/v1/graphs/{graph.id}"
    return graph


@router.get("")
def list_graphs(
    store: StoreDep,
    name: Annotated[Name | None, Query(description="Only graphs of this name.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = 50,
    cursor: str | None = None,
) -> Items[GraphAnswer]:
    """Graphs, newest first."""
    return Items[GraphAnswer].model_validate(store.list_graphs(limit=limit, cursor=cursor, name=name))


@router.get("/{id}", response_model=GraphAnswer)
def get_graph(id: str, store: StoreDep) -> Graph:
    """One graph."""
    return store.graph(id)


@router.delete("/{id}", status_code=status.HTTP_204_NO_CONTENT, dependencies=[WRITE])
def delete_graph(id: str, store: StoreDep) -> None:
    """Forget a graph, and remove its bundle if this server made it; 409 while a job or an embedding set uses it."""
    store.delete_graph(id)


@router.get("/{id}/degrees")
def get_degrees(id: str, store: StoreDep, verified: VerifiedDep) -> DegreesAnswer:
    """How many nodes have how many neighbours."""
    return degrees(_bundle(store.graph(id)), verified)


@router.get("/{id}/nodes/{node:node}")
def get_node(id: str, node: str, store: StoreDep, verified: VerifiedDep) -> NodeAnswer:
    """A node's degree, some of its neighbours, and its top K by personalised PageRank."""
    return node_view(_bundle(store.graph(id)), node, verified)


def _bundle(graph: Graph) -> Path:
    if graph.state != "ready":
        raise ConflictError("the graph is not ingested yet", remedy="submit an ingest job, or a pipeline")
    return Path(graph.bundle)
