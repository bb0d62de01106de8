"""Jobs, graphs and aliases on the page, where there are some."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from embedding_fixtures import write_bundle
from page_harness import Look, faults, overflows
from playwright.sync_api import Route, expect
from service_harness import Server, add_graph, job_of, settings_in, submit, wait_end, wait_for

MARKUP = "<img src=x onerror=alert(1)>"
LONG = "photo with more self-loops and a rate that falls by the cosine, second tries"
FAULT = {"code": "input_invalid", "message": "a feature is not finite", "where": "row 17", "remedy": "fill the row"}


@dataclass(frozen=True)
class Filled:
    server: Server
    folder: Path
    graph: str
    registered: str
    done: str
    other: str
    failed: str
    gates: list[Path] = field(default_factory=list)

    def start(self, name: str, **what: Any) -> tuple[str, Path]:
        """A job whose training waits for the file that is answered with it."""
        gate = self.folder / name
        self.gates.append(gate)
        return submit(self.server.client, self.graph, ("train", {"gate": str(gate), **what}), name=name), gate


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    folder = tmp_path_factory.mktemp("page")
    with Server(settings_in(folder)) as server:
        client = server.client
        # A star: one node of degree 9, nine of degree 1, two alone.
        write_bundle(folder / "data" / "star", 12, [(0, arm) for arm in range(1, 10)])
        graph = client.post("/v1/graphs", json={"bundle": "star", "name": MARKUP}).json()["id"]
        steps = {"steps": 30, "make": "embeddings"}
        done = submit(client, graph, ("preprocess", {}), ("train", steps), name=MARKUP)
        other = submit(client, graph, ("train", {**steps, "steps": 20}), name="other")
        failed = submit(client, graph, ("preprocess", {"exit": 3, "error": FAULT}), name="broken", kind="preprocess")
        for job in (done, other, failed):
            wait_end(client, job)
        yield Filled(server, folder, graph, add_graph(client, folder), done, other, failed)


@pytest.fixture(autouse=True)
def opened(filled: Filled) -> Iterator[None]:
    """No job waits longer than the test that started it, however that ends: the next ones' would wait behind it."""
    yield
    for gate in filled.gates:
        gate.touch()
    filled.gates.clear()


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_every_view_is_accessible_and_holds_no_markup_of_data(
    filled: Filled, look: Look, width: int, dark: bool
) -> None:
    page = look(filled.server, width=width, dark=dark)
    page.on("dialog", lambda _: pytest.fail("markup of data ran"))
    for place, shown in {
        "": MARKUP,
        "jobs": MARKUP,
        f"jobs/{filled.done}": MARKUP,
        f"jobs/{filled.failed}": "A feature is not finite.",
        f"jobs/new?graph={filled.graph}": "about",
        f"jobs/new?from={filled.done}": "about",
        f"jobs/compare?id={filled.done}&id={filled.other}": MARKUP,
        "graphs": MARKUP,
        f"graphs/{filled.graph}": "mean 1.5, largest 9",
        f"graphs/{filled.registered}": "Its tables are not read yet.",
        "aliases": "No aliases yet",
    }.items():
        page.goto(f"/#/{place}")
        expect(page.get_by_role("main").get_by_text(shown).first).to_be_visible()
        assert faults(page) == [], place
        assert not overflows(page), place
        assert page.locator("main img").count() == 0


def test_a_job_is_followed_to_its_end_through_a_restart_of_the_server(filled: Filled, look: Look) -> None:
    job, gate = filled.start("live", steps=7, health=[["stalled", "loss is flat"]], make="embeddings")
    page = look(filled.server, f"#/jobs/{job}")
    expect(page.get_by_text("train 0 of 2 rows").first).to_be_visible()
    expect(page.get_by_role("img", name="loss over 7 steps")).to_be_visible()
    expect(page.get_by_role("region", name="End of the log")).to_contain_text("train begins")
    expect(page.get_by_text("loss is flat").first).to_be_visible()
    filled.server.kill()
    expect(page.get_by_text("The server does not answer")).to_be_visible()
    filled.server.start()
    gate.touch()
    expect(page.locator(".view-title .status")).to_have_text("succeeded")
    expect(page.get_by_role("region", name="Events, latest first").get_by_text("Train is done.")).to_have_count(1)
    expect(page.get_by_role("link", name="emb_")).to_be_visible()
    # One without an index has no map.
    made = job_of(filled.server.client, job)["embedding"]
    page.get_by_role("link", name="See the embedding set").click()
    assert page.url.endswith(f"#/embeddings/{made}")


