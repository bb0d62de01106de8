"""The form of a new job: made from the schema, told what it would take, and sent; real stages do the work."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from page_harness import Look, faults
from playwright.sync_api import Page, expect
from service_harness import Server, settings_in, wait_end

NODES = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("submit")
    settings = settings_in(folder)
    random = np.random.default_rng(0)
    ends = random.integers(0, NODES, (2, 3 * NODES))
    pq.write_table(pa.table({"source": ends[0], "target": ends[1]}), folder / "data" / "edges.parquet")
    nodes = {
        "id": np.arange(NODES),
        "x": random.random(NODES),
        "y_": random.random(NODES),
        "label": ends[0, :NODES] % 3,
        **{f"f{number}": random.random(NODES) for number in range(4)},
    }
    pq.write_table(pa.table(nodes), folder / "data" / "nodes.parquet")
    with Server(settings, real=True) as server:
        yield server


def test_tables_are_registered_and_ingested_by_keyboard_alone(server: Server, look: Look) -> None:
    page = look(server, "#/graphs")
    press, write = page.keyboard.press, page.keyboard.type
    page.get_by_role("button", name="Register graph").press("Enter")
    expect(page.get_by_label("From")).to_be_focused()
    for text in ("tables", "edges.parquet", "nodes.parquet"):
        press("Tab")
        write(text)
    press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("tables")
    page.get_by_role("link", name="an ingest job").press("Enter")
    expect(page.get_by_label("Kind").first).to_have_value("ingest")
    expect(page.locator(".estimate")).to_contain_text("MiB")
    page.get_by_role("button", name="Submit ingest").press("Enter")
    expect(page.locator(".view-title .status")).to_have_text("succeeded", timeout=60_000)
    expect(page.get_by_role("link", name="tables")).to_have_css("text-decoration-line", "underline")
    page.get_by_role("link", name="tables").press("Enter")
    expect(page.locator(".tile").filter(has_text="Nodes").first).to_contain_text(str(NODES))
    expect(page.get_by_role("table", name="Nodes by their number of neighbours")).to_be_visible()
    expect(page.locator(".described").filter(has_text="columns")).to_have_text(re.compile("columns 6: x, y_, … f3"))


def test_the_form_has_every_kind_and_setting_of_the_schema(server: Server, look: Look) -> None:
    page = look(server, "#/jobs/new")
    document = server.client.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    body = document["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    kinds = body["discriminator"]["mapping"]
    kind_field = page.get_by_label("Kind").first
    expect(kind_field).to_have_value("pipeline")
    assert sorted(kind_field.locator("option").all_inner_texts()) == sorted(kinds)

    def leaves(schema: dict) -> int:
        found = 0
        for part in schema.get("properties", {}).values():
            inner = [part, *part.get("anyOf", [])]
            refs = [schemas[one["$ref"].split("/")[-1]] for one in inner if "$ref" in one]
            found += leaves(refs[0]) if refs else "const" not in part
        return found

    for kind, ref in kinds.items():
        kind_field.select_option(kind)
        expect(page.get_by_role("button", name=f"Submit {kind}")).to_be_visible()
        assert page.locator("[data-pointer]").count() == leaves(schemas[ref.split("/")[-1]]), kind


def test_what_it_would_take_and_what_is_wrong_is_told_before_it_is_sent(server: Server, look: Look) -> None:
    client = server.client
    ready = next(graph for graph in client.get("/v1/graphs").json()["items"] if graph["state"] == "ready")
    page = look(server, "#/jobs/new")
    expect(page.get_by_text("Choose a graph to see what it would take.")).to_be_visible()
    page.get_by_role("button", name="Submit pipeline").click()
    expect(page.get_by_label("Graph").first).to_be_focused()
    page.get_by_label("Graph").first.select_option(ready["id"])
    expect(page.locator(".estimate")).to_contain_text("preprocess → train → evaluate → index")
    # A preset's settings stand where nothing is entered.
    page.get_by_label("Preset").select_option("cora")
    page.get_by_label("Find a setting").fill("epochs")
    expect(page.get_by_label("Epochs", exact=True)).to_be_visible()
    resolved = client.post(
        "/v1/jobs?dry_run=true", json={"kind": "pipeline", "graph": ready["id"], "train": {"preset": "cora"}}
    ).json()["spec"]["train"]["run"]["epochs"]
    expect(page.get_by_label("Epochs", exact=True)).to_have_attribute("placeholder", str(resolved))
    page.get_by_label("Epochs", exact=True).fill("-1")
    expect(page.locator(".field-error")).to_contain_text("greater than or equal to")
    assert faults(page) == []
    page.get_by_label("Epochs", exact=True).fill("many")
    expect(page.locator(".field-error")).to_contain_text("a whole number")
    page.get_by_label("Epochs", exact=True).fill("3")
    expect(page.locator(".field-error")).to_have_count(0)
    expect(page.locator(".estimate")).to_be_visible()
    assert client.get("/v1/jobs?kind=pipeline").json()["items"] == []


def test_what_is_needed_is_told_at_its_field_once_a_submit_is_tried(server: Server, look: Look) -> None:
    ready = next(graph for graph in server.client.get("/v1/graphs").json()["items"] if graph["state"] == "ready")

    def needed(page: Page, pointers: list[str]) -> None:
        """These fields are at fault, the first has the focus, and each is described by what is wrong with it."""
        expect(page.locator("[aria-invalid=true]")).to_have_count(len(pointers))
        for pointer in pointers:
            field = page.locator(f"[data-pointer='{pointer}']")
            expect(field).to_be_visible()
            expect(field).to_have_attribute("aria-invalid", "true")
            expect(field).to_have_accessible_description("This is needed, and nothing is given.")
        if pointers:
            expect(page.locator(f"[data-pointer='{pointers[0]}']")).to_be_focused()
        assert faults(page) == []

    page = look(server, "#/jobs/new?kind=embed")
    expect(page.get_by_role("button", name="Submit embed")).to_be_visible()
    needed(page, [])
    page.get_by_label("Find a setting").fill("priority")
    page.get_by_role("button", name="Submit embed").press("Enter")
    needed(page, ["/graph", "/embedding"])
    page.get_by_label("Graph").first.select_option(ready["id"])
    page.get_by_role("button", name="Submit embed").press("Enter")
    needed(page, ["/embedding"])
    # Another kind of job has not been tried yet.
    page.get_by_label("Kind").first.select_option("index")
    needed(page, [])
    # A part that may be left out needs all that it needs once something of it is given.
    page = look(server, f"#/jobs/new?kind=preprocess&graph={ready['id']}")
    page.get_by_label("Find a setting").fill("tolerance")
    page.get_by_label("Tolerance").fill("0.1")
    page.get_by_role("button", name="Submit preprocess").press("Enter")
    needed(page, ["/previous/graph"])
    page = look(server, "#/graphs?new=1")
    for source, pointers in {
        "tables": ["/source/edges"],
        "pyg": ["/source/name", "/source/root"],
        "bundle": ["/bundle"],
        "npz": ["/source/path"],
    }.items():
        page.get_by_label("From").select_option(source)
        needed(page, [])
        page.get_by_role("button", name="Register", exact=True).press("Enter")
        needed(page, pointers)
    page.keyboard.type("graph.npz")
    expect(page.locator("[aria-invalid=true]")).to_have_count(0)
    # Several relations are in the place of one edge table.
    page.get_by_label("From").select_option("tables")
    page.get_by_role("button", name="Register", exact=True).press("Enter")
    page.get_by_text("More", exact=True).click()
    page.get_by_label("Relations").fill("knows=knows.parquet")
    needed(page, [])


def test_settings_that_are_called_as_what_is_sought_come_first(server: Server, look: Look) -> None:
    page = look(server, "#/jobs/new")

    def found(sought: str) -> list[str]:
        page.get_by_label("Find a setting").fill(sought)
        panel = page.get_by_role("region", name="Settings")
        expect(panel.locator("details")).to_have_count(0)
        return [field.get_attribute("data-pointer") for field in panel.locator("[data-pointer]").all()]

    epochs = found("epochs")
    assert epochs[0] == "/train/run/epochs"
    assert len(epochs) > 1
    layers = found("LAY")
    assert [pointer.split("/")[-1] for pointer in layers[:1]] == ["layers"]
    names = [pointer.split("/")[-1].startswith("lay") for pointer in layers]
    assert names == sorted(names, reverse=True)
    assert found("top_k") == found("top k")
    # As documents and the command line write them.
    for name in ("run.max_steps", "optimizer.lr", "encoder.self_loop_weight", "run.stop.rule"):
        pointer = "/train/" + name.replace(".", "/")
        for written in (name, f"train.{name}", pointer, f" {pointer[1:].replace('/', ' ').upper()} "):
            assert found(written)[:1] == [pointer], written
    assert "/train/run/max_steps" in found("run.max")
    page.get_by_label("Find a setting").fill("epochs")
    expect(page.get_by_label("Epochs", exact=True)).to_have_accessible_description(re.compile("^train / run "))
    assert faults(page) == []
    assert found("no such thing") == []
    expect(page.get_by_text("No setting of this kind of job is called or described so.")).to_be_visible()


def test_a_preset_says_what_it_costs(server: Server, look: Look) -> None:
    page = look(server, "#/jobs/new")
    presets = server.client.get("/v1/info").json()["presets"]
    options = page.get_by_label("Preset").locator("option")
    expect(options).to_have_count(1 + len(presets))
    assert options.all_inner_texts()[1:] == [
        f"{name} · {preset['epochs']:,} epochs" for name, preset in presets.items()
    ]
    expect(page.get_by_label("Preset")).to_have_accessible_description(
        re.compile("In the list, each stands with the epochs")
    )


@pytest.mark.slow
def test_a_pipeline_runs_from_the_form_to_a_set(server: Server, look: Look) -> None:
    ready = next(graph for graph in server.client.get("/v1/graphs").json()["items"] if graph["state"] == "ready")
    page = look(server, f"#/jobs/new?graph={ready['id']}")
    page.get_by_label("Alias").fill("live")
    page.get_by_label("Find a setting").fill("epochs")
    page.get_by_label("Epochs", exact=True).fill("5")
    page.get_by_role("button", name="Submit pipeline").click()
    expect(page.locator(".view-title .status")).to_have_text("running")
    job = page.url.split("/")[-1]
    assert wait_end(server.client, job)["status"] == "succeeded"
    expect(page.locator(".view-title .status")).to_have_text("succeeded")
    made = server.client.get(f"/v1/jobs/{job}").json()["embedding"]
    expect(page.get_by_role("link", name="See the map")).to_have_attribute("href", f"#/embeddings/{made}")
    expect(page.get_by_role("img", name="loss over")).to_be_visible()
    page.get_by_role("link", name="Run again").click()
    page.get_by_label("Find a setting").fill("epochs")
    expect(page.get_by_label("Epochs", exact=True)).to_have_value("5")
