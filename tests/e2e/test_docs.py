"""What the pages tell a reader to do is done: every block is run, in order, on small inputs that stand for theirs.

The pages share a server, a folder and one tiny trained set. What trains or ingests anew is run by the slow test alone,
each page in a folder of its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from doc_pages import LANGUAGES, PAGES, ROOT, Block, blocks, commands, read, spans

from preprocessing.settings import PreprocessSettings
from service.api.api_page import api_page
from service.cli import app
from service.cli.settings import settings_of
from service.client import Client
from service.search.index_settings import IndexSettings
from trainer.settings import EmbedSettings, EvaluateSettings, TrainSettings

NODES = 120
# Compiling alone may take minutes where other work is done.
pytestmark = pytest.mark.timeout(600)
# Blocks that no test runs, each with its reason in a comment above it.
NOT_RUN = {
    "README.md": 2,
    "CONTRIBUTING.md": 1,
    "docs/deploy.md": 7,
    "docs/quickstart.md": 3,
    "docs/howto/data.md": 1,
    "docs/howto/scaling.md": 2,
}
SMALL: dict[str, Any] = {
    "train": {"encoder": {"layers": [16, 8], "predictor_hidden": 16}, "run": {"max_steps": 10}},
    "evaluate": {"splits": 2, "steps": 10, "baselines": False},
    "index": {"projection": {"method": "pca"}},
}
# `rgrl serve` comes back once the server answers; one with other arguments takes its place.
RGRL = r"""#!/usr/bin/env bash
if [ "$1" != serve ] || [ "$2" = --help ]; then exec "$PYTHON" -P -m service.cli "$@"; fi
shift; asked="${*/--home rgrl-home /}"
if [ "$(cat "$SERVER/asked" 2>/dev/null)" = "$asked" ]; then exit 0; fi
if [ -e "$SERVER/pid" ]; then
    kill "$(cat "$SERVER/pid")"
    while kill -0 "$(cat "$SERVER/pid")" 2>/dev/null; do sleep 0.05; done
fi
setsid "$PYTHON" -P -m service.cli serve "$@" --port "$PORT" > "$SERVER/log" 2>&1 < /dev/null &
echo $! > "$SERVER/pid"
for _ in $(seq 600); do
    if curl -qso "$SERVER/ready" "http://127.0.0.1:$PORT/readyz"; then echo "$asked" > "$SERVER/asked"; exit 0; fi
    sleep 0.1
