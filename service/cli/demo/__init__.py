"""``rgrl demo``: tables to served embeddings through a real server, over HTTP like any client.

Everything lies in ``demo/`` of the working directory. A second run starts the server on the same home, retrains, and
switches the alias; the embeddings that it named before are deleted then, with their graph, and what the run before
left unfinished is cancelled first.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from preprocessing.errors import Interrupted, RgrlError
from service.cli.demo.graph import write_digits
from service.cli.demo.report import figures, print_report
from service.cli.demo.server import cancel_unfinished, served
from service.cli.graph_sources import graph_request
from service.cli.output import log_before, print_json
from service.client import Client, Embedding, Job
from service.client.transport import ConflictError

__all__ = ["run"]

ALIAS = "demo"
# What a demo has time for on two cores.
MOST_EPOCHS = 300
MOST_NODE_EPOCHS = 600_000

# Small and quick; HNSW, where exact search would do, so that there is a recall to measure.
DIGITS: dict[str, Any] = {
    "train": {
        "encoder": {"layers": [128, 64], "predictor_hidden": 128},
        "anchors": {"num_global": 256},
        "batch": {"mode": "full"},
        "run": {"epochs": 150},
    },
    "index": {"kind": "hnsw"},
}


def run(graph: str | None, label: str | None, *, keep: bool, as_json: bool) -> int:
    """Run the demo on the digits, or on ``graph`` (a path or a PyG name); the answer is the exit code.

    ``label`` names the label column of ``graph``'s node table; ``keep`` leaves the server up until Ctrl-C.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    began = time.monotonic()
    console = Console(stderr=True)
    root = Path.cwd() / "demo"
    data = root / "data"
    data.mkdir(parents=True, exist_ok=True)
    named = str(write_digits(data / "digits")) if graph is None else graph
    request = graph_request(named, data / "pyg", {} if label is None else {"label": label})
    roots = _outermost([data, *_folders(request)])
    options = ["--home", str(root / "home"), *(part for folder in roots for part in ("--data-root", str(folder)))]
    with served(options, root / "server.log", console) as (process, url):
        with Client(url) as client:
            embedding = _pipeline(client, request, Path(named).stem, console, digits=graph is None)
            report = figures(client, embedding)
        report["page"] = url
        report["seconds"] = round(time.monotonic() - began, 1)
        if as_json:
            print_json(report)
        else:
            print_report(report)
        if keep:
            console.print(f"The page: [bold]{url}[/]  The server stays up until Ctrl-C.")
            _until_interrupt(process)
        else:
            again = shlex.join(["rgrl", "serve", *options])
            console.print(f"The server was at {url}. To start it again: {again}", soft_wrap=True)
    return 0


def _folders(request: dict[str, Any]) -> list[Path]:
    """The folders of the paths that a request names; the server must be allowed to read them."""
    source = request.get("source", {})
    paths = [request.get("bundle"), *(source.get(name) for name in ("edges", "nodes", "path"))]
    return sorted({Path(path).parent for path in paths if path is not None})


def _outermost(folders: list[Path]) -> list[Path]:
    return [folder for folder in folders if not any(other in folder.parents for other in folders)]


def _pipeline(client: Client, request: dict[str, Any], name: str, console: Console, *, digits: bool) -> Embedding:
    """Register the graph, run a pipeline on it, and return the embedding set that the alias now names."""
    cancel_unfinished(client)
    before = next((one for one in client.embeddings() if ALIAS in one.aliases), None)
    graph = client.register_graph(**request, name=name)
    settings = DIGITS
    if not digits:
        _finish(client, client.submit("ingest", graph=graph.id, name=f"read {name}"), console)
        counts = client.graph(graph.id).counts or {}
        settings = _settings_for(name, counts["nodes"])
    _finish(client, client.submit("pipeline", graph=graph.id, name=f"demo on {name}", alias=ALIAS, **settings), console)
    if before is not None:
        _remove(client, before, console)
    return client.embedding(ALIAS)


def _remove(client: Client, before: Embedding, console: Console) -> None:
    """Delete what an earlier demo made, as far as nothing else uses it, and say so."""
    name = before.graph_name or before.graph
    try:
        client.delete_embedding(before.id)
        client.delete_graph(before.graph)
    except ConflictError:
        console.print(f"What the demo before made of {name} is used by more, and stays.", soft_wrap=True)
        return
    console.print(
        f"These embeddings took the place of those that the demo before made of {name}: {before.id} is deleted. "
        "To keep several, run the demo in another folder, or give them aliases of their own.",
        soft_wrap=True,
    )


def _finish(client: Client, job: Job, console: Console) -> None:
    """Follow a job to its end; raise why it failed, if it did."""
    console.print(f"Submitted {job.id}: {job.kind} for {job.graph}", soft_wrap=True)
    ended = client.wait(job.id, progress=True)
    if ended.status != "succeeded":
        raise _failure(client, ended)


def _settings_for(name: str, nodes: int) -> dict[str, Any]:
    """The published preset that a graph's name speaks of, or the defaults, for as long as a demo has time."""
    from trainer.settings import PRESETS, TrainSettings

    words = re.split(r"[^a-z0-9]+", name.lower())
    preset = next((word for word in words if word in PRESETS), None)
    published = PRESETS[preset]["run"]["epochs"] if preset else TrainSettings().for_graph(nodes).epochs
    epochs = min(published, MOST_EPOCHS, max(1, MOST_NODE_EPOCHS // nodes))
    return {"train": {"preset": preset, "run": {"epochs": epochs}}}


def _failure(client: Client, job: Job) -> RgrlError:
    told = job.error or {"message": f"the job is {job.status}"}
    parts = {part: told.get(part) for part in ("given", "expected", "remedy", "where")}
    error = RgrlError(told["message"], **parts)
    if told.get("code") == "internal" and (log := log_before(error, "\n".join(client.logs(job.id, 30)))):
        print(log, file=sys.stderr)
    return error


def _until_interrupt(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait()
    except KeyboardInterrupt:
        return


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise Interrupted("the demo was asked to end")