def test_a_job_is_cancelled_and_deleted_by_keyboard(filled: Filled, look: Look) -> None:
    job, _ = filled.start("unwanted")
    wait_for(lambda: job_of(filled.server.client, job)["status"] == "running")
    page = look(filled.server, f"#/jobs/{job}")
    page.get_by_role("button", name="Cancel").focus()
    page.keyboard.press("Enter")
    asked = page.get_by_role("dialog", name="Cancel unwanted?")
    expect(asked).to_be_visible()
    expect(asked.get_by_role("button", name="Keep")).to_be_focused()
    assert job_of(filled.server.client, job)["status"] == "running"
    asked.get_by_role("button", name="Cancel job").press("Enter")
    expect(page.locator(".view-title .status")).to_have_text("cancelled")
    expect(page.get_by_role("button", name="Delete")).to_be_focused()
    expect(page.locator(".phases .status").last).to_have_attribute("data-status", "cancelled")
    page.get_by_role("button", name="Delete").press("Enter")
    dialog = page.get_by_role("dialog", name="Delete unwanted?")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("button", name="Delete")).to_be_focused()
    page.keyboard.press("Enter")
    dialog.get_by_role("button", name="Delete job").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
    expect(page.get_by_role("link", name="unwanted")).to_have_count(0)
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    assert filled.server.client.get(f"/v1/jobs/{job}").status_code == 404


def test_events_are_told_in_plain_words_and_an_empty_log_is_said_to_be(filled: Filled, look: Look) -> None:
    client, gate = filled.server.client, filled.folder / "told"
    filled.gates.append(gate)
    # What programs compare (and where things lie) is not told.
    summary = {
        "schema_version": 1,
        "kind": "knn_index",
        "fingerprint": "6a8a7f",
        "path": "/home/bundle",
        "index": "hnsw",
        "recall": {"k": 10, "value": 0.98765432, "queries": 1000},
        "counts": {"nodes": 2708, "edges": 5278},
        "labels": None,
        "training": {"epochs": 1200, "steps": 1200, "seconds": 60.641, "stopped_early": False, "identity": "588f82"},
        "test_accuracy": {"rgrl": 0.83125, "raw_features": None},
        "build_seconds": 0.031,
        "projection": {"fingerprint": "6a8a7f", "counts": {"nodes": 2708, "points": 1}},
    }
    (filled.folder / "summary").write_text(json.dumps(summary))
    warnings = [["tied", "two rows end in a tie"]]
    warned = {"silent": True, "warnings": warnings, "summary": str(filled.folder / "summary")}
    whole = submit(client, filled.graph, ("preprocess", warned))
    error = {key: FAULT[key] for key in ("code", "message", "remedy")}
    stalled = {"silent": True, "health": [["stalled", "loss is flat"]], "gate": str(gate), "exit": 3, "error": error}
    broken = submit(client, filled.graph, ("train", stalled))

    def told(job: str, last: str) -> list[list[str]]:
        """Stages and messages, latest first."""
        page.goto(f"/#/jobs/{job}")
        events = page.get_by_role("region", name="Events, latest first")
        expect(events.get_by_text(last)).to_be_visible()
        assert faults(page) == []
        return [row.locator("td").all_inner_texts()[1:] for row in events.locator("tbody tr").all()]

    page = look(filled.server)
    assert told(whole, "It succeeded.") == [
        ["preprocess", "It succeeded."],
        [
            "preprocess",
            "Preprocess is done. HNSW, recall@10 0.9877, 2,708 nodes, 5,278 edges, 1,200 epochs, 1,200 steps, "
            "trained in 60.64 s, test accuracy rgrl 0.8313, built in 0.031 s, 1 point of the map.",
        ],
        ["preprocess", "Warning: Two rows end in a tie."],
        ["preprocess", "Preprocess began."],
        ["", "It was started."],
        ["", "It was queued."],
    ]
    log = page.get_by_role("region", name="End of the log")
    expect(log).to_have_text("Nothing was logged.")
    assert told(broken, "Stalled: Loss is flat.")[0] == ["train", "Stalled: Loss is flat."]
    expect(log).to_have_text("Nothing was logged yet.")
    gate.touch()
    assert told(broken, "It failed.")[:2] == [
        ["train", "It failed."],
        ["train", "A feature is not finite. Fill the row."],
    ]
    expect(log).not_to_have_text("Nothing was logged yet.")


