"""``rgrl jobs``: submit, list, show, logs, cancel, watch, edit and delete jobs of a server."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from preprocessing.errors import ArtifactError, InputError, Interrupted, UsageError
from service.cli.graph_sources import default_name, graph_request, named_columns, tell_namesakes
from service.cli.options import (
    DEFAULT_SERVER,
    AsJson,
    AttributeColumns,
    FeatureColumns,
    IdColumn,
    Key,
    LabelColumn,
    Server,
    Set,
    SourceColumn,
    SplitColumn,
    TargetColumn,
    WeightColumn,
    assign,
    connect,
)
from service.cli.output import print_deleted, print_facts, print_json, print_record, print_rows

if TYPE_CHECKING:
    from service.client import Client, DryRun, Embedding, Graph, Job

__all__ = ["app", "follow"]

app = typer.Typer(help="Jobs of a server.", no_args_is_help=True, rich_markup_mode=None)

CANCEL_LOOK_S = 0.1
CANCEL_LOOKS = 20

JobId = Annotated[str, typer.Argument(metavar="JOB", help="A job's id.")]


class Kind(StrEnum):
    """What a job does."""

    INGEST = "ingest"
    APPEND = "append"
    PREPROCESS = "preprocess"
    TRAIN = "train"
    EMBED = "embed"
    EVALUATE = "evaluate"
    INDEX = "index"
    PIPELINE = "pipeline"


@app.command()
def submit(
    kind: Annotated[Kind, typer.Argument(help="pipeline: ingest to index in one job.")],
    graph: Annotated[str | None, typer.Option(help="A graph's id, or a path or PyG name to register first.")] = None,
    embedding: Annotated[
        str | None, typer.Option(help="Embedding set or alias, to evaluate, to index, or to embed by.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="Published training settings, as cora or photo.")] = None,
    alias: Annotated[
        str | None, typer.Option(help="Point this name at the embeddings that a pipeline or embed makes.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="A name for people.")] = None,
    label: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A label; repeatable.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher starts first; default: 0.")] = None,
    id_column: IdColumn = None,
    label_column: LabelColumn = None,
    feature_columns: FeatureColumns = None,
    split_column: SplitColumn = None,
    attribute_columns: AttributeColumns = None,
    source_column: SourceColumn = None,
    target_column: TargetColumn = None,
    weight_column: WeightColumn = None,
    set_: Set = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what the job would take, and queue nothing.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Follow the job to its end.")] = False,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Queue a job; --set takes train.optimizer.lr=1e-3, preprocess.ppr.top_k=32 and so on."""
    fields: dict[str, Any] = {"embedding": embedding, "alias": alias, "name": name, "labels": _labels(label or [])}
    if priority is not None:
        fields["priority"] = priority
    if preset is not None:
        fields["train"] = {"preset": preset}
    assign(fields, set_ or [])
    if dry_run and watch:
        raise UsageError("--watch does not go with --dry-run", remedy="leave one of them out: a dry run queues no job")
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
    if columns and (graph is None or graph.startswith("graph_")):
        raise UsageError(
            "columns are named, but no tables", expected="--graph with a path", remedy="leave the columns out"
        )
    from service.client import ApiError, DryRun

    with connect(server, key) as client:
        made = None if graph is None or graph.startswith("graph_") else _registered(client, graph, columns)
        fields["graph"] = graph if made is None else made.id
        try:
            job = (client.dry_run if dry_run else client.submit)(kind.value, **fields)
        except ApiError as refusal:
            # A graph that was registered for this job alone goes with it.
            if made is not None and refusal.status < 500:
                client.delete_graph(made.id)
            raise
        if isinstance(job, DryRun):
            if made is not None:
                client.delete_graph(made.id)
            _print_plan(job, as_json)
            return
        if made is not None:
            tell_namesakes(client, made)
        if watch:
            raise typer.Exit(follow(client, job.id, as_json))
        print_record(job, as_json=as_json)


