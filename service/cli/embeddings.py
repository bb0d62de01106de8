"""``rgrl embeddings``: the embedding sets of a server, and registering those that the command line made."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from service.cli.options import DEFAULT_SERVER, AsJson, Key, Server, connect
from service.cli.output import print_facts, print_json, print_rows

__all__ = ["app"]

app = typer.Typer(help="Embedding sets of a server.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def register(
    embeddings: Annotated[Path, typer.Argument(metavar="EMBEDDINGS", help="The set, under a data root of the server.")],
    graph: Annotated[str, typer.Option(help="Id of the graph whose bundle the set embeds.")],
    name: Annotated[str | None, typer.Option(help="A name for people.")] = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Serve a set that rgrl train or embed made, where it lies; once more brings its report and index up to date."""
    path = str(embeddings.absolute()) if embeddings.exists() else str(embeddings)
    with connect(server, key) as client:
        made = client.register_embedding(path, graph, name)
    (print_json if as_json else print_facts)(made.model_dump(mode="json"))


@app.command("list")
def list_embeddings(
    graph: Annotated[str | None, typer.Option(help="Only of this graph.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Embedding sets, newest first."""
    with connect(server, key) as client:
        found = list(islice(client.embeddings(graph), limit))
    if as_json:
        print_json([embedding.model_dump(mode="json") for embedding in found])
        return
    print_rows(
        ("embeddings", "name", "aliases", "graph", "nodes", "dim", "index"),
        (
            (
                e.id,
                e.name,
                " ".join(e.aliases),
                e.graph,
                e.counts["nodes"],
                e.counts["dim"],
                (e.index or {}).get("index"),
            )
            for e in found
        ),
    )
