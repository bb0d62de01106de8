"""``rgrl generate``, ``ingest`` and ``append``: tables, and the graph bundle that they become."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from preprocessing.errors import UsageError
from service.cli.local import run_here
from service.cli.options import AsJson, BundlePath, Set, assign, validated

__all__ = ["Directed", "Precision", "Reverse", "Undirected", "append", "direction_of", "generate", "ingest"]


class Precision(StrEnum):
    """How features are kept."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"


Undirected = Annotated[bool, typer.Option("--undirected", help="Add the reverse of every edge (the default).")]
Directed = Annotated[bool, typer.Option("--directed", help="A target hears from its sources only.")]
Reverse = Annotated[bool, typer.Option("--reverse", help="Flip every edge, then as --directed.")]


class Synthetic(StrEnum):
    """Kinds of synthetic graph."""

    RMAT = "rmat"
    BLOCKS = "blocks"


def ingest(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The graph bundle to make.")],
    edges: Annotated[str | None, typer.Option(help="Edge table: .parquet, .csv, or a folder of them.")] = None,
    nodes: Annotated[str | None, typer.Option(help="Node table; without one the nodes are those of the edges.")] = None,
    edges_of: Annotated[
        list[str] | None,
        typer.Option(metavar="RELATION=TABLE", help="An edge table of one relation; repeatable, in place of --edges."),
    ] = None,
    npz: Annotated[str | None, typer.Option(help="A file of the gnn-benchmark layout.")] = None,
    relation: Annotated[str | None, typer.Option(help="Which relation of a multiplex .npz file; default: all.")] = None,
    pyg: Annotated[str | None, typer.Option(help="A PyG data set, as Planetoid:Cora or WikiCS.")] = None,
    pyg_root: Annotated[Path, typer.Option(help="Where PyG keeps its downloads.")] = Path("pyg-data"),
    undirected: Undirected = False,
    directed: Directed = False,
    reverse: Reverse = False,
    node_id: Annotated[
        str | None, typer.Option("--node-id", "--id-column", help="Id column of the node table.")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", "--source-column", help="Source column of the edge table.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", "--target-column", help="Target column of the edge table.")
    ] = None,
    weight: Annotated[
        str | None,
        typer.Option("--weight", "--weight-column", help="Weight column of the edges; default: `weight` or `w`."),
    ] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option("--feature", "--feature-column", help="A feature column; repeatable; default: all."),
    ] = None,
    label: Annotated[str | None, typer.Option("--label", "--label-column", help="Label column.")] = None,
    split: Annotated[
        str | None,
        typer.Option(
            "--split",
            "--split-column",
            help="Column of a published split: train, validation (or val), test, or nothing in each row.",
        ),
    ] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(
            "--attribute", "--attribute-column", help="A column kept for filters of neighbour queries; repeatable."
        ),
    ] = None,
    feature_dtype: Annotated[Precision, typer.Option(help="How features are kept.")] = Precision.FLOAT32,
    memory: Annotated[str | None, typer.Option(help="Memory to work in, as 4GiB.")] = None,
    as_json: AsJson = False,
) -> None:
    """Read tables into a graph bundle.

    A published split (which nodes train, validate and test) is read, never made: from the column that --split names,
    or from train_mask, val_mask and test_mask of an .npz file or PyG data set. evaluate goes by it; induce cuts by it.
    """
    from preprocessing.settings import IngestSettings

    tables = {
        "edges": edges,
        "relations": _relations(edges_of or []) or None,
        "nodes": nodes,
        "node_id": node_id,
        "source": source,
        "target": target,
        "weight": weight,
        "features": feature or None,
        "label": label,
        "split": split,
        "attributes": attribute or None,
    }
    settings = validated(
        IngestSettings,
        {
            "source": _source(tables, npz, relation, pyg, pyg_root),
            "direction": direction_of(undirected=undirected, directed=directed, reverse=reverse) or "undirected",
            "feature_dtype": feature_dtype.value,
            **({} if memory is None else {"memory": memory}),
        },
    )
    run_here("ingest", {"out": str(out.absolute()), "settings": settings.model_dump()}, as_json)