@app.command("list")
def list_jobs(
    status: Annotated[str | None, typer.Option(help="Only of this status.")] = None,
    kind: Annotated[Kind | None, typer.Option(help="Only of this kind.")] = None,
    label: Annotated[str | None, typer.Option(metavar="KEY=VALUE", help="Only with this label.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Jobs, newest first."""
    from itertools import islice

    with connect(server, key) as client:
        found = client.jobs(status=status, kind=kind.value if kind else None, label=label)
        jobs = list(islice(found, limit))
    if as_json:
        print_json([job.model_dump(mode="json") for job in jobs])
        return
    print_rows(
        ("job", "kind", "status", "phase", "health", "name", "created", "took"),
        ((job.id, job.kind, job.status, job.phase, _health(job), job.name, job.created_at, _took(job)) for job in jobs),
    )


@app.command()
def show(job: JobId, server: Server = DEFAULT_SERVER, key: Key = None, as_json: AsJson = False) -> None:
    """One job: status, phase, progress, and why it failed."""
    with connect(server, key) as client:
        print_record(client.job(job), as_json=as_json)


@app.command()
def logs(
    job: JobId,
    tail: Annotated[int, typer.Option(min=1, help="Lines from the end.")] = 100,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """The end of a job's log."""
    with connect(server, key) as client:
        lines = client.logs(job, tail)
    if as_json:
        print_json({"job": job, "lines": lines})
    else:
        print("\n".join(lines) if lines else f"nothing is logged of {job}", file=sys.stdout if lines else sys.stderr)


@app.command()
def cancel(job: JobId, server: Server = DEFAULT_SERVER, key: Key = None, as_json: AsJson = False) -> None:
    """Ask a job to end."""
    with connect(server, key) as client:
        asked = client.cancel(job)
        # The server's scheduler sees the wish within a moment.
        for _ in range(CANCEL_LOOKS):
            if asked.status not in {"queued", "running"}:
                break
            time.sleep(CANCEL_LOOK_S)
            asked = client.job(job)
    print_record(asked, as_json=as_json)
    if not asked.ended:
        print(f"the job is asked to end; `rgrl jobs watch {job}` tells when it has", file=sys.stderr)


@app.command()
def edit(
    job: JobId,
    name: Annotated[str | None, typer.Option(help="A name for people.")] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A label, in place of all there are; repeatable.")
    ] = None,
    priority: Annotated[int | None, typer.Option(help="Higher starts first; while the job is queued.")] = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Change a job's name, labels or priority; what is left out stays."""
    changes = {"name": name, "labels": _labels(label) if label else None, "priority": priority}
    if all(value is None for value in changes.values()):
        raise UsageError("nothing is to be changed", expected="--name, --label or --priority")
    with connect(server, key) as client:
        changed = client.edit_job(job, **{field: value for field, value in changes.items() if value is not None})
    print_record(changed, as_json=as_json)


@app.command()
def delete(job: JobId, server: Server = DEFAULT_SERVER, key: Key = None, as_json: AsJson = False) -> None:
    """Forget an ended job, its events, log and checkpoints; what it made stays."""
    with connect(server, key) as client:
        client.delete_job(job)
    print_deleted(job, as_json=as_json)


@app.command()
def watch(job: JobId, server: Server = DEFAULT_SERVER, key: Key = None, as_json: AsJson = False) -> None:
    """Follow a job to its end with progress bars; ends with 0 only if it succeeded. Ctrl-C leaves the job running."""
    with connect(server, key) as client:
        # A server that has never answered is not waited for, as one is that goes away.
        raise typer.Exit(follow(client, client.job(job).id, as_json))


def follow(client: Client, job_id: str, as_json: bool) -> int:
    """Show a job's progress until it ends; the answer is an exit code that says how."""
    try:
        job = client.wait(job_id, progress=True)
    except KeyboardInterrupt:
        raise Interrupted(
            "the job is watched no longer; it goes on",
            remedy=f"`rgrl jobs watch {job_id}` follows it again, `rgrl jobs cancel {job_id}` ends it",
        ) from None
    print_record(job, as_json=as_json)
    if job.status == "succeeded":
        if job.embedding is not None and not as_json:
            _print_quality(client.embedding(job.embedding))
            print_facts({"page": f"{client.url}/#/embeddings/{job.alias or job.embedding}"})
        return 0
    kinds = (UsageError, InputError, ArtifactError)
    codes = {kind.code: kind.exit_code for kind in kinds}
    return codes.get((job.error or {}).get("code", ""), 1)


def _print_quality(embedding: Embedding) -> None:
    """What evaluation and index found, where the job came so far."""
    report, index = embedding.report or {}, embedding.index or {}
    accuracy = report.get("test_accuracy") or {}
    facts: dict[str, Any] = {f"accuracy of {name}": value for name, value in accuracy.items() if value is not None}
    facts |= {name: report[name] for name in ("effective_rank", "report") if name in report}
    if "recall" in index:
        facts["recall of the index"] = index["recall"]["value"]
    if facts:
        print_facts(facts)


def _print_plan(plan: DryRun, as_json: bool) -> None:
    """What a job would take; its settings are left to ``--json``."""
    if as_json:
        print_json(plan.model_dump(mode="json"))
    else:
        print_facts(
            {"stages": ", ".join(plan.stages), **plan.model_dump(include={"estimate", "resources", "available"})}
        )


def _registered(client: Client, named: str, columns: dict[str, Any]) -> Graph:
    """A graph that is registered now."""
    request = graph_request(named, Path("pyg-data").absolute(), columns)
    return client.register_graph(**request, name=default_name(named))


def _labels(given: list[str]) -> dict[str, str]:
    labels = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError("--label takes a key and a value", given=text, expected="as team=search")
        labels[name] = value
    return labels


def _health(job: Job) -> str | None:
    """The state that its training reported; silent where nothing comes any more."""
    if job.silent_since is not None:
        return "silent"
    return None if job.health is None else str(job.health["state"])


def _took(job: Job) -> str | None:
    if job.started_at is None or job.ended_at is None:
        return None
    return f"{(job.ended_at - job.started_at).total_seconds():.1f} s"