def test_that_kernels_are_compiled_is_said_and_no_speed_of_0(filled: Filled, look: Look) -> None:
    job, gate = filled.start("compiles", warnings=[["compiling", "compiling kernels"]])
    page = look(filled.server, f"#/jobs/{job}")
    words = "train: kernels are being compiled, once for this version"
    expect(page.locator(".now").get_by_text(words)).to_be_visible()
    expect(page.locator(".now")).not_to_contain_text("a second")
    for place in ("#/", "#/jobs"):
        page.goto(f"/{place}")
        expect(page.get_by_text(words)).to_be_visible()
    gate.touch()
    wait_end(filled.server.client, job)
    # Nothing is compiled, and nothing has moved yet.
    job, gate = filled.start("still")
    page.goto(f"/#/jobs/{job}")
    expect(page.locator(".now").get_by_text("train 0 of 2 rows")).to_be_visible()
    expect(page.locator(".now")).not_to_contain_text("a second")
    gate.touch()
    wait_end(filled.server.client, job)


def test_a_failure_says_where_and_what_to_do(filled: Filled, look: Look) -> None:
    page = look(filled.server, f"#/jobs/{filled.failed}")
    why = page.get_by_role("region", name="Why it failed")
    for words in ("A feature is not finite.", "Fill the row.", "row 17", "input_invalid"):
        expect(why).to_contain_text(words)
    # Only training has figures.
    expect(page.get_by_role("region", name="Figures")).to_have_count(0)
    expect(page.get_by_role("link", name="Compare")).to_have_count(0)


def test_jobs_are_filtered_and_compared(filled: Filled, look: Look) -> None:
    page = look(filled.server, "#/jobs")
    page.get_by_label("Status").select_option("failed")
    page.get_by_label("Kind").select_option("preprocess")
    expect(page.locator("tbody tr")).to_have_count(1)
    # The address says what is shown.
    page.reload()
    expect(page.get_by_role("link", name="broken")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_label("Compare broken")).to_have_count(0)
    page.get_by_label("Kind").select_option("ingest")
    expect(page.get_by_text("No job is of this status and kind")).to_be_visible()
    page.get_by_role("button", name="Show all").click()
    page.get_by_label(f"Compare {MARKUP}").check()
    page.get_by_label("Compare other").check()
    page.get_by_role("link", name="Compare 2 jobs").click()
    expect(page.get_by_role("img", name=f"loss of {MARKUP}, other")).to_be_visible()
    jobs = page.get_by_role("table", name="Compared jobs")
    expect(jobs.get_by_role("row", name="other")).to_contain_text("0.05")
    expect(page.get_by_text("No setting differs.")).to_be_visible()
    page.get_by_role("button", name=f"Leave out {MARKUP}").click()
    expect(page.get_by_role("img", name="loss of other")).to_be_visible()


