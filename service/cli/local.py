"""Commands that run a stage here, without a server: each ends with the stage's own exit code."""

from __future__ import annotations

import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from preprocessing.errors import RgrlError, UsageError
from service.cli.options import AsJson, Set, assign, validated
from service.cli.output import fail, print_facts, print_json

if TYPE_CHECKING:
    from service.jobs.stages import StageOutcome

__all__ = ["evaluate", "export", "generate", "index", "induce", "ingest", "preprocess", "split_edges", "train"]


class Precision(StrEnum):
    """How features are kept."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"


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


class Synthetic(StrEnum):
    """Kinds of synthetic graph."""

    RMAT = "rmat"
    BLOCKS = "blocks"


BundlePath = Annotated[Path, typer.Argument(metavar="BUNDLE", help="Graph bundle, made by ingest.")]
EmbeddingsPath = Annotated[Path, typer.Argument(metavar="EMBEDDINGS", help="Embedding set, made by train.")]


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
    undirected: Annotated[
        bool, typer.Option("--undirected", help="Add the reverse of every edge (the default).")
    ] = False,
    directed: Annotated[bool, typer.Option("--directed", help="A target hears from its sources only.")] = False,
    reverse: Annotated[bool, typer.Option("--reverse", help="Flip every edge, then as --directed.")] = False,
    node_id: Annotated[str | None, typer.Option(help="Id column of the node table.")] = None,
    source: Annotated[str | None, typer.Option(help="Source column of the edge table.")] = None,
    target: Annotated[str | None, typer.Option(help="Target column of the edge table.")] = None,
    weight: Annotated[str | None, typer.Option(help="Weight column of the edges; default: `weight` or `w`.")] = None,
    feature: Annotated[list[str] | None, typer.Option(help="A feature column; repeatable; default: all.")] = None,
    label: Annotated[str | None, typer.Option(help="Label column.")] = None,
    feature_dtype: Annotated[Precision, typer.Option(help="How features are kept.")] = Precision.FLOAT32,
    memory: Annotated[str | None, typer.Option(help="Memory to work in, as 4GiB.")] = None,
    as_json: AsJson = False,
) -> None:
    """Read tables into a graph bundle."""
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
    }
    settings = validated(
        IngestSettings,
        {
            "source": _source(tables, npz, relation, pyg, pyg_root),
            "direction": _direction(undirected=undirected, directed=directed, reverse=reverse),
            "feature_dtype": feature_dtype.value,
            **({} if memory is None else {"memory": memory}),
        },
    )
    _run("ingest", {"out": str(out.absolute()), "settings": settings.model_dump()}, as_json)


def preprocess(
    bundle: BundlePath,
    top_k: Annotated[int | None, typer.Option(help="PPR neighbours a node.")] = None,
    teleport: Annotated[float | None, typer.Option(help="Teleport probability.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads, of each worker; default: every core.")] = None,
    num_workers: Annotated[
        int | None, typer.Option("--num-workers", help="Ray workers; default: 0, in the command's own process.")
    ] = None,
    before: Annotated[
        Path | None,
        typer.Option("--from", metavar="OLD", help="The bundle before a change: keep its rows that moved little."),
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="How far a score of a kept row can have moved, with --from; default: 1e-4.")
    ] = None,
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Compute PPR neighbours and degree weights of a bundle; continues from the shards of a killed run.

    Up to 10^6 arcs every row is computed until it is proved; --set ppr.exact_arcs=0 is faster, as on larger graphs.
    """
    from preprocessing.settings import PreprocessSettings, PreviousSettings

    if before is None and tolerance is not None:
        raise UsageError("--tolerance goes with --from", remedy="name the bundle before the change, or leave it out")

    ppr = {name: value for name, value in (("top_k", top_k), ("teleport", teleport)) if value is not None}
    document: dict[str, Any] = {"ppr": ppr, "threads": threads}
    if num_workers is not None:
        document["num_workers"] = num_workers
    settings = validated(PreprocessSettings, assign(document, set_ or []))
    spec: dict[str, Any] = {"bundle": str(bundle.absolute()), "settings": settings.model_dump()}
    if before is not None:
        chosen = {} if tolerance is None else {"tolerance": tolerance}
        previous = validated(PreviousSettings, {"bundle": before.absolute(), **chosen})
        spec["previous"] = previous.model_dump(mode="json")
    _run("preprocess", spec, as_json)


