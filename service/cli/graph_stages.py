"""``rgrl preprocess``, ``split-edges`` and ``induce``: what is made of a graph bundle before training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from preprocessing.errors import UsageError
from service.cli.local import run_here
from service.cli.options import AsJson, BundlePath, Set, assign, validated

__all__ = ["induce", "preprocess", "split_edges"]


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
        typer.Option(
            "--from",
            metavar="OLD",
            help="The bundle before a change: keep its rows that moved little. Made by the same ppr settings.",
        ),
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="How far a score of a kept row can have moved, with --from; default: 1e-4.")
    ] = None,
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Compute PPR neighbours and degree weights of a bundle; continues from the shards of a killed run.

    Up to 10^6 arcs every row is computed until it is proved; --set ppr.exact_arcs=0 is faster, as on larger graphs.
    With --from, every ppr setting, exact_arcs too, is what OLD was preprocessed with.
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
    run_here("preprocess", spec, as_json)


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
    run_here("split-edges", spec, as_json)


def induce(
    bundle: BundlePath,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The bundle to make.")],
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Cut out the graph of a published split's training nodes, to train on without seeing the others.

    The split is the one that ingest read: a column named by --split, or the masks of an .npz file or PyG data set.
    --set parts='["train", "validation"]' keeps more of it. The new bundle has no labels, and no PPR rows yet.
    """
    from preprocessing.settings import InduceSettings

    settings = validated(InduceSettings, assign({}, set_ or []))
    spec = {"bundle": str(bundle.absolute()), "out": str(out.absolute()), "settings": settings.model_dump()}
    run_here("induce", spec, as_json)