def test_rows_are_walked_by_j_and_k_and_long_lists_by_pages(filled: Filled, look: Look) -> None:
    for number in range(55):
        answer = filled.server.client.post("/v1/graphs", json={"bundle": "star", "name": f"copy {number}"})
        assert answer.status_code == 201
    page = look(filled.server, "#/graphs")
    expect(page.locator("tbody tr")).to_have_count(50)
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="copy 54")).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="copy 53")).to_be_focused()
    page.get_by_role("button", name="Show more").press("Enter")
    expect(page.locator("tbody tr")).to_have_count(57)
    expect(page.get_by_role("button", name="Show more")).to_have_count(0)
    expect(page.locator("tbody tr:nth-child(51) a").first).to_be_focused()
    # A list that is asked for again takes no focus.
    page.goto("/#/jobs")
    expect(page.locator("tbody tr").first).to_be_visible()
    page.evaluate("document.activeElement.blur()")
    page.wait_for_timeout(2500)
    assert page.evaluate("document.activeElement.tagName") == "BODY"


def test_a_graph_is_registered_looked_into_and_deleted(filled: Filled, look: Look) -> None:
    page = look(filled.server, "#/graphs")
    page.get_by_role("button", name="Register graph").click()
    dialog = page.get_by_role("dialog", name="Register a graph")
    dialog.get_by_label("From").select_option("bundle")
    dialog.get_by_label("Bundle").fill("nowhere")
    page.keyboard.press("Enter")
    expect(dialog.get_by_text("there is nothing at this path")).to_be_visible()
    assert faults(page) == []
    dialog.get_by_label("Bundle").fill("star")
    dialog.get_by_label("Name").fill("mine")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("mine")
    degrees = page.get_by_role("table", name="Nodes by their number of neighbours").get_by_role("row")
    expect(degrees.filter(has_text="8–9")).to_contain_text("1")
    page.get_by_label("Id of a node").fill("0")
    page.keyboard.press("Enter")
    expect(page.locator(".node")).to_contain_text("9 nodes, among them")
    page.get_by_label("Id of a node").fill(MARKUP)
    page.keyboard.press("Enter")
    expect(page.locator(".node").get_by_role("alert")).to_contain_text("no such node")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete graph").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Graphs")
    expect(page.get_by_role("link", name="mine")).to_have_count(0)
    expect(page.get_by_role("heading", level=1)).to_be_focused()


def test_an_alias_is_made_switched_and_not_overwritten(filled: Filled, look: Look) -> None:
    client = filled.server.client
    sets = [job_of(client, job)["embedding"] for job in (filled.done, filled.other)]
    page = look(filled.server, "#/aliases")
    page.get_by_role("button", name="New alias").click()
    expect(page.get_by_label("Name")).to_be_focused()
    page.get_by_label("Name").fill("live")
    page.get_by_label("Embedding set").select_option(sets[0])
    page.get_by_role("button", name="Make alias").click()
    expect(page.get_by_role("row", name="live")).to_be_visible()
    page.get_by_role("button", name="Switch live").click()
    expect(page.get_by_label("Embedding set")).to_be_focused()
    # Someone else was quicker.
    assert client.put("/v1/aliases/live", json={"embedding": sets[1]}).status_code == 200
    page.get_by_label("Embedding set").select_option(sets[0])
    page.get_by_role("button", name="Switch", exact=True).click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
    assert client.get("/v1/aliases/live").json()["embedding"] == sets[1]
    page.keyboard.press("Escape")
    # What the other did is seen by now.
    expect(page.get_by_role("row", name="live").get_by_role("cell", name="2", exact=True)).to_be_visible()
    page.get_by_role("button", name="Delete live").click()
    page.get_by_role("button", name="Delete alias").click()
    expect(page.get_by_text("No aliases yet")).to_be_visible()


def test_the_focus_goes_on_from_a_row_that_has_gone(filled: Filled, look: Look) -> None:
    client = filled.server.client
    made = job_of(client, filled.done)["embedding"]
    for name in ("one", "three", "two"):
        client.put(f"/v1/aliases/{name}", json={"embedding": made})
    page = look(filled.server, "#/aliases")
    heading = page.get_by_role("heading", level=1)
    for name, goes_to in (("one", page.get_by_role("link", name="three")), ("two", heading), ("three", heading)):
        page.get_by_role("button", name=f"Delete {name}").press("Enter")
        page.get_by_role("button", name="Delete alias").press("Enter")
        expect(page.get_by_role("link", name=name, exact=True)).to_have_count(0)
        expect(goes_to).to_be_focused()
    page.goto(f"/#/jobs/compare?id={filled.done}&id={filled.other}")
    page.get_by_role("button", name=f"Leave out {MARKUP}").press("Enter")
    expect(page.get_by_role("row", name="other").get_by_role("link")).to_be_focused()


