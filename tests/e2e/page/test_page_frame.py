"""The frame of the page: every view, in both themes and widths, by keyboard alone, and while the server is away."""

from __future__ import annotations

import pytest
from page_harness import Look, faults, overflows
from playwright.sync_api import expect
from service_harness import Server

VIEWS = {"": "Overview", "jobs": "Jobs", "graphs": "Graphs", "aliases": "Aliases", "keys": "API keys"}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_view_is_accessible_while_there_is_nothing_yet(
    server: Server, look: Look, width: int, dark: bool
) -> None:
    page = look(server, width=width, dark=dark)
    for path, title in VIEWS.items():
        page.goto(f"/#/{path}")
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
        page.wait_for_load_state("networkidle")
        assert faults(page) == [], path
        assert not overflows(page), path
