"""The frame of the page: every view while there is nothing, the keyboard, themes, keys, and a server that goes away."""

from __future__ import annotations

import pytest
from page_harness import Look, faults, overflows
from playwright.sync_api import Page, expect
from service_harness import Server

VIEWS = {
    "": "Overview",
    "jobs": "Jobs",
    "jobs/new": "New job",
    "jobs/compare": "Compare",
    "graphs": "Graphs",
    "aliases": "Aliases",
    "keys": "API keys",
    "nothing": "Nothing here",
}


def title(page: Page, text: str) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_text(text)


@pytest.mark.parametrize(("width", "dark"), [(1280, True), (390, False)])
def test_every_view_is_accessible_while_there_is_nothing_yet(
    server: Server, look: Look, width: int, dark: bool
) -> None:
    page = look(server, width=width, dark=dark)
    for path, name in VIEWS.items():
        page.goto(f"/#/{path}")
        title(page, name)
        expect(page.locator("[aria-busy]")).to_have_count(0)
        assert faults(page) == [], path
        assert not overflows(page), path


def test_the_empty_overview_says_where_to_begin(server: Server, look: Look) -> None:
    page = look(server)
    page.get_by_role("link", name="Register a graph").click()
    expect(page.get_by_role("dialog", name="Register a graph")).to_be_visible()
    assert faults(page) == []


def test_a_place_that_there_is_not_has_a_link_home_that_looks_like_one(server: Server, look: Look) -> None:
    page = look(server, "#/nowhere")
    home = page.get_by_role("link", name="To the overview")
    expect(home).to_have_css("text-decoration-line", "underline")
    home.click()
    title(page, "Overview")


def test_keyboard_alone(server: Server, look: Look) -> None:
    page = look(server)
    title(page, "Overview")
    press = page.keyboard.press
    press("Tab")
    expect(page.get_by_role("button", name="Skip to content")).to_be_focused()
    press("Enter")
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    for keys, name in (("gj", "Jobs"), ("gg", "Graphs"), ("ga", "Aliases"), ("gk", "API keys"), ("n", "New job")):
        for key in keys:
            press(key)
        title(page, name)
        expect(page.get_by_role("heading", level=1)).to_be_focused()
    press("?")
    shortcuts = page.get_by_role("dialog", name="Shortcuts")
    expect(shortcuts.get_by_role("heading")).to_be_focused()
    assert faults(page) == []
    licences = shortcuts.get_by_role("link", name="Licences").get_attribute("href")
    assert "apache-arrow" in server.client.get(licences).text
    press("g")
    press("j")
    title(page, "New job")
    press("Escape")
    expect(shortcuts).to_have_count(0)
    # What is typed into a field is no shortcut.
    page.get_by_label("Name", exact=True).focus()
    page.keyboard.type("gj?n")
    expect(page.get_by_label("Name", exact=True)).to_have_value("gj?n")
    title(page, "New job")


def test_a_theme_is_remembered(server: Server, look: Look) -> None:
    page = look(server)
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Theme: as the system").click()
    assert page.evaluate(ground) == light
    page.get_by_role("button", name="Theme: light").click()
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    assert page.evaluate(ground) == dark
    page.get_by_role("button", name="Theme: dark").click()
    assert page.evaluate(ground) == light


def test_a_server_that_goes_and_comes_back(server: Server, look: Look) -> None:
    page = look(server, "#/jobs")
    expect(page.get_by_text("No jobs yet")).to_be_visible()
    server.kill()
    expect(page.get_by_text("The server does not answer")).to_be_visible()
    expect(page.get_by_text("No jobs yet")).to_be_visible()
    assert faults(page) == []
    server.start()
    expect(page.get_by_text("The server does not answer")).to_have_count(0)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (502, "null"),
        (502, '{"detail": 5, "errors": 5, "remedy": []}'),
        (502, '{"errors": [null, 5, {"pointer": "/name"}]}'),
        (502, "<html>Bad gateway</html>"),
        (502, ""),
        (403, "7"),
        (200, "<html>Sign in</html>"),
        (200, ""),
    ],
)
def test_what_a_proxy_answers_is_told_by_its_status(server: Server, look: Look, status: int, body: str) -> None:
    page = look(server, "#/aliases")
    title(page, "Aliases")
    page.route("**/v1/**", lambda route: route.fulfill(status=status, body=body))
    page.reload()
    expect(page.locator("#main").get_by_role("alert").first).to_contain_text(f"status {status}")
    assert faults(page) == []