@pytest.mark.parametrize("width", [1280, 390])
def test_compared_jobs_tell_how_good_they_are_and_what_settings_differ(filled: Filled, look: Look, width: int) -> None:
    client = filled.server.client
    good = filled.folder / "good"
    good.write_text(json.dumps({"effective_rank": 31.25, "test_accuracy": {"raw_features": 0.5, "rgrl": 0.9312}}))
    make = ("train", {"make": "embeddings"})
    long = {"run": {"epochs": 7}, "encoder": {"layers": [64, 32]}}
    whole = submit(client, filled.graph, make, ("evaluate", {"summary": str(good)}), name=LONG, train=long)
    bare = submit(client, filled.graph, make, name="bare", train={"run": {"epochs": 9}})
    made = wait_end(client, whole)["embedding"]
    # It has no stage but one: those of the others are no differences.
    index = client.post("/v1/jobs", json={"kind": "index", "embedding": made, "name": "index"}).json()["id"]
    for job in (bare, index):
        wait_end(client, job)
    page = look(filled.server, f"#/jobs/compare?id={whole}&id={bare}&id={index}", width=width)
    table = page.get_by_role("table", name="Results, and the settings that differ")
    expect(table.get_by_role("columnheader").last).to_have_text("index")
    rows = [row.locator("th, td").all_inner_texts() for row in table.locator("tbody tr").all()]
    assert rows == [
        ["Test accuracy", "93.1 %", "–", "93.1 %"],
        ["Effective rank", "31.25", "–", "31.25"],
        ["train.encoder.layers", "64, 32", "256, 128", "–"],
        ["train.run.epochs", "7", "9", "–"],
    ]
    assert faults(page) == []
    assert not overflows(page)
    # A set that was deleted takes no job with it.
    assert client.delete(f"/v1/embeddings/{made}").status_code == 204
    expect(table.get_by_role("row")).to_have_count(3)
    expect(table.get_by_role("columnheader", name=LONG)).to_be_visible()


def test_on_a_phone_no_long_name_makes_a_panel_wider(filled: Filled, look: Look) -> None:
    client = filled.server.client
    done = submit(client, filled.graph, ("train", {"steps": 2, "make": "embeddings"}), name=LONG)
    made = wait_end(client, done)["embedding"]
    job, _ = filled.start("wide")
    for other in (job, submit(client, filled.graph, ("train", {}), name=LONG)):
        assert client.patch(f"/v1/jobs/{other}", json={"name": LONG}).status_code == 200
    page = look(filled.server, width=390)
    for place in (
        "",
        "jobs",
        f"jobs/{done}",
        "jobs/new?kind=index",
        f"jobs/compare?id={done}&id={job}",
        f"graphs/{filled.graph}",
        "embeddings",
        f"embeddings/{made}",
    ):
        page.goto(f"/#/{place}")
        expect(page.get_by_role("main").get_by_text(LONG).first).to_be_attached()
        wide = "panels => panels.filter(one => one.scrollWidth > one.clientWidth).map(one => one.innerText)"
        assert page.locator(".panel, .table-frame").evaluate_all(wide) == [], place
        assert not overflows(page), place


def test_a_queued_job_calls_what_it_waits_for_by_its_name(filled: Filled, look: Look) -> None:
    client = filled.server.client
    first, gate = filled.start("first one")
    second = submit(client, filled.graph, ("train", {}), name="second")
    page = look(filled.server, f"#/jobs/{second}")
    expect(page.locator(".now")).to_have_text("Waits: first one works on its graph.")
    page.goto("/#/")
    queued = page.get_by_role("region", name="Queued").get_by_role("listitem")
    expect(queued).to_contain_text("first one works on its graph")
    queued.get_by_role("link", name="first one").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("first one")
    assert page.url.endswith(first)
    gate.touch()
    wait_end(client, second)


