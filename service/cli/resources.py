"""``rgrl graphs``, ``embeddings`` and ``aliases``: what a server has, and which set a name points at."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from service.cli.graph_sources import default_name, graph_request, named_columns, tell_namesakes
from service.cli.graph_tables import Directed, Precision, Reverse, Undirected, direction_of
from service.cli.options import (
    DEFAULT_SERVER,
    AsJson,
    AttributeColumns,
    FeatureColumns,
    IdColumn,
    Key,
    LabelColumn,
    Server,
    SourceColumn,
    SplitColumn,
    TargetColumn,
    WeightColumn,
    connect,
)
from service.cli.output import print_deleted, print_json, print_record, print_rows

__all__ = ["aliases", "embeddings", "graphs"]

graphs = typer.Typer(help="Graphs of a server.", no_args_is_help=True, rich_markup_mode=None)
embeddings = typer.Typer(help="Embedding sets of a server.", no_args_is_help=True, rich_markup_mode=None)
aliases = typer.Typer(help="Names that point at embedding sets.", no_args_is_help=True, rich_markup_mode=None)

Limit = Annotated[int, typer.Option(min=1, help="At most so many.")]
GraphId = Annotated[str, typer.Argument(metavar="GRAPH", help="A graph's id.")]
Ref = Annotated[str, typer.Argument(metavar="EMBEDDINGS", help="An embedding set's id, or an alias.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The alias.")]
Version = Annotated[int | None, typer.Option(help="Only if the alias is at this version still.")]


@graphs.command("list")
def list_graphs(limit: Limit = 20, server: Server = DEFAULT_SERVER, key: Key = None, as_json: AsJson = False) -> None:
    """Graphs, newest first."""
    with connect(server, key) as client:
        found = list(islice(client.graphs(), limit))
    if as_json:
        print_json([graph.model_dump(mode="json") for graph in found])
        return
    print_rows(
        ("graph", "name", "state", "nodes", "edges", "created"),
        (
            (
                one.id,
                one.name,
                one.state,
                *((one.counts or {}).get(what) for what in ("nodes", "edges")),
                one.created_at,
            )
            for one in found
        ),
    )


@graphs.command("show")
def show_graph(graph: GraphId, server: Server = DEFAULT_SERVER, key: Key = None, as_json: AsJson = False) -> None:
    """One graph."""
    with connect(server, key) as client:
        print_record(client.graph(graph), as_json=as_json)


@graphs.command("register")
def register_graph(
    graph: Annotated[
        str, typer.Argument(metavar="GRAPH", help="A path that the server may read, a URI, or a PyG name.")
    ],
    name: Annotated[str | None, typer.Option(help="A name for people; default: the path's last part.")] = None,
    id_column: IdColumn = None,
    label_column: LabelColumn = None,
    feature_columns: FeatureColumns = None,
    split_column: SplitColumn = None,
    attribute_columns: AttributeColumns = None,
    source_column: SourceColumn = None,
    target_column: TargetColumn = None,
    weight_column: WeightColumn = None,
    undirected: Undirected = False,
    directed: Directed = False,
    reverse: Reverse = False,
    feature_dtype: Annotated[Precision | None, typer.Option(help="How features are kept; default: float32.")] = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Make a graph known to the server: tables, an .npz file or a PyG data set to ingest, or a bundle where it lies."""
    columns = named_columns(
        node_id=id_column,
        label=label_column,
        features=feature_columns,
        split=split_column,
        attributes=attribute_columns,
        source=source_column,
        target=target_column,
        weight=weight_column,
    )
    request = graph_request(graph, Path("pyg-data").absolute(), columns)
    direction = direction_of(undirected=undirected, directed=directed, reverse=reverse)
    dtype = None if feature_dtype is None else feature_dtype.value
    with connect(server, key) as client:
        called = name or default_name(graph)
        made = client.register_graph(**request, name=called, direction=direction, feature_dtype=dtype)
        print_record(made, as_json=as_json)
        tell_namesakes(client, made)


@graphs.command("delete")
def delete_graph(graph: GraphId, server: Server = DEFAULT_SERVER, key: Key = None, as_json: AsJson = False) -> None:
    """Forget a graph that no job and no embedding set uses, and remove its bundle if the server made it."""
    with connect(server, key) as client:
        client.delete_graph(graph)
    print_deleted(graph, as_json=as_json)


@embeddings.command()
def register(
    folder: Annotated[Path, typer.Argument(metavar="EMBEDDINGS", help="The set, under a data root of the server.")],
    graph: Annotated[str, typer.Option(help="Id of the graph whose bundle the set embeds.")],
    name: Annotated[str | None, typer.Option(help="A name for people.")] = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Serve a set that rgrl train or embed made, where it lies; once more brings its report and index up to date."""
    path = str(folder.absolute()) if folder.exists() else str(folder)
    with connect(server, key) as client:
        print_record(client.register_embedding(path, graph, name), as_json=as_json)


@embeddings.command("list")
def list_embeddings(
    graph: Annotated[str | None, typer.Option(help="Only of this graph.")] = None,
    limit: Limit = 20,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Embedding sets, newest first."""
    with connect(server, key) as client:
        found = list(islice(client.embeddings(graph), limit))
    if as_json:
        print_json([one.model_dump(mode="json") for one in found])
        return
    print_rows(
        ("embeddings", "name", "aliases", "nodes", "dim", "index", "graph", "created"),
        (
            (
                one.id,
                one.name,
                " ".join(one.aliases),
                one.counts["nodes"],
                one.counts["dim"],
                (one.index or {}).get("index"),
                one.graph,
                one.created_at,
            )
            for one in found
        ),
    )


@embeddings.command("show")
def show_embedding(ref: Ref, server: Server = DEFAULT_SERVER, key: Key = None, as_json: AsJson = False) -> None:
    """One embedding set: its size, what evaluation found, and its index with its recall."""
    with connect(server, key) as client:
        print_record(client.embedding(ref), as_json=as_json)


@embeddings.command("delete")
def delete_embedding(ref: Ref, server: Server = DEFAULT_SERVER, key: Key = None, as_json: AsJson = False) -> None:
    """Delete an embedding set that no alias names; its files, too, if the server made it."""
    with connect(server, key) as client:
        client.delete_embedding(ref)
    print_deleted(ref, as_json=as_json)


@aliases.command("list")
def list_aliases(server: Server = DEFAULT_SERVER, key: Key = None, as_json: AsJson = False) -> None:
    """Every alias, by name."""
    with connect(server, key) as client:
        found = client.aliases()
    if as_json:
        print_json([one.model_dump(mode="json") for one in found])
        return
    print_rows(
        ("alias", "embeddings", "version", "updated"),
        ((one.name, one.embedding, one.version, one.updated_at) for one in found),
    )


@aliases.command("show")
def show_alias(name: Name, server: Server = DEFAULT_SERVER, key: Key = None, as_json: AsJson = False) -> None:
    """One alias: its set and its version."""
    with connect(server, key) as client:
        print_record(client.alias(name), as_json=as_json)


@aliases.command("set")
def set_alias(
    name: Name,
    ref: Ref,
    if_version: Version = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Make an alias, or switch it in one step."""
    with connect(server, key) as client:
        print_record(client.put_alias(name, ref, if_version), as_json=as_json)


@aliases.command("delete")
def delete_alias(
    name: Name,
    if_version: Version = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Remove an alias; the set that it points at stays."""
    with connect(server, key) as client:
        client.delete_alias(name, if_version)
    print_deleted(name, as_json=as_json)