def split_edges(
    bundle: BundlePath,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The bundle of training edges to make.")],
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Hold edges out for link prediction, with as many pairs that no edge connects: random ones, and near ones."""
    from preprocessing.settings import EdgeSplitSettings

    settings = validated(EdgeSplitSettings, assign({}, set_ or []))
    spec = {"bundle": str(bundle.absolute()), "out": str(out.absolute()), "settings": settings.model_dump()}
    _run("split-edges", spec, as_json)


def induce(
    bundle: BundlePath,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The bundle to make.")],
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Cut out the graph of a published split's training nodes, to train on without seeing the others."""
    from preprocessing.settings import InduceSettings

    settings = validated(InduceSettings, assign({}, set_ or []))
    spec = {"bundle": str(bundle.absolute()), "out": str(out.absolute()), "settings": settings.model_dump()}
    _run("induce", spec, as_json)


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
    """Train on a bundle and embed every node; continues from the last checkpoint of a killed run."""
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
    _run("train", spec, as_json, scratch=None if work else checkpoints)


def evaluate(
    embeddings: EmbeddingsPath,
    bundle: Annotated[Path | None, typer.Option(help="The graph's bundle; default: the one trained on.")] = None,
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
    trained_on = bundle or Path(read_manifest(embeddings, "embedding_set")["bundle"]["path"])
    spec = {
        "bundle": str(trained_on.absolute()),
        "embeddings": str(embeddings.absolute()),
        "settings": settings.model_dump(),
    }
    _run("evaluate", spec, as_json)


def export(
    embeddings: EmbeddingsPath,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write: .parquet or .csv.")],
    as_json: AsJson = False,
) -> None:
    """Write ids and vectors as one table."""
    _run("export", {"embeddings": str(embeddings.absolute()), "out": str(out.absolute())}, as_json)


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
    _run("generate", {"out": str(out.absolute()), "settings": settings.model_dump()}, as_json)


def index(
    embeddings: EmbeddingsPath,
    kind: Annotated[Kind, typer.Option(help="auto: by the number of nodes.")] = Kind.AUTO,
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Build the nearest-neighbour index of an embedding set and measure its recall."""
    from service.search.index_settings import IndexSettings

    settings = validated(IndexSettings, assign({"kind": kind.value}, set_ or []))
    _run("index", {"embeddings": str(embeddings.absolute()), "settings": settings.model_dump()}, as_json)


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


def _direction(**chosen: bool) -> str:
    named = [name for name, value in chosen.items() if value]
    if len(named) > 1:
        raise UsageError("one direction at a time", given=" ".join(f"--{name}" for name in named))
    return named[0] if named else "undirected"


def _run(stage: str, spec: dict[str, Any], as_json: bool, scratch: Path | None = None) -> None:
    """Run a stage with progress bars and exit as it does; ``scratch`` goes once it is done."""
    from service.cli.progress import ProgressView
    from service.jobs.stages import run_stage

    with ProgressView() as view:
        outcome = run_stage(stage, spec, lambda event: view.show(event["event"], event["stage"], event))
    if outcome.exit_code == 0:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        (print_json if as_json else print_facts)(outcome.summary or {})
        return
    raise typer.Exit(_explain(outcome, as_json))


def _explain(outcome: StageOutcome, as_json: bool) -> int:
    """Print why the stage failed, with its log where its own words do not suffice; the answer is its exit code."""
    told = outcome.error or {
        "code": "killed",
        "message": "the stage ended without a word; it may have been killed",
        "remedy": "run the same command again: it continues",
    }
    if told["code"] in {"killed", "internal", "out_of_memory"}:
        print(outcome.log.rstrip(), file=sys.stderr)
    parts = {name: told.get(name) for name in ("given", "expected", "remedy", "where", "pointer")}
    error = RgrlError(told["message"], **parts)
    error.code = told["code"]
    fail(error, as_json=as_json)
    return outcome.exit_code