def test_a_job_links_to_its_alias_once_it_has_succeeded(filled: Filled, look: Look) -> None:
    client, gate = filled.server.client, filled.folder / "aliased"
    filled.gates.append(gate)
    job = submit(client, filled.graph, ("train", {"make": "embeddings", "gate": str(gate)}), alias="later")
    page = look(filled.server, f"#/jobs/{job}")
    about = page.get_by_role("region", name="About")
    expect(about).to_contain_text("later, when it has succeeded")
    expect(about.get_by_role("link", name="later")).to_have_count(0)
    gate.touch()
    about.get_by_role("link", name="later").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("later")
    assert client.delete("/v1/aliases/later").status_code == 204
    broken = submit(client, filled.graph, ("train", {"exit": 3, "error": FAULT}), alias="later")
    wait_end(client, broken)
    page.goto(f"/#/jobs/{broken}")
    expect(about).to_contain_text("later, which it left as it was")
    expect(about.get_by_role("link", name="later")).to_have_count(0)


def test_on_a_phone_no_short_name_is_broken_into_letters(filled: Filled, look: Look) -> None:
    client = filled.server.client
    client.put("/v1/aliases/digits", json={"embedding": job_of(client, filled.done)["embedding"]})
    page = look(filled.server, "#/aliases", width=390)
    named = page.get_by_role("link", name="digits", exact=True)
    assert named.bounding_box()["height"] < 30
    page.goto(f"/#/jobs/compare?id={filled.other}")
    named = page.get_by_role("row").get_by_role("link", name="other")
    assert named.bounding_box()["height"] < 30
    assert named.locator("i").bounding_box()["width"] == 14, "the colour of its curve"
    client.delete("/v1/aliases/digits")


def test_a_set_that_its_job_still_works_on_is_not_offered_to_an_alias(filled: Filled, look: Look) -> None:
    client = filled.server.client
    gate = filled.folder / "indexing"
    filled.gates.append(gate)
    stages = ("train", {"make": "embeddings"}), ("index", {"gate": str(gate)})
    job = submit(client, filled.graph, *stages, name="unfinished")
    unfinished = wait_for(lambda: job_of(client, job)["embedding"], "for the set")
    answer = client.get(f"/v1/embeddings/{unfinished}").json()
    assert (answer["job_name"], answer["job_status"], answer["graph_name"]) == ("unfinished", "running", MARKUP)
    page = look(filled.server, "#/aliases")
    page.get_by_role("button", name="New alias").click()
    field = page.get_by_label("Embedding set")
    done = job_of(client, filled.done)["embedding"]
    expect(field.locator("option", has_text=done[-6:])).to_have_count(1)
    expect(field.locator("option", has_text=unfinished[-6:])).to_have_count(0)
    page.keyboard.press("Escape")
    gate.touch()
    wait_end(client, job)
    page.get_by_role("button", name="New alias").click()
    expect(field.locator("option", has_text=unfinished[-6:])).to_have_count(1)


def test_what_is_deleted_while_it_is_looked_at_is_said_to_be_gone(filled: Filled, look: Look) -> None:
    client = filled.server.client
    job = submit(client, filled.graph, ("train", {"make": "embeddings"}), name="passing")
    made = wait_end(client, job)["embedding"]
    graph = client.post("/v1/graphs", json={"bundle": "star", "name": "passing graph"}).json()["id"]
    page = look(filled.server)
    page.clock.install()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for path, title, what, back in (
        (f"embeddings/{made}", "passing", "embedding set", "Embeddings"),
        (f"jobs/{job}", "passing", "job", "Jobs"),
        (f"graphs/{graph}", "passing graph", "graph", "Graphs"),
    ):
        page.goto(f"/#/{path}")
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
        assert client.delete(f"/v1/{path}").status_code == 204
        page.clock.fast_forward(10_000)
        expect(page.get_by_role("alert")).to_contain_text(f"This {what} is gone")
        assert faults(page) == []
        asked.clear()
        page.clock.fast_forward(60_000)
        page.evaluate("fetch('/livez')")
        assert [url for url in asked if path in url] == []
        page.get_by_role("link", name=f"Go back to {back.lower()}").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(back)
        # Nor is it shown as it was to who comes back to it.
        page.go_back()
        expect(page.get_by_role("alert")).to_contain_text(f"This {what} is gone")


