"""The command line. Heavy imports live inside commands, so that ``rgrl --help`` is instant."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from preprocessing.errors import RgrlError
from service.cli.embedding_stages import embed, evaluate, export, index, train
from service.cli.graph_stages import induce, preprocess, split_edges
from service.cli.graph_tables import append, generate, ingest
from service.cli.jobs import app as jobs
from service.cli.keys import app as keys
from service.cli.lookups import lookup, neighbors
from service.cli.output import fail
from service.cli.reproduce import reproduce
from service.cli.resources import aliases, embeddings, graphs
from service.cli.server import demo, doctor, serve
from service.cli.settings import settings
from service.cli.upkeep import backup, gc, restore

__all__ = ["app", "main"]


class _Plain(TyperGroup):
    """Says what is wrong with an argument in plain words, not in those of the library that has found it."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            from pydantic import ValidationError

            from preprocessing.fault_words import fault_words, meant_value

            if isinstance(error.__cause__, ValidationError):
                fault = error.__cause__.errors(include_url=False)[0]
                words, meant = fault_words(fault).rstrip("."), meant_value(fault)
                error.message = f"{words}." if meant is None else f"{words}. {meant.capitalize()}"
            raise


app = typer.Typer(
    name="rgrl",
    cls=_Plain,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        from preprocessing.artifact import code_version

        print(f"rgrl {code_version()}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Tell the version and end.")
    ] = False,
) -> None:
    """Node embeddings for huge graphs, without labels: train with RGRL, serve with one process."""


for command in (
    *(demo, ingest, append, preprocess, train, embed, evaluate, export, index, serve, lookup, neighbors),
    *(generate, split_edges, induce, reproduce, settings, doctor, backup, restore, gc),
):
    app.command()(command)
app.add_typer(jobs, name="jobs")
for name, group in (("graphs", graphs), ("embeddings", embeddings), ("aliases", aliases), ("keys", keys)):
    app.add_typer(group, name=name)


def main() -> None:
    """Run the command line; a domain error becomes its text and exit code."""
    try:
        app()
    except RgrlError as error:
        sys.exit(fail(error, as_json="--json" in sys.argv))
