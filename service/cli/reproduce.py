"""``rgrl reproduce``: the paper's tables and figures in one command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from service.cli.options import AsJson, Set, assign
from service.cli.output import print_json

__all__ = ["reproduce"]

DEFAULT_OUT = Path("reproduced")


def reproduce(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE", help="nodes, links, multiplex, degree, robustness, ablation, sensitivity or cost."
        ),
    ],
    datasets: Annotated[str | None, typer.Option(help="As cora,photo; default: the table's own.")] = None,
    methods: Annotated[str | None, typer.Option(help="As rgrl,bgrl; default: the table's own.")] = None,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Trainings of each row.")] = 5,
    epochs: Annotated[int | None, typer.Option(min=1, help="Of every run, in place of the published number.")] = None,
    data: Annotated[
        Path, typer.Option(envvar="RGRL_DATA_DIR", help="The folder of .npz files; what it lacks PyG downloads.")
    ] = Path(),
    out: Annotated[Path, typer.Option(help="Graphs, runs and reports.")] = DEFAULT_OUT,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of every stage; default: every core.")] = None,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep/--no-keep", help="Leave each embedding set, with 20 snapshots, for other tables to measure too."
        ),
    ] = True,
    best: Annotated[
        bool, typer.Option("--best", help="By the best settings found, where there are any, not the published.")
    ] = False,
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Train and evaluate what a table of the paper shows, and report it beside the published figures.

    The same command goes on where a killed one was; a finished one only writes its report again. Ends with 1 if a stage
    failed; data that is not at hand is told in the report.
    """
    from service.client.progress import ProgressView
    from service.reproduce.plan import Request
    from service.reproduce.reproduce import reproduce as run

    request = Request(
        table=table,
        data=data,
        out=out.absolute(),
        datasets=_names(datasets),
        methods=_names(methods),
        seeds=seeds,
        epochs=epochs,
        overrides=assign({}, set_ or []),
        threads=threads,
        keep=keep,
        best=best,
    )
    if threads is not None:
        # Stages inherit it: torch and the kernels count threads by it.
        os.environ["OMP_NUM_THREADS"] = str(threads)
    with ProgressView() as view:
        report = run(request, lambda event: view.show(event["event"], event["stage"], event))
    if as_json:
        print_json(report)
    else:
        print((request.out / f"{request.report}.md").read_text(encoding="utf-8"), end="")
    if any(row["failed"] for row in report["rows"]):
        raise typer.Exit(1)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
