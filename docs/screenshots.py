"""Screenshots of the page for the docs: ``python docs/screenshots.py`` trains on scikit-learn's digits and looks.

It needs Debian's chromium and the ``dev`` extra, takes some minutes, and writes ``docs/images``. ``--home FOLDER``
keeps the server's home, so that the next time nothing is trained again.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import tempfile
from pathlib import Path
from types import FrameType

from playwright.sync_api import Page, expect, sync_playwright
from rich.console import Console

from service.cli.demo.graph import write_digits
from service.cli.demo.server import served
from service.client import Client

IMAGES = Path(__file__).parent / "images"
LIMIT_BYTES = 150_000
NODE = 1004
WINDOW = {"width": 1280, "height": 800}
SETTINGS = {"evaluate": {"splits": 3}, "preprocess": {"ppr": {"top_k": 8}}}
RUNS = {"digits": {"run": {"epochs": 120}}, "digits, lr 0.01": {"run": {"epochs": 120}, "optimizer": {"lr": 0.01}}}


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


def shot(page: Page, name: str, place: str, *, dark: bool = False, closer: bool = False) -> None:
    """One view as ``images/NAME.png``, once it has come to rest; ``closer``: a map about its chosen node."""
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
    shot(page, "job", f"#/jobs/{made['job']}", dark=True)
    shot(page, "compare", f"#/jobs/compare?id={made['job']}&id={made['other']}")
    shot(page, "new-job", f"#/jobs/new?graph={made['graph']}")
    shot(page, "graph", f"#/graphs/{made['graph']}")
    shot(page, "map-node", f"#/embeddings/digits?node={NODE}", dark=True, closer=True)


def main() -> None:
    """Serve, make what is to be seen, and look; nothing of it is left running, whether it ends or is ended."""
    signal.signal(signal.SIGTERM, _end)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, help="where to keep what is trained; default: nowhere")
    kept = parser.parse_args().home
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("there is no chromium on the path. Remedy: apt-get install chromium")
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        home = kept or Path(folder)
        write_digits(home / "data" / "digits")
        options = ["--home", str(home / "home"), "--data-root", str(home / "data")]
        with served(options, home / "server.log", Console(stderr=True)) as (_, address):
            made = filled(address)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
                look(browser.new_page(base_url=address, viewport=WINDOW), made)
                browser.close()


def _end(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit("it was asked to end")


if __name__ == "__main__":
    main()