def test_a_compared_job_that_is_deleted_leaves_the_others(filled: Filled, look: Look) -> None:
    client = filled.server.client
    job = submit(client, filled.graph, ("train", {"steps": 3}), name="passing")
    wait_end(client, job)
    page = look(filled.server)
    page.clock.install()
    page.goto(f"/#/jobs/compare?id={job}&id={filled.other}")
    expect(page.get_by_role("img", name="loss of passing, other")).to_be_visible()
    assert client.delete(f"/v1/jobs/{job}").status_code == 204
    page.clock.fast_forward(5_000)
    expect(page.get_by_text(f"job_…{job[-6:]} is gone: deleted, or never there.")).to_be_visible()
    expect(page.get_by_role("img", name="loss of other")).to_be_visible()
    assert faults(page) == []
    page.get_by_role("link", name="Compare the others alone").click()
    expect(page.get_by_text("is gone")).to_have_count(0)
    expect(page.get_by_role("img", name="loss of other")).to_be_visible()


def test_sets_of_every_page_of_the_list_are_known_by_name(filled: Filled, look: Look) -> None:
    client = filled.server.client
    oldest = client.get("/v1/embeddings?limit=200").json()["items"][-1]
    assert client.put("/v1/aliases/old", json={"embedding": oldest["id"]}).status_code == 200
    page = look(filled.server)
    # As if there were more sets than a page holds.
    page.route("**/v1/*?*limit=200*", lambda route: route.continue_(url=route.request.url.replace("=200", "=1")))
    page.goto("/#/aliases")
    expect(page.get_by_role("cell", name=f"{oldest['job_name']} emb_…{oldest['id'][-6:]}")).to_be_visible()
    page.get_by_role("button", name="Switch old").click()
    expect(page.get_by_label("Embedding set").locator(f"option[value='{oldest['id']}']")).to_have_count(1)
    page.goto("/#/jobs/new?kind=index")
    expect(page.locator(f"[data-pointer='/embedding'] option[value='{oldest['id']}']")).to_have_count(1)
    page.goto(f"/#/graphs/{filled.graph}")
    expect(page.get_by_role("link", name=f"emb_…{oldest['id'][-6:]}")).to_be_visible()
    assert client.delete("/v1/aliases/old").status_code == 204


WRITES = re.compile("^(New job|Run again|Delete|Register graph|New alias|Switch kept|Delete kept)$")


@pytest.mark.parametrize(("width", "scope"), [(1280, "read"), (390, "read"), (1280, "write"), (1280, "admin")])
def test_a_key_is_shown_what_it_can_do_and_why_not_more(filled: Filled, look: Look, width: int, scope: str) -> None:
    client = filled.server.client
    made = job_of(client, filled.done)["embedding"]
    assert client.put("/v1/aliases/kept", json={"embedding": made}).status_code == 200
    root = client.post("/v1/keys", json={"name": "root", "scopes": ["admin"]}).json()
    headers = {"Authorization": f"Bearer {root['token']}"}
    try:
        mine = client.post("/v1/keys", json={"name": "mine", "scopes": [scope]}, headers=headers).json()
        page = look(filled.server, width=width, key=mine["token"])
        places = {
            "": "Overview",
            "jobs": "Jobs",
            "jobs/new": "New job",
            f"jobs/{filled.done}": MARKUP,
            "graphs": "Graphs",
            "graphs?new=1": "Graphs",
            f"graphs/{filled.graph}": MARKUP,
            "aliases": "Aliases",
        }
        for place, title in places.items():
            page.goto(f"/#/{place}")
            expect(page.get_by_role("heading", level=1)).to_have_text(title)
            reason = page.get_by_text("Your key mine has scope read; whatever changes something needs scope write.")
            expect(reason).to_have_count(1 if scope == "read" else 0)
            writing = page.get_by_role("button", name=WRITES).or_(page.get_by_role("link", name=WRITES))
            if scope == "read":
                expect(writing).to_have_count(0)
                expect(page.get_by_role("dialog")).to_have_count(0)
                assert faults(page) == [], place
                assert not overflows(page), place
            elif place != "jobs/new":
                expect(writing.first).to_be_visible()
        page.goto("/#/keys")
        reason = f"Your key mine has scope {scope}; keys are listed, made and revoked by keys of scope admin."
        expect(page.get_by_text(reason)).to_have_count(0 if scope == "admin" else 1)
        expect(page.get_by_role("button", name="New key")).to_have_count(1 if scope == "admin" else 0)
        expect(page.get_by_role("alert")).to_have_count(0)
        assert faults(page) == []
    finally:
        for key in client.get("/v1/keys", headers=headers).json()["items"]:
            if key["id"] != root["id"] and not key["revoked_at"]:
                client.delete(f"/v1/keys/{key['id']}", headers=headers)
        client.delete(f"/v1/keys/{root['id']}", headers=headers)
        client.delete("/v1/aliases/kept")


