"""Options that several commands share, and settings given as ``--set part.name=value``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from preprocessing.errors import UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from service.client import Client

__all__ = [
    "DEFAULT_HOME",
    "DEFAULT_SERVER",
    "AsJson",
    "AttributeColumns",
    "BundlePath",
    "EmbeddingsPath",
    "FeatureColumns",
    "Home",
    "IdColumn",
    "Key",
    "LabelColumn",
    "Server",
    "Set",
    "SourceColumn",
    "SplitColumn",
    "TargetColumn",
    "WeightColumn",
    "assign",
    "connect",
    "validated",
]

AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting by its dotted name, and its value; repeatable. rgrl settings STAGE lists them.",
    ),
]
BundlePath = Annotated[Path, typer.Argument(metavar="BUNDLE", help="Graph bundle, made by ingest.")]
EmbeddingsPath = Annotated[Path, typer.Argument(metavar="EMBEDDINGS", help="Embedding set, made by train.")]
Server = Annotated[str, typer.Option(envvar="RGRL_SERVER", help="Address of the server.")]
Key = Annotated[str | None, typer.Option(envvar="RGRL_KEY", help="API key.")]
Home = Annotated[Path, typer.Option(envvar="RGRL_HOME", help="The server's job store, artefacts and logs.")]

# Of the tables of a graph that a server is to ingest.
IdColumn = Annotated[str | None, typer.Option(help="Id column of the graph's node table.")]
LabelColumn = Annotated[str | None, typer.Option(help="Label column of the graph's node table.")]
FeatureColumns = Annotated[
    list[str] | None,
    typer.Option("--feature-column", help="Feature column of the graph's node table; repeatable; default: all."),
]
SplitColumn = Annotated[
    str | None,
    typer.Option(help="Column of a published split: train, validation (or val), test, or nothing in each row."),
]
AttributeColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--attribute-column", help="Column of the node table kept for filters of neighbour queries; repeatable."
    ),
]
SourceColumn = Annotated[str | None, typer.Option(help="Source column of the graph's edge table.")]
TargetColumn = Annotated[str | None, typer.Option(help="Target column of the graph's edge table.")]
WeightColumn = Annotated[str | None, typer.Option(help="Weight column of the graph's edge table.")]

DEFAULT_SERVER = "http://127.0.0.1:8000"
DEFAULT_HOME = Path("rgrl-home")

Model = TypeVar("Model", bound="BaseModel")


def connect(server: str, key: str | None) -> Client:
    """A client of the server."""
    from service.client import Client

    return Client(server, key)


def assign(document: dict[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """``document`` with every ``part.name=value`` laid into it; a value is JSON where it reads as JSON, else text.

    ``UsageError`` for what is no assignment, or one below a setting that has no parts.
    """
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        *parents, leaf = name.strip().split(".")
        if not equals or not leaf or not all(parents):
            raise UsageError("--set takes a name and a value", given=assignment, expected="as optimizer.lr=1e-3")
        place = document
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise UsageError(f"--set {name}: {parent} is set as a whole already", given=assignment)
        place[leaf] = _value(text)
    return document


def validated(model: type[Model], document: dict[str, Any]) -> Model:
    """The settings object; ``UsageError`` names the option that is wrong."""
    from pydantic import ValidationError

    from preprocessing.stage import usage_error

    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise usage_error(error, model) from error


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
