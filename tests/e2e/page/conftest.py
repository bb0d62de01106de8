"""The page in Chromium, against a server in a process of its own.

A test opens views by ``look(server, "#/jobs")``; whatever it opens must keep to its own host, log no error, and pass
axe. ``Server`` runs fake stages (``service_harness``), so that a job takes as long as the test says.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from page_harness import Look
from playwright.sync_api import Browser, Page, expect, sync_playwright
from service_harness import Server, settings_in

CHROMIUM = shutil.which("chromium")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
TOKEN = "rgrl-key"
# What waits for a server's start or a job's end, beside other tests.
expect.set_options(timeout=40_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Of one module: while it is open, nothing else of its process can run an event loop."""
    if CHROMIUM is None:
        pytest.skip("no chromium on the path; apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(settings_in(tmp_path_factory.mktemp("page"))) as server:
        yield server


@pytest.fixture
def look(browser: Browser) -> Iterator[Look]:
    """Open a place of the page: ``look(server, "#/jobs", width=390, dark=True)``."""
    contexts = []
    strayed: list[str] = []
    said: list[str] = []

    def open_at(server: Server, place: str = "#/", *, width: int = 1280, dark: bool = False, key: str = "") -> Page:
        home = str(server.client.base_url).rstrip("/")
        context = browser.new_context(
            viewport={"width": width, "height": 800 if width > 500 else 844},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            base_url=home,
        )
        contexts.append(context)
        context.set_default_timeout(40_000)
        if key:
            context.add_init_script(f"sessionStorage.getItem('{TOKEN}') ?? sessionStorage.setItem('{TOKEN}', '{key}')")

        def asked(url: str) -> None:
            if urlsplit(url).scheme in {"http", "https", "ws"} and not url.startswith(home):
                strayed.append(url)

        context.on("request", lambda request: asked(request.url))
        page = context.new_page()
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("console", lambda line: said.append(line.text) if line.type == "error" else None)
        page.goto(f"/{place}")
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert strayed == [], "the page asked another host"
    # What the browser itself logs of a refusal or of a server that is away is no fault of the page.
    assert [line for line in said if not line.startswith("Failed to load resource")] == []