def test_a_key_is_given_once_though_the_one_before_it_is_refused_later(filled: Filled, look: Look) -> None:
    """Whatever is asked with the key before, an event stream too; while a key is wanted, nothing is asked."""
    client = filled.server.client
    root = client.post("/v1/keys", json={"name": "root", "scopes": ["admin"]}).json()
    try:
        page = look(filled.server, f"#/jobs/{filled.done}", key="wrong")
        wanted = page.get_by_role("dialog", name="API key")
        expect(wanted).to_contain_text("does not know the API key")
        asked: list[Route] = []

        def hold(route: Route) -> None:
            asked.append(route)
            if route.request.headers["authorization"] != "Bearer also-wrong":
                route.continue_()

        page.wait_for_load_state("networkidle")
        page.route("**/v1/**", hold)
        page.wait_for_timeout(3500)
        assert asked == [], "it is signed out"
        for key in ("also-wrong", root["token"]):
            page.get_by_label("Key", exact=True).fill(key)
            page.keyboard.press("Enter")
            expect(wanted).to_have_count(0)
            if key == "also-wrong":
                page.wait_for_timeout(1500)
                late = list(asked)
                assert any(route.request.url.endswith("/events") for route in late)
                late.pop(0).continue_()
                expect(wanted).to_be_visible()
        for route in late:
            route.continue_()
        expect(page.get_by_role("region", name="Events, latest first").get_by_text("It succeeded.")).to_be_visible()
        page.wait_for_timeout(500)
        expect(wanted).to_have_count(0)
    finally:
        client.delete(f"/v1/keys/{root['id']}", headers={"Authorization": f"Bearer {root['token']}"})


def test_a_set_is_called_by_its_job_or_its_graph_beside_its_id(filled: Filled, look: Look) -> None:
    client = filled.server.client
    unnamed = submit(client, filled.graph, ("train", {"make": "embeddings"}))
    wait_end(client, unnamed)
    for job, name in ((filled.other, "other"), (unnamed, MARKUP)):
        made = job_of(client, job)["embedding"]
        short = f"emb_…{made[-6:]}"
        page = look(filled.server, "#/embeddings")
        row = page.get_by_role("row").filter(has_text=short)
        expect(row.get_by_role("cell").first).to_have_text(f"{name} {short}")
        row.get_by_role("link").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(name)
        assert client.put("/v1/aliases/named", json={"embedding": made}).status_code == 200
        page = look(filled.server, "#/aliases")
        expect(page.get_by_role("cell", name=f"{name} {short}")).to_be_visible()
        page.get_by_role("button", name="Switch named").click()
        option = page.get_by_label("Embedding set").locator("option", has_text=short)
        expect(option).to_have_text(f"{name} · named · {short}")
        assert client.delete("/v1/aliases/named").status_code == 204