def test_keys_are_made_shown_once_asked_for_and_revoked(server: Server, look: Look) -> None:
    page = look(server, "#/keys")
    expect(page.get_by_text("No keys")).to_be_visible()
    page.get_by_role("button", name="New key").click()
    expect(page.get_by_label("Name")).to_be_focused()
    page.get_by_label("Name").fill("<b>mine</b>")
    page.get_by_role("button", name="Make key").click()
    shown = page.get_by_role("dialog", name="The key <b>mine</b>")
    expect(shown.get_by_role("button", name="Copy")).to_be_focused()
    assert faults(page) == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert shown.locator(".secret .copy-word").bounding_box()["width"] > 20, "that it can be copied is seen"
    page.set_viewport_size({"width": 1280, "height": 800})
    token = shown.locator(".secret code").inner_text()
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_role("button", name="New key")).to_be_focused()
    # This page goes on with the key that it made; the next has to be given one.
    expect(page.get_by_role("row", name="<b>mine</b>")).to_contain_text("live")
    assert token not in page.content()
    other = look(server, "#/jobs")
    asked = other.get_by_role("dialog", name="API key")
    expect(other.get_by_label("Key", exact=True)).to_be_focused()
    for _ in range(3):
        other.keyboard.press("Escape")
        expect(asked).to_be_visible()
    expect(other.get_by_label("Key", exact=True)).to_be_focused()
    assert faults(other) == []
    other.get_by_label("Key", exact=True).fill("wrong")
    other.keyboard.press("Enter")
    expect(asked.get_by_role("alert")).to_contain_text("does not know the API key")
    other.get_by_label("Key", exact=True).fill(token)
    other.keyboard.press("Enter")
    expect(asked).to_have_count(0)
    expect(other.get_by_text("No jobs yet")).to_be_visible()
    assert server.client.get("/v1/jobs").status_code == 401
    page.get_by_role("button", name="Revoke <b>mine</b>").click()
    expect(page.get_by_role("dialog")).to_contain_text("answers whoever reaches it, another refuses every request")
    expect(page.get_by_role("button", name="Keep")).to_be_focused()
    page.get_by_role("button", name="Revoke key").press("Enter")
    expect(page.get_by_text("the server answers without a key again")).to_be_visible()
    expect(page.get_by_text("No key is live")).to_be_visible()
    expect(page.get_by_role("button", name="Forget my key")).to_have_count(0)
    # Without a live key the server, of loopback alone, needs none.
    expect(page.get_by_role("row", name="<b>mine</b>")).to_contain_text("revoked")
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    assert server.client.get("/v1/jobs").status_code == 200


@pytest.mark.parametrize("typed", ["rgrl_abc…", "€", "rgrl_a b"])
def test_what_no_header_can_hold_is_no_key(server: Server, look: Look, typed: str) -> None:
    made = server.client.post("/v1/keys", json={"name": "mine", "scopes": ["admin"]}).json()
    token = made["token"]
    try:
        page = look(server, "#/jobs", key="rgrl_from_before…")
        asked = page.get_by_role("dialog", name="API key")
        expect(asked.get_by_role("alert")).to_have_text("This server needs an API key.")
        page.get_by_label("Key", exact=True).fill(typed)
        page.keyboard.press("Enter")
        expect(asked.get_by_role("alert")).to_contain_text("This is no API key")
        page.get_by_label("Key", exact=True).fill(token)
        page.keyboard.press("Enter")
        expect(asked).to_have_count(0)
        expect(page.get_by_text("No jobs yet")).to_be_visible()
        expect(page.get_by_text("The server does not answer")).to_have_count(0)
    finally:
        server.client.delete(f"/v1/keys/{made['id']}", headers={"Authorization": f"Bearer {token}"})
