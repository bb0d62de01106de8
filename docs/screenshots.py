"""Screenshots of the page for the docs: ``python docs/screenshots.py`` trains on scikit-learn's digits and looks.

It needs Debian's chromium and the ``dev`` extra, takes some minutes, and writes ``docs/images``. ``--home FOLDER``
keeps the server's home, so that the next time nothing is trained again.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from service.cli.demo.graph import write_digits
from service.client import Client
from service.client.transport import UnreachableError

IMAGES = Path(__file__).parent / "images"
LIMIT_BYTES = 150_000
NODE = 1004
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
SETTINGS = {"evaluate": {"splits": 3}, "preprocess": {"ppr": {"top_k": 8}}}
RUNS = {"digits": {"run": {"epochs": 120}}, "digits, lr 0.01": {"run": {"epochs": 120}, "optimizer": {"lr": 0.01}}}


@contextmanager
def served(home: Path) -> Iterator[str]:
    """A server of ``home`` with the digits' tables under its data root; its address."""
    write_digits(home / "data" / "digits")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = ["serve", "--home", str(home / "home"), "--port", str(port), "--data-root", str(home / "data")]
    with (home / "server.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", "service.cli", *command], stdout=log, stderr=log)
        address = f"http://127.0.0.1:{port}"
        try:
            _wait(address)
            yield address
        finally:
            process.terminate()
            process.wait()


def _wait(address: str) -> None:
    with Client(address) as client:
        for _ in range(600):
            try:
                client.info()
            except UnreachableError:
                time.sleep(0.1)
            else:
                return
    raise SystemExit("the server does not answer; see server.log in its home")


def filled(address: str) -> dict[str, str]:
    """A graph, the runs on it and an alias, made unless they are there: what views are about."""
    with Client(address) as client:
        jobs = {job.name: job for job in client.jobs() if job.status == "succeeded"}
        graphs = [graph for graph in client.graphs() if graph.name == "digits"]
        graph = (
            graphs[0]
            if graphs
            else client.register_graph(
                {"kind": "tables", "edges": "digits/edges.parquet", "nodes": "digits/nodes.parquet"}, name="digits"
            )
        )
        for name, train in RUNS.items():
            if name not in jobs:
                job = client.submit("pipeline", graph=graph.id, name=name, alias="digits", train=train, **SETTINGS)
                jobs[name] = client.wait(job.id)
        one, other = (jobs[name].id for name in RUNS)
        return {"graph": graph.id, "job": one, "other": other}


def shot(page: Page, name: str, place: str, *, dark: bool = False, narrow: bool = False, closer: bool = False) -> None:
    """One view as ``images/NAME.png``, once it has come to rest; ``closer``: a map about its chosen node."""
    page.set_viewport_size(NARROW if narrow else WIDE)
    page.emulate_media(color_scheme="dark" if dark else "light", reduced_motion="reduce")
    page.goto(f"/{place}")
    expect(page.locator("[aria-busy]")).to_have_count(0, timeout=30_000)
    if closer:
        page.get_by_role("button", name="Show the chosen node and its neighbours").click()
    page.wait_for_timeout(1500)
    path = IMAGES / f"{name}.png"
    page.screenshot(path=path)
    if path.stat().st_size > LIMIT_BYTES:
        raise SystemExit(f"{path} has {path.stat().st_size} bytes, more than {LIMIT_BYTES}")


def look(page: Page, made: dict[str, str]) -> None:
    """Every view that the docs show."""
    shot(page, "overview", "#/")
    shot(page, "job", f"#/jobs/{made['job']}", dark=True)
    shot(page, "compare", f"#/jobs/compare?id={made['job']}&id={made['other']}")
    shot(page, "new-job", f"#/jobs/new?graph={made['graph']}")
    shot(page, "graph", f"#/graphs/{made['graph']}")
    shot(page, "map", "#/embeddings/digits")
    shot(page, "map-node", f"#/embeddings/digits?node={NODE}", dark=True, closer=True)
    shot(page, "map-narrow", f"#/embeddings/digits?node={NODE}", narrow=True)
    shot(page, "graph-narrow", f"#/graphs/{made['graph']}", dark=True, narrow=True)


def main() -> None:
    """Serve, make what is to be seen, and look."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, help="where to keep what is trained; default: nowhere")
    home = parser.parse_args().home
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("there is no chromium on the path. Remedy: apt-get install chromium")
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, served(home or Path(folder)) as address:
        made = filled(address)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            look(browser.new_page(base_url=address), made)
            browser.close()


if __name__ == "__main__":
    main()
