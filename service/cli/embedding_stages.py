"""``rgrl train`` and ``embed`` make an embedding set; ``evaluate``, ``index`` and ``export`` use one."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.local import run_here
from service.cli.options import AsJson, BundlePath, EmbeddingsPath, Set, assign, validated

__all__ = ["embed", "evaluate", "export", "index", "train"]


class Task(StrEnum):
    """What embeddings are evaluated on."""

    NODES = "nodes"
    LINKS = "links"


class Kind(StrEnum):
    """Kinds of index."""

    AUTO = "auto"
    EXACT = "exact"
    HNSW = "hnsw"
    IVF = "ivf"


def train(
    bundle: BundlePath,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The embedding set to make.")],
    preset: Annotated[str | None, typer.Option(help="Published settings to start from, as cora or photo.")] = None,
    set_: Set = None,
    embed: Annotated[
        Path | None,
        typer.Option(help="Bundle whose nodes to embed; default: the one trained on."),
    ] = None,
    work: Annotated[
        Path | None, typer.Option(help="Where checkpoints go; default: beside OUT, until it is made.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train on a bundle and embed every node; continues from the last checkpoint of a killed run.

    What --set takes is listed by `rgrl settings train`.
    """
    from trainer.settings import TrainSettings, resolve_preset

    document: dict[str, Any] = {} if preset is None else {"preset": preset}
    settings = validated(TrainSettings, resolve_preset(assign(document, set_ or [])))
    out = out.absolute()
    checkpoints = work.absolute() if work else out.parent / f".{out.name}.work"
    spec = {
        "bundle": str(bundle.absolute()),
        "out": str(out),
        "work": str(checkpoints),
        "embed": str(embed.absolute()) if embed else None,
        "logs": str(out.with_name(f"{out.name}.logs")),
        "settings": settings.model_dump(),
    }
    run_here("train", spec, as_json, scratch=None if work else checkpoints)


def embed(
    embeddings: Annotated[Path, typer.Argument(metavar="EMBEDDINGS", help="The embedding set whose encoder to use.")],
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="The graph bundle whose nodes to embed.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The embedding set to make.")],
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Embed the nodes of another graph, or of the same one grown, by a finished encoder; nothing is trained.

    The graph has the features and relations that the encoder was trained on. A killed run goes on where it was.
    """
    from trainer.settings import EmbedSettings

    settings = validated(EmbedSettings, assign({}, set_ or []))
    paths = {"embeddings": embeddings, "bundle": bundle, "out": out}
    spec = {name: str(path.absolute()) for name, path in paths.items()}
    run_here("embed", {**spec, "settings": settings.model_dump()}, as_json)


def evaluate(
    embeddings: EmbeddingsPath,
    bundle: Annotated[Path | None, typer.Option(help="The graph's bundle; default: the one embedded.")] = None,
    task: Annotated[
        Task, typer.Option(help="nodes: classify them. links: tell held-out edges from none.")
    ] = Task.NODES,
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Measure an embedding set beside what costs no training; links want a bundle of split-edges."""
    from preprocessing.artifact import read_manifest
    from trainer.settings import EvaluateSettings

    settings = validated(EvaluateSettings, assign({"task": task.value}, set_ or []))
    embedded = bundle or Path(read_manifest(embeddings, "embedding_set")["bundle"]["path"])
    spec = {
        "bundle": str(embedded.absolute()),
        "embeddings": str(embeddings.absolute()),
        "settings": settings.model_dump(),
    }
    run_here("evaluate", spec, as_json)


def export(
    embeddings: EmbeddingsPath,
    out: Annotated[
        str, typer.Argument(metavar="OUT", help="The file to write: .parquet or .csv; a path, or a URI as s3://….")
    ],
    as_json: AsJson = False,
) -> None:
    """Write ids and vectors as one table."""
    target = out if "://" in out else str(Path(out).absolute())
    run_here("export", {"embeddings": str(embeddings.absolute()), "out": target}, as_json)


def index(
    embeddings: EmbeddingsPath,
    kind: Annotated[Kind, typer.Option(help="auto: by the number of nodes.")] = Kind.AUTO,
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Build the nearest-neighbour index of an embedding set and measure its recall."""
    from service.search.index_settings import IndexSettings

    settings = validated(IndexSettings, assign({"kind": kind.value}, set_ or []))
    spec = {"embeddings": str(embeddings.absolute()), "settings": settings.model_dump()}
    run_here("index", spec, as_json, facts=partial(_index_facts, embeddings.absolute() / "index"))


def _index_facts(path: Path, summary: dict[str, Any]) -> dict[str, Any]:
    """What a person asks of an index; its settings and hashes are in its manifest, and in ``--json``."""
    recall, projection = summary["recall"], summary["projection"] or {}
    return {
        "path": path,
        "index": summary["index"],
        "rows": summary["counts"]["nodes"],
        "dim": summary["counts"]["dim"],
        f"recall@{recall['k']}": recall["value"],
        "index.seconds": summary["build_seconds"],
        "map": projection.get("method", projection.get("error")),
        "map.seconds": projection.get("build_seconds"),
    }
