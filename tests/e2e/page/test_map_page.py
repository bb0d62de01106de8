"""The map of an embedding set: every point where and what it is, chosen, pointed at and moved by any means."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from embedding_fixtures import add_set
from map_world import CLASSES, FIRST, NODES, Map, World, map_world, open_map, palette, row_of
from page_harness import Look, faults, overflows
from playwright.sync_api import Page, expect

from service.store import Store


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with map_world(tmp_path_factory.mktemp("map")) as made:
        yield made


def rows_of_table(page: Page) -> list[tuple[str, str, str]]:
    """Id, edge and score of every neighbour shown."""
    expect(page.locator(".node-neighbors")).to_be_visible()
    cells = page.locator(".node-neighbors tbody tr").all()
    texts = [row.locator("td").all_inner_texts() for row in cells]
    return [(text[0].strip(), text[-2].strip(), text[-1].strip()) for text in texts]


def as_shown(results: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(found["id"], "Connected" if found["connected"] else "None", f"{found['score']:.4f}") for found in results]


def chosen(page: Page) -> str | None:
    found = re.search(r"[?&]node=(\w+)", page.url)
    return found[1] if found else None


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_colours_are_those_of_labels(world: World, look: Look, dark: bool) -> None:
    shown = open_map(world, look, dark=dark)
    kinds, other, ground = palette(dark)
    rows = shown.alone(8)
    assert len(rows) > 30
    # In the order of names; nodes without a label are grey.
    expected = [other if world.labels[row] is None else kinds[int(world.labels[row][-1])] for row in rows]
    assert len({tuple(color) for color in expected}) == CLASSES + 1
    drawn = ground + 0.85 * (np.array(expected) - ground)
    assert np.abs(shown.colors(rows) - drawn).max() <= 6
    legend = shown.page.locator(".legend-class").all_inner_texts()
    counts = {f"kind {kind}": world.labels.count(f"kind {kind}") for kind in range(CLASSES)}
    assert [text.split("\n") for text in legend] == [
        [name, str(count)] for name, count in [*counts.items(), ("unknown", world.labels.count(None))]
    ]


@pytest.mark.parametrize(("count", "dark"), [(12, True), (15, False)])
def test_twelve_labels_have_colours_of_their_own_and_the_rarest_of_more_are_others(
    world: World, look: Look, count: int, dark: bool
) -> None:
    # The further on, the more nodes: the rarest are the first by name.
    labels = [f"topic {topic}" for topic in range(1, count + 1) for _ in range(topic)]
    graph, ref = world.labelled(f"topics{count}{dark}", labels)
    page = look(world.server, f"#/embeddings/{ref}", dark=dark)
    legend, shown = page.locator(".legend-class"), range(count - 11, count + 1)
    rest = [["others (3 labels)", str(1 + 2 + 3)]] if count == 15 else []
    expect(legend).to_have_count(12 + len(rest))
    assert [text.split("\n") for text in legend.all_inner_texts()] == [
        *([f"topic {topic}", str(topic)] for topic in shown),
        *rest,
    ]
    swatches = page.locator(".legend-swatch").evaluate_all(
        "(all) => all.map((one) => getComputedStyle(one).backgroundColor.match(/\\d+/g).map(Number))"
    )
    kinds, other, _ = palette(dark)
    assert swatches == [*kinds.tolist(), *([other.tolist()] if rest else [])]
    assert faults(page) == []
    world.forget(graph, ref)


def test_coloured_by_degree_they_are_as_light_as_their_degree(world: World, look: Look) -> None:
    shown = open_map(world, look)
    shown.page.get_by_label("Colour by").select_option("Degree")
    expect(shown.page.locator(".legend-class")).to_have_count(3)
    classes = np.floor(np.log2(world.degrees)).astype(int)
    assert [text.split("\n")[0] for text in shown.page.locator(".legend-class").all_inner_texts()] == [
        "1",
        "2–3",
        "32–63",
    ]
    rows = shown.alone(8)
    luminance = shown.colors(rows) @ [0.2126, 0.7152, 0.0722]
    tone = [luminance[classes[rows] == step] for step in (0, 1)]
    assert all(len(values) > 3 and np.ptp(values) < 8 for values in tone)
    assert tone[0].min() > tone[1].max() + 20
    assert "color=degree" in shown.page.url


def test_coloured_by_job_or_by_nothing_they_are_alike(world: World, look: Look) -> None:
    store = Store(world.server.settings)
    try:
        made = add_set(store, world.folder / "data" / "whole", world.folder / "data" / "bundle")
    finally:
        store.close()
    shown = Map(world, look(world.server, f"#/embeddings/{made}?color=job"))
    rows = shown.alone(8)
    kinds, _, ground = palette(False)
    for name, option in (("job_0", "Job"), ("Nodes", "Nothing")):
        shown.page.get_by_label("Colour by").select_option(option)
        expect(shown.page.locator(".legend-class")).to_have_text([f"{name}{NODES}"])
        assert np.abs(shown.colors(rows) - (ground + 0.85 * (kinds[0] - ground))).max() <= 6
    # One that no job made is not offered its job.
    other = open_map(world, look).page.get_by_label("Colour by")
    assert other.locator("option").all_inner_texts() == ["Label", "Degree", "Nothing"]


@pytest.mark.parametrize("width", [1280, 390])
def test_a_click_chooses_what_lies_there_and_shows_its_neighbours(world: World, look: Look, width: int) -> None:
    shown = open_map(world, look, width=width)
    page = shown.page
    near = {row: world.neighbors(world.whole, str(FIRST + row)) for row in shown.alone(10)}
    row = next(row for row, found in near.items() if {one["connected"] for one in found} == {True, False})
    node = str(FIRST + row)
    page.mouse.click(*shown.at(row))
    expect(page.get_by_role("heading", level=3, name=node)).to_be_visible()
    assert chosen(page) == node
    assert rows_of_table(page) == as_shown(near[row])
    # The same on the map: squares and lines for the connected, circles for the others, where these nodes lie.
    marks = page.locator(".map-mark")
    expect(marks).to_have_count(len(near[row]))
    for found in near[row]:
        mark = page.locator(f".map-mark[data-point='{row_of(found['id'])}']")
        assert mark.locator("rect").count() == int(found["connected"])
        assert mark.locator("circle").count() == int(not found["connected"])
        assert ((node, found["id"]) in world.edges) is found["connected"]
        place = re.findall(r"[-\d.]+", mark.get_attribute("transform") or "")
        assert np.allclose([float(at) for at in place], shown.place(row_of(found["id"])), atol=0.1)
    lines = page.locator(".map-edge")
    assert lines.count() == sum(found["connected"] for found in near[row])
    assert not overflows(page)
    # Who is not connected yet.
    page.get_by_role("button", name="Not connected yet").click()
    strangers = world.neighbors(world.whole, node, connected=True)
    expect(page.get_by_role("region", name=f"Nearest that share no edge with {node}")).to_be_visible()
    assert rows_of_table(page) == as_shown(strangers)
    assert all((node, found["id"]) not in world.edges for found in strangers)
    page.get_by_label("How many").select_option("25")
    expect(page.locator(".node-neighbors tbody tr")).to_have_count(25)
    assert rows_of_table(page) == as_shown(world.neighbors(world.whole, node, 25, connected=True))
    # One of them, by the list; then none, by a click beside all points.
    page.get_by_role("button", name=strangers[0]["id"], exact=True).click()
    expect(page.get_by_role("heading", level=3, name=strangers[0]["id"])).to_be_focused()
    assert chosen(page) == strangers[0]["id"]
    page.get_by_role("button", name="Let go of the node").click()
    expect(page.locator(".map-mark")).to_have_count(0)
    expect(page.get_by_label("Node id")).to_be_focused()
    assert chosen(page) is None


def test_a_point_under_the_mouse_is_told_and_one_in_the_list_is_ringed(world: World, look: Look) -> None:
    shown = open_map(world, look)
    tip = shown.page.locator(".map-tip")
    for row in shown.alone()[:3]:
        shown.page.mouse.move(*shown.at(row))
        label = world.labels[row] or "unknown"
        expect(tip).to_have_text(f"{FIRST + row}Label {label}Degree {world.degrees[row]}")
    shown.page.mouse.move(5, 5)
    expect(tip).to_have_count(0)
    shown.page.mouse.click(*shown.at(shown.alone()[0]))
    second = shown.page.locator(".node-neighbors tbody tr").nth(1)
    second.hover()
    node = second.locator("td").first.inner_text()
    expect(shown.page.locator(".map-pointed")).to_have_attribute("data-point", str(row_of(node)))


def test_it_is_moved_and_zoomed_by_the_mouse(world: World, look: Look) -> None:
    shown = open_map(world, look)
    page, tip = shown.page, shown.page.locator(".map-tip")
    row = max(shown.alone(), key=lambda row: -abs(shown.place(row)[0] - 300))
    left, top = shown.at(row)
    page.mouse.move(left, top)
    page.mouse.down()
    page.mouse.move(left + 60, top + 20, steps=4)
    page.mouse.up()
    assert chosen(page) is None, "a drag is no choice"
    page.mouse.move(left + 61, top + 20)
    expect(tip).to_have_attribute("data-id", str(FIRST + row))
    # What the wheel turns about stays where it is, and what is beside it goes away from it.
    page.mouse.wheel(0, -600)
    page.mouse.move(left + 60, top + 20)
    expect(tip).to_have_attribute("data-id", str(FIRST + row))
    page.mouse.move(left + 60 + 22, top + 20)
    expect(tip).to_have_count(0)
    page.get_by_role("button", name="Zoom out").click()
    page.get_by_role("button", name="Zoom in").click()
    page.get_by_role("button", name="Show all").click()
    page.mouse.move(left, top)
    expect(tip).to_have_attribute("data-id", str(FIRST + row))


def test_it_is_moved_zoomed_and_chosen_from_by_touch(world: World, look: Look) -> None:
    shown = open_map(world, look, width=390)
    page = shown.page
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 2})

    def touch(kind: str, *places: tuple[float, float]) -> None:
        points = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(places)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    row = max(shown.alone(10), key=lambda row: -np.hypot(*np.subtract(shown.place(row), (150, 150))))
    x, y = shown.at(row)
    touch("touchStart", (x, y))
    for step in (10, 20, 30):
        touch("touchMove", (x + step, y + step))
    touch("touchEnd")
    assert chosen(page) is None
    # Pinched apart about the node, twice as far.
    x, y = x + 30, y + 30
    touch("touchStart", (x - 30, y), (x + 30, y))
    for reach in (40, 50, 60):
        touch("touchMove", (x - reach, y), (x + reach, y))
    touch("touchEnd")
    touch("touchStart", (x, y))
    touch("touchEnd")
    expect(page.get_by_role("heading", level=3, name=str(FIRST + row))).to_be_visible()
    place = re.findall(r"[-\d.]+", page.locator(".map-chosen").get_attribute("transform") or "")
    assert np.allclose([float(at) for at in place], [x - shown.box["x"], y - shown.box["y"]], atol=6)
    marks = page.locator(".map-mark")
    expect(marks).to_have_count(10)
    apart = [
        np.array([float(at) for at in re.findall(r"[-\d.]+", mark.get_attribute("transform") or "")])
        - [float(at) for at in place]
        for mark in marks.all()
    ]
    before = [
        np.subtract(shown.place(int(mark.get_attribute("data-point") or "")), shown.place(row)) for mark in marks.all()
    ]
    assert np.allclose(np.linalg.norm(apart, axis=1), 2 * np.linalg.norm(before, axis=1), rtol=0.15, atol=2)


def test_it_is_moved_zoomed_and_chosen_from_by_keyboard_alone(world: World, look: Look) -> None:
    shown = open_map(world, look)
    page = shown.page
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('role')") == "application":
            break
    expect(shown.frame).to_be_focused()
    # Up to a node, by steps of 60 pixels, again and again from further in.
    row = shown.alone(24)[0]
    middle = np.array([shown.box["width"], shown.box["height"]]) / 2
    away = np.array(shown.place(row)) - middle
    for closer in (True, True, True, False):
        steps = np.round(away / 60).astype(int)
        for keys, count in zip((("ArrowRight", "ArrowLeft"), ("ArrowDown", "ArrowUp")), steps, strict=True):
            for _ in range(abs(count)):
                page.keyboard.press(keys[0] if count > 0 else keys[1])
        away = away - 60 * steps
        if closer:
            page.keyboard.press("+")
            away = 1.35 * away
    node = str(FIRST + row)
    status = page.locator(".map [role=status]")
    expect(status).to_have_text(f"{node}Label {world.labels[row] or 'unknown'}Degree {world.degrees[row]}")
    page.keyboard.press("Enter")
    assert rows_of_table(page) == as_shown(world.neighbors(world.whole, node))
    page.keyboard.press("Escape")
    expect(page.locator(".node-neighbors")).to_have_count(0)
    page.keyboard.press("Enter")
    expect(page.locator(".node-neighbors")).to_be_visible()
    # On to the neighbours: to the list of who is not connected, and to its first.
    for wanted in ("Not connected yet", world.neighbors(world.whole, node, connected=True)[0]["id"]):
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent").strip() == wanted:
                break
        page.keyboard.press("Enter")
        if wanted == "Not connected yet":
            expect(page.get_by_role("region", name=f"share no edge with {node}")).to_be_visible()
    assert chosen(page) == wanted
    page.keyboard.press("Shift+Tab")
    shown.frame.focus()
    page.keyboard.press("0")
    page.keyboard.press("-")
    page.keyboard.press("=")
    page.keyboard.press("0")
    page.keyboard.press("Escape")
    assert np.abs(shown.colors([row]) - np.array(palette(False)[2])).max() > 20


def test_a_class_that_is_not_ticked_is_neither_drawn_nor_found(world: World, look: Look) -> None:
    shown = open_map(world, look)
    page = shown.page
    rows = [row for row in shown.alone(12) if world.labels[row] == "kind 0"]
    others = [row for row in shown.alone(12) if world.labels[row] == "kind 1"]
    ground = palette(False)[2]
    page.get_by_role("checkbox", name="kind 0").uncheck()
    page.wait_for_timeout(100)
    assert (shown.colors(rows) == ground).all()
    assert (shown.colors(others) != ground).any(axis=1).all()
    page.mouse.move(*shown.at(others[0]))
    expect(page.locator(".map-tip")).to_be_visible()
    page.mouse.move(*shown.at(rows[0]))
    expect(page.locator(".map-tip")).to_have_count(0)
    page.get_by_role("button", name="None").click()
    page.wait_for_timeout(100)
    assert (shown.colors(others) == ground).all()
    page.get_by_role("button", name="All", exact=True).click()
    page.wait_for_timeout(100)
    assert (shown.colors(rows + others) != ground).any(axis=1).all()


@pytest.mark.parametrize("width", [1280, 390])
def test_every_class_of_the_legend_is_in_sight(world: World, look: Look, width: int) -> None:
    shown = open_map(world, look, width=width)
    page = shown.page
    # Nothing is cut off, however many classes there are: of many more, too.
    page.evaluate("""() => { const legend = document.querySelector(".legend");
        const first = legend.querySelector(".legend-class");
        for (let more = 0; more < 24; more += 1) first.after(first.cloneNode(true)); }""")
    cut = """(legend) => { const frame = legend.getBoundingClientRect();
        return [...legend.querySelectorAll("label, button")].filter((part) => {
            const box = part.getBoundingClientRect();
            return box.top < frame.top || box.bottom > frame.bottom || box.right > frame.right || box.height < 22;
        }).map((part) => part.textContent); }"""
    assert page.locator(".legend").locator("label, button").count() == CLASSES + 1 + 2 + 24
    assert page.locator(".legend").evaluate(cut) == []
    assert not overflows(page)


def test_a_node_is_found_by_its_id_or_said_not_to_be(world: World, look: Look) -> None:
    shown = open_map(world, look)
    page = shown.page
    field = page.get_by_label("Node id")
    field.fill(f" {FIRST + 7} ")
    field.press("Enter")
    assert rows_of_table(page) == as_shown(world.neighbors(world.whole, str(FIRST + 7)))
    expect(page.locator(".map-chosen")).to_have_attribute("data-point", "7")
    # It is brought into view, close up with its neighbours.
    page.get_by_role("button", name="Show the chosen node and its neighbours").click()
    page.wait_for_timeout(300)
    for mark in page.locator(".map-mark, .map-chosen").all():
        left, top = (float(at) for at in re.findall(r"[-\d.]+", mark.get_attribute("transform") or ""))
        assert 0 < left < shown.box["width"]
        assert 0 < top < shown.box["height"]
    field.fill("nobody")
    page.get_by_role("button", name="Find the node").click()
    expect(page.get_by_role("alert")).to_have_text("There is no node nobody in this set.")
    assert page.get_by_text("Not among the points shown").count() == 0
    expect(page.locator(".map-mark")).to_have_count(0)


def test_of_more_nodes_a_sample_is_shown_and_said_to_be_one(world: World, look: Look) -> None:
    whole = look(world.server, f"#/embeddings/{world.whole}")
    expect(whole.get_by_text(f"All {NODES} nodes are shown, placed by PCA.")).to_be_visible()
    rows = np.load(world.folder / "data" / "sample" / "projection" / "rows.npy")
    absent = next(row for row in range(NODES) if row not in rows)
    page = look(world.server, f"#/embeddings/{world.sample}?node={FIRST + absent}")
    expect(page.get_by_text(f"A sample of 50 of {NODES} nodes is shown, placed by PCA.")).to_be_visible()
    expect(page.get_by_text("Not among the points shown")).to_be_visible()
    found = world.neighbors(world.sample, str(FIRST + absent))
    assert rows_of_table(page) == as_shown(found)
    on_map = [one["id"] for one in found if row_of(one["id"]) in rows]
    expect(page.locator(".map-mark")).to_have_count(len(on_map))
    assert page.get_by_text("not shown").count() == len(found) - len(on_map)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_is_accessible_with_a_node_chosen_and_without(world: World, look: Look, width: int, dark: bool) -> None:
    page = open_map(world, look, width=width, dark=dark).page
    assert faults(page) == []
    assert not overflows(page)
    page.get_by_label("Node id").fill(str(FIRST))
    page.get_by_label("Node id").press("Enter")
    expect(page.locator(".map-mark")).to_have_count(10)
    assert faults(page) == []
    assert not overflows(page)


def test_all_points_are_drawn_once_it_is_still(world: World, look: Look) -> None:
    shown = open_map(world, look)
    for _ in range(20):
        shown.page.mouse.move(shown.box["x"] + 100, shown.box["y"] + 100)
        shown.page.mouse.wheel(0, -20)
    expect(shown.frame).to_have_attribute("data-drawn", str(NODES))