def append(
    bundle: BundlePath,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The graph bundle to make.")],
    edges: Annotated[str | None, typer.Option(help="Table of new edges, among old and new nodes.")] = None,
    nodes: Annotated[str | None, typer.Option(help="Table of new nodes, with the columns of the old ones.")] = None,
    edges_of: Annotated[
        list[str] | None,
        typer.Option(metavar="RELATION=TABLE", help="New edges of one relation; repeatable, in place of --edges."),
    ] = None,
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Add new nodes and edges to a bundle, as a bundle of its own; columns are those that the old tables had.

    Other column names go by --set, as source.label=class. Whoever has the old tables still may ingest all together.
    """
    from preprocessing.settings import AppendSettings

    tables = {"edges": edges, "relations": _relations(edges_of or []) or None, "nodes": nodes}
    source = {"kind": "tables"} | {name: table for name, table in tables.items() if table is not None}
    settings = validated(AppendSettings, assign({"source": source}, set_ or []))
    paths = {"bundle": str(bundle.absolute()), "out": str(out.absolute())}
    run_here("append", {**paths, "settings": settings.model_dump()}, as_json)


def generate(
    kind: Annotated[Synthetic, typer.Argument(help="rmat: hubs. blocks: communities with labels and features.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder of tables to make.")],
    nodes: Annotated[int, typer.Option(help="Number of nodes.")] = 1_000_000,
    degree: Annotated[float, typer.Option(help="Average degree.")] = 20.0,
    seed: Annotated[int, typer.Option(help="The same seed, the same bytes.")] = 0,
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Write a synthetic graph as tables, OUT/edges and for blocks OUT/nodes, to measure and to try things on."""
    from preprocessing.settings import GenerateSettings

    document = {"kind": kind.value, "nodes": nodes, "degree": degree, "seed": seed}
    settings = validated(GenerateSettings, assign(document, set_ or []))
    run_here("generate", {"out": str(out.absolute()), "settings": settings.model_dump()}, as_json)


def _source(
    tables: dict[str, Any], npz: str | None, relation: str | None, pyg: str | None, pyg_root: Path
) -> dict[str, Any]:
    """The one source that was named; ``UsageError`` for none, several, or an option of another kind of source."""
    given = {
        "--edges": {"kind": "tables"} | {name: value for name, value in tables.items() if value is not None},
        "--npz": {"kind": "npz", "path": npz, "relation": relation},
        "--pyg": {"kind": "pyg", "name": pyg, "root": str(pyg_root.absolute())},
    }
    named = [
        option
        for option, value in (("--edges", tables["edges"] or tables["relations"]), ("--npz", npz), ("--pyg", pyg))
        if value is not None
    ]
    if len(named) != 1:
        raise UsageError(
            "name one graph", given=" ".join(named) or "none", expected="one of --edges (and --nodes), --npz, --pyg"
        )
    stray = [name for name, value in tables.items() if value is not None] if named != ["--edges"] else []
    if relation is not None and npz is None:
        stray.append("relation")
    if stray:
        raise UsageError(f"--{stray[0].replace('_', '-')} does not go with {named[0]}")
    return given[named[0]]


def _relations(given: list[str]) -> dict[str, str]:
    """``RELATION=TABLE`` each, as a dictionary."""
    tables: dict[str, str] = {}
    for text in given:
        name, separator, table = text.partition("=")
        if not separator or name in tables:
            raise UsageError(
                "--edges-of takes a relation and its table", given=text, expected="as likes=likes.parquet, each once"
            )
        tables[name] = table
    return tables


def direction_of(**chosen: bool) -> str | None:
    """The direction that options name, if they do; ``UsageError`` for several."""
    named = [name for name, value in chosen.items() if value]
    if len(named) > 1:
        raise UsageError("one direction at a time", given=" ".join(f"--{name}" for name in named))
    return named[0] if named else None
