"""``rgrl settings``: every setting of a stage, as ``--set`` takes it."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.options import AsJson
from service.cli.output import print_json

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["settings", "settings_of"]

MOST_COLUMNS, INDENT = 100, "    "
_BOUNDS = {"minimum": "≥ {}", "exclusiveMinimum": "> {}", "maximum": "≤ {}", "exclusiveMaximum": "< {}"}


class Stage(StrEnum):
    """Stages that have settings."""

    GENERATE = "generate"
    APPEND = "append"
    INDUCE = "induce"
    SPLIT_EDGES = "split-edges"
    PREPROCESS = "preprocess"
    TRAIN = "train"
    EMBED = "embed"
    EVALUATE = "evaluate"
    INDEX = "index"


def settings(stage: Annotated[Stage, typer.Argument(help="Whose settings.")], as_json: AsJson = False) -> None:
    """Every setting of a stage: name, type, default, bounds, and what it is for."""
    from preprocessing.settings import (
        AppendSettings,
        EdgeSplitSettings,
        GenerateSettings,
        InduceSettings,
        PreprocessSettings,
    )
    from service.search.index_settings import IndexSettings
    from trainer.settings import EmbedSettings, EvaluateSettings, TrainSettings

    models: dict[Stage, type[BaseModel]] = {
        Stage.GENERATE: GenerateSettings,
        Stage.APPEND: AppendSettings,
        Stage.INDUCE: InduceSettings,
        Stage.SPLIT_EDGES: EdgeSplitSettings,
        Stage.PREPROCESS: PreprocessSettings,
        Stage.TRAIN: TrainSettings,
        Stage.EMBED: EmbedSettings,
        Stage.EVALUATE: EvaluateSettings,
        Stage.INDEX: IndexSettings,
    }
    rows = settings_of(models[stage])
    if as_json:
        print_json(rows)
        return
    width = min(MOST_COLUMNS, shutil.get_terminal_size().columns)
    for row in rows:
        default = _shown(row["default"])
        facts = ", ".join(filter(None, (row["type"], default and f"default {default}", row["bounds"])))
        print(textwrap.fill(f"{row['name']}: {facts}", width, subsequent_indent=INDENT, break_on_hyphens=False))
        print(textwrap.fill(row["description"], width, initial_indent=INDENT, subsequent_indent=INDENT))


def settings_of(model: type[BaseModel]) -> list[dict[str, Any]]:
    """Every setting of a model: dotted name, type, default, bounds and description."""
    document = model.model_json_schema()
    return list(_rows(document, document.get("$defs", {}), {}, ""))


def _rows(
    node: dict[str, Any], parts: dict[str, Any], defaults: dict[str, Any], prefix: str
) -> Iterator[dict[str, Any]]:
    """The settings of a schema and of the models in it, by their dotted names; ``defaults`` go before the schema's."""
    for name, field in node["properties"].items():
        default = defaults.get(name, field.get("default"))
        inner = parts.get(str(field.get("$ref", "")).rpartition("/")[2], field)
        if "properties" in inner:
            yield from _rows(inner, parts, default or {}, f"{prefix}{name}.")
            continue
        choices = [choice for choice in inner.get("anyOf", [inner]) if choice.get("type") != "null"]
        yield {
            "name": prefix + name,
            "type": " or ".join(_type(choice) for choice in choices),
            "default": default,
            "bounds": ", ".join(
                text.format(one[key]) for one in choices for key, text in _BOUNDS.items() if key in one
            ),
            "description": " ".join(field.get("description", inner.get("description", "")).split()),
        }


def _type(node: dict[str, Any]) -> str:
    if "enum" in node or "const" in node:
        return "|".join(str(value) for value in node.get("enum", [node.get("const")]))
    if node.get("type") == "array":
        return f"list of {_type(node.get('items', {}))}"
    return str(node.get("type", "value"))


def _shown(default: Any) -> str:
    return "" if default is None else str(default).lower() if isinstance(default, bool) else str(default)