done
cat "$SERVER/log"; exit 1
"""
# The id that a command before has answered with.
NEWEST = """NEWEST=$(rgrl graphs list --limit 1 --json | python -c 'import json, sys
print(json.load(sys.stdin)[0]["id"])')"""


@dataclass(frozen=True)
class Desk:
    """Where a reader works: ``folder`` is the working directory, beside it what the tests need."""

    folder: Path
    port: int

    @classmethod
    def of(cls, parent: Path) -> Desk:
        """With a reader's files and an empty home."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            desk = cls(parent / "desk", probe.getsockname()[1])
        for folder in (desk.folder / "data", parent / "bin", parent / "server", parent / "seen"):
            folder.mkdir(parents=True)
        (parent / "bin" / "rgrl").write_text(RGRL)
        (parent / "bin" / "rgrl").chmod(0o755)
        (parent / "bin" / "python").write_text('#!/usr/bin/env bash\nexec "$PYTHON" "$@"\n')
        (parent / "bin" / "python").chmod(0o755)
        (parent / "bin" / ".curlrc").write_text("fail-with-body\nsilent\nshow-error\n")
        write_inputs(desk.folder)
        return desk

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        beside = self.folder.parent
        environment = {
            **os.environ,
            "PATH": f"{beside / 'bin'}:{os.environ['PATH']}",
            "PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "CURL_HOME": str(beside / "bin"),
            "SERVER": str(beside / "server"),
            "PORT": str(self.port),
            "RGRL_SERVER": f"http://127.0.0.1:{self.port}",
            "SEEN": str(beside / "seen"),
            "OMP_NUM_THREADS": "1",
        }
        environment.pop("RGRL_DATA_DIR", None)
        return subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1100,
            check=False,
        )

    def close(self) -> None:
        """End the server, and what is left of its jobs, which outlive it."""
        with suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int((self.folder.parent / "server" / "pid").read_text()), signal.SIGTERM)
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if Path(process.environ().get("RGRL_HOME", "/")).is_relative_to(self.folder):
                    process.kill()


def write_inputs(folder: Path) -> None:
    """Two communities: as tables, what is new beside them, and the same as an .npz file."""
    rng = np.random.default_rng(0)
    side = np.arange(NODES) % 2
    features = rng.normal(size=(NODES, 4)) + side[:, None]
    pairs = rng.integers(0, NODES, size=(2000, 2))
    pairs = pairs[(side[pairs[:, 0]] == side[pairs[:, 1]]) & (pairs[:, 0] != pairs[:, 1])][:500]
    columns = {f"f{number}": column for number, column in enumerate(features.T)}
    topics = np.array(["sea", "sky"])[side]
    parts = np.array(["train", "train", "validation", "test"])[np.arange(NODES) % 4]
    attributes = {"year": 1990 + np.arange(NODES) % 30, "topic": topics, "part": parts}
    pq.write_table(pa.table({"id": np.arange(NODES), **columns, **attributes}), folder / "data" / "nodes.parquet")
    pq.write_table(pa.table({"source": pairs[:, 0], "target": pairs[:, 1]}), folder / "data" / "edges.parquet")
    new = {name: column[:3] for name, column in ({**columns, **attributes}).items()}
    pq.write_table(pa.table({"id": NODES + np.arange(3), **new}), folder / "new-nodes.parquet")
    edges = {"source": NODES + np.arange(3), "target": np.arange(3)}
    pq.write_table(pa.table(edges), folder / "new-edges.parquet")
    counts = np.bincount(pairs[:, 0], minlength=NODES)
    order = np.argsort(pairs[:, 0], kind="stable")
    np.savez(
        folder / "cora.npz",
        adj_data=np.ones(len(pairs), np.float32),
        adj_indices=pairs[order, 1].astype(np.int32),
        adj_indptr=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        adj_shape=np.array([NODES, NODES]),
        attr_data=np.ones(2 * NODES, np.float32),
        attr_indices=np.stack([side, 2 + np.arange(NODES) % 3], axis=1).reshape(-1).astype(np.int32),
        attr_indptr=np.arange(0, 2 * NODES + 1, 2).astype(np.int32),
        attr_shape=np.array([NODES, 5]),
        labels=side,
    )


def trained(desk: Desk) -> None:
    """A server whose alias `mine` is a tiny set; graph and set beside its home, as commands would have made them."""
    began = desk.run("rgrl serve --data-root data")
    assert began.returncode == 0, began.stdout
    with Client(f"http://127.0.0.1:{desk.port}") as client:
        named = {"label": "topic", "attributes": ["year"], "features": ["f0", "f1", "f2", "f3"]}
        source = {"kind": "tables", "edges": "edges.parquet", "nodes": "nodes.parquet", **named}
        graph = client.register_graph(source, name="mine")
        job = client.wait(client.submit("pipeline", graph=graph.id, alias="mine", **SMALL).id)
        assert job.status == "succeeded", job.error
        shutil.copytree(client.graph(graph.id).bundle, desk.folder / "graph")
        shutil.copytree(desk.folder / "rgrl-home" / "embeddings" / str(job.embedding), desk.folder / "embeddings")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    desk = Desk.of(tmp_path_factory.mktemp("docs"))
    try:
        trained(desk)
        yield desk
    finally:
        desk.close()


def script(found: list[Block], port: int) -> str:
    """The blocks as one script, which ends at the first command that fails."""
    lines = ["set -eo pipefail"]
    for block in found:
        lines += [f"echo '### {block.place}'", *block.before]
        if block.language == "python":
            lines += ["python -P - <<'PYTHON_ENDS'", block.text, "PYTHON_ENDS"]
        elif block.language == "sh":
            if "graph_…" in block.text:
                lines.append(NEWEST)
            lines.append(block.text.replace("graph_…", "'\"$NEWEST\"'"))
        else:
            for number, (command, _) in enumerate(sessions(block)):
                seen = f'"$SEEN/{number}-{block.line}"'
                lines += ["{", command, f"}} > {seen} 2>&1 || {{ cat {seen}; exit 1; }}"]
    text = "\n".join(lines)
    return re.sub(r"(localhost|127\.0\.0\.1):8000", f"127.0.0.1:{port}", text)


def sessions(block: Block) -> list[tuple[str, str]]:
    """Commands of a console, each with what is seen below it."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    return [(command, shown) for command, _, shown in (part.partition("\n") for part in parts)]


def check_run(desk: Desk, found: list[Block]) -> None:
    done = desk.run(script(found, desk.port))
    assert done.returncode == 0, done.stdout[-6000:]
    for block in found:
        for number, (command, shown) in enumerate(sessions(block) if block.language == "console" else []):
            seen = (desk.folder.parent / "seen" / f"{number}-{block.line}").read_text()
            wanted = re.escape(shown.rstrip("\n")).replace("…", "(?:.|\n)*")
            assert re.fullmatch(wanted, seen.rstrip("\n")), f"{block.place}: {command}\n{seen}"


def runnable(page: str, *, slow: bool) -> list[Block]:
    chosen = [block for block in blocks(page) if block.language in LANGUAGES and block.why_not is None]
    return [block for block in chosen if slow or not block.slow]


WITH_BLOCKS = [page for page in PAGES if runnable(page, slow=True)]


@pytest.mark.parametrize("page", [page for page in WITH_BLOCKS if runnable(page, slow=False)])
def test_every_command_does_what_the_page_says(shared: Desk, page: str) -> None:
    check_run(shared, runnable(page, slow=False))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", WITH_BLOCKS)
def test_every_command_with_those_that_take_long(tmp_path: Path, page: str) -> None:
    desk = Desk.of(tmp_path)
    try:
        trained(desk)
        # What a page makes anew is not there yet.
        whole = runnable(page, slow=True)
        text = "".join(block.text for block in whole)
        for made, command in (("graph", r"ingest .* graph$"), ("embeddings", r"train graph embeddings$")):
            if re.search(command, text, re.MULTILINE):
                shutil.rmtree(desk.folder / made)
        check_run(desk, whole)
    finally:
        desk.close()


def test_what_is_not_run_is_counted() -> None:
    found = [block for page in PAGES for block in blocks(page)]
    assert Counter(block.page for block in found if block.why_not) == NOT_RUN
    assert {block.language for block in found} <= {*LANGUAGES, "json", "text"}


def test_the_readme_says_how_many_blocks_are_not_run_and_when_slow_ones_are() -> None:
    said = re.search(r"is run by a test, on small inputs, but for (\d+): .*`pytest -m slow` alone", read("README.md"))
    assert said is not None
    assert int(said[1]) == sum(NOT_RUN.values())
    assert any(block.slow for page in PAGES for block in blocks(page))


def test_the_methods_best_figures_are_those_of_the_last_run() -> None:
    """That the benchmarks tell of below the table of best settings, or the table's own where nothing ran again."""
    benchmarks, method = read("docs/benchmarks.md"), read("docs/method.md")
    table, _, rest = benchmarks.partition("The tables of best settings were measured before")
    again = rest.partition("## ")[0]
    for name in ("Cora", "Photo", "Computers", "CS", "Physics"):
        ran = re.search(rf"\b{name} \**(\d\d\.\d\d)", again) or re.search(rf"\| {name} \| \*\*(\S+)\*\*", table)
        shown = re.search(rf"^\| {name} \| \S+ \| (\S+) \|", method, re.MULTILINE)
        assert ran is not None
        assert shown is not None
        assert shown[1] == ran[1], name
    for name in ("CS", "Physics"):
        ran = re.search(rf"of {name} (\.\d+), \.\d+ and (?:hard )?(\.\d+)", again)
        shown = re.search(rf"^\| {name} \| (\.\d+) \(\.\d+\) \| (\.\d+) ", method, re.MULTILINE)
        assert ran is not None
        assert shown is not None
        assert shown.groups() == ran.groups(), name


def leaf(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that the words name, and its arguments."""
    command: click.Command = typer.main.get_command(app)
    rest = list(words)
    while (known := getattr(command, "commands", None)) is not None:
        if not rest or rest[0] not in known:
            assert not rest or rest[0].startswith("-"), f"there is no command {' '.join(words)}"
            break
        command = known[rest.pop(0)]
    return command, rest


@pytest.mark.parametrize("page", [page for page in PAGES if any(commands(block.text) for block in blocks(page))])
def test_every_command_is_one_that_there_is(page: str) -> None:
    """Of those, too, that are not run here."""
    for block in blocks(page):
        if block.language in ("sh", "console"):
            for words in commands(block.text):
                command, rest = leaf(words)
                command.make_context("rgrl", rest)


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ("docs/decisions.md", "docs/benchmarks.md")])
def test_every_command_in_a_sentence_is_one_that_there_is(page: str) -> None:
    for span in spans(page):
        if re.match(r"rgrl [a-z]", span):
            command, rest = leaf(span.split()[1:])
            assert not hasattr(command, "commands") or not rest or rest[0].startswith(("-", "…")), span
            known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
            assert {word for word in rest if word.startswith("--")} <= known | {"--help"}, span


def test_every_setting_in_a_sentence_is_one_that_there_is() -> None:
    """``part.name``, with a value or without, where the first is a part of some stage's settings."""
    models = (PreprocessSettings, TrainSettings, EmbedSettings, EvaluateSettings, IndexSettings)
    known = {str(row["name"]) for model in models for row in settings_of(model)}
    parts = {name.split(".")[0] for name in known if "." in name} - {"features"}
    named = {
        (page, span.partition("=")[0])
        for page in PAGES
        if page not in ("docs/api.md", "docs/decisions.md", "docs/benchmarks.md", "docs/formats.md")
        for span in spans(page)
        if re.fullmatch(rf"({'|'.join(parts)})\.[a-z_.]+(=.*)?", span)
    }
    assert len(named) > 20
    assert {(page, name) for page, name in named if name not in known} == set()


def anchors(page: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", read(page), flags=re.M | re.S), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", read(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(str(file.resolve().relative_to(ROOT))), target


def test_every_image_is_shown_and_drawn() -> None:
    """By some page, and by the script of the docs' images."""
    shown = {name for page in PAGES for name in re.findall(r"!\[[^\]]+\]\([./a-z]*images/([^)]+)\)", read(page))}
    drawn = {f"{name}.png" for name in re.findall(r'shot\(page, "([^"]+)"', read("docs/screenshots.py"))}
    assert shown == drawn == {path.name for path in (ROOT / "docs" / "images").iterdir()}


def test_every_page_is_listed() -> None:
    pages = {page for page in PAGES if page.startswith("docs/")} - {"docs/index.md"}
    for listing in ("README.md", "docs/index.md"):
        listed = {((ROOT / listing).parent / link).resolve() for link in re.findall(r"\]\(([^)#\s]+)", read(listing))}
        assert {str(page) for page in pages if ROOT / page not in listed} == set(), listing


def test_the_page_of_the_api_is_that_of_its_document() -> None:
    document = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))
    assert read("docs/api.md") == api_page(document), "python -m service.api.api_page < docs/openapi.json > docs/api.md"
    for schema in document["components"]["schemas"]:
        assert f"### {schema}\n" in read("docs/api.md")
