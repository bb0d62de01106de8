"""Embedding sets on the page: the list, one set's figures and quality, and what is missing said to be."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest
from map_world import FIRST, NODES, REPORT, World, map_world
from page_harness import Look, faults, overflows
from playwright.sync_api import expect


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with map_world(tmp_path_factory.mktemp("sets")) as made:
        yield made


def test_the_list_tells_size_index_recall_accuracy_health_and_aliases(world: World, look: Look) -> None:
    page = look(world.server, "#/embeddings")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)
    whole = rows.filter(has_text="whole").locator("td").all_inner_texts()
    recall = world.server.client.get(f"/v1/embeddings/{world.whole}").json()["index"]["recall"]["value"]
    assert whole[:-1] == [
        f"whole emb_…{world.whole[-6:]}",
        "live",
        str(NODES),
        "16",
        "hnsw",
        f"{recall:.4g}",
        "93.2 %",
        "Sound",
    ]
    bare = rows.filter(has_text="bare").locator("td").all_inner_texts()
    assert bare[:-1] == [f"bare emb_…{world.bare[-6:]}", "", str(NODES), "16", "none", "–", "–", "Not evaluated"]
    rows.filter(has_text="whole").get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("whole")
    expect(page.locator(".tiles")).to_contain_text("11.25 of 16")


def test_a_set_is_come_to_by_its_alias(world: World, look: Look) -> None:
    page = look(world.server, "#/embeddings/live?node=1003")
    expect(page.get_by_role("heading", level=1)).to_have_text("whole")
    expect(page.locator(".map-chosen")).to_have_attribute("data-point", "3")


def test_a_set_come_to_by_its_alias_stays_there_when_a_node_is_let_go(world: World, look: Look) -> None:
    """The map, where it is looked at, and the focus with it: another address would be another view."""
    page = look(world.server, "#/embeddings/live?node=1003")
    expect(page.locator(".map-chosen")).to_have_attribute("data-point", "3")
    drawn = page.locator(".map-frame")
    drawn.evaluate("(map) => { map.theSame = true; }")
    drawn.focus()
    page.keyboard.press("Escape")
    expect(page.locator(".map-chosen")).to_have_count(0)
    assert page.url.endswith("#/embeddings/live")
    assert page.evaluate("document.activeElement.theSame === true")


def test_quality_tells_the_figures_of_the_report(world: World, look: Look) -> None:
    page = look(world.server, f"#/embeddings/{world.whole}")
    panel = page.get_by_role("region", name="Quality")
    expect(panel.get_by_text("A note of the evaluation.")).to_be_visible()
    tables = {
        table.locator("caption").inner_text(): [
            [cell.strip() for cell in row.locator("th, td").all_inner_texts()] for row in table.locator("tr").all()
        ]
        for table in panel.locator("table").all()
    }
    assert tables == {
        "Test accuracy of a linear probe": [
            ["RGRL", "", "93.2 % ± 0.4"],
            ["Raw features", "", "87.1 % ± 1.0"],
            ["Random encoder", "", "–"],
        ],
        "Test AUC of held-out edges, random negatives": [["RGRL", "", "98.1 %"], ["Common neighbours", "", "87.1 %"]],
        "Test AUC of held-out edges, hard negatives": [["RGRL", "", "–"], ["Common neighbours", "", "66.0 %"]],
        "Error rate by degree": [["2–3 234 nodes", "", "12.5 %"], ["32–63 1 node", "", "50.0 %"]],
    }
    # Of one node only: muted, and said to say little.
    assert panel.locator("tr.few").all_inner_texts() == [panel.locator("tr").last.inner_text()]
    expect(panel.get_by_text("What is pale is of fewer than 10 nodes: so few say little.")).to_be_visible()
    # Bars are as long as what they stand for.
    bar, track = (panel.locator(path).first.bounding_box() for path in (".bars .own .bars-bar div", ".bars .bars-bar"))
    assert bar is not None
    assert track is not None
    assert bar["width"] / track["width"] == pytest.approx(REPORT["probe"]["trained"]["last"]["test_mean"], abs=0.02)
    facts = dict(
        zip(panel.locator("dt").all_inner_texts(), panel.locator("dd").all_inner_texts(), strict=True),
    )
    recall = world.server.client.get(f"/v1/embeddings/{world.whole}").json()["index"]["recall"]
    assert facts == {
        "Effective rank": "11.25 of 16",
        "Mean cosine of two nodes": "0.0312",
        "Spread of a dimension": "0.2, where even is 0.25",
        "Idle dimensions": "12.5 %",
    }
    expect(page.get_by_role("region", name="About this set")).to_contain_text(
        f"recall@{recall['k']} {recall['value']:.4g}"
    )
    expect(panel.get_by_role("img", name="Loss from 9.5 in epoch 1 to 4.25 in epoch 3")).to_be_visible()


def score(percent: float, spread: float) -> dict[str, float]:
    return {"test_mean": percent / 100, "test_std": spread / 100}


@pytest.mark.parametrize(
    ("baselines", "words"),
    [
        ({"raw_features": (87.1, 1.0)}, "RGRL is better than raw features by 6.1 points."),
        (
            {"raw_features": (87.1, 1.0), "ppr_smoothed": (91.2, 0.4), "random_encoder": (93.0, 0.1)},
            "The random encoder is as good as RGRL within the spread of the splits; "
            "RGRL is better than raw features and PPR-smoothed features by at least 2.0 points.",
        ),
        (
            {"raw_features": (92.1, 1.2), "ppr_smoothed": (93.5, 0.1)},
            "Raw features and PPR-smoothed features are as good as RGRL within the spread of the splits.",
        ),
        (
            {"ppr_smoothed": (94.2, 0.2), "random_encoder": (70.0, 9.0)},
            "PPR-smoothed features are better than RGRL by 1.0 point; "
            "RGRL is better than the random encoder by 23.2 points.",
        ),
        # Told as it is or less, never more.
        ({"trained": (93.2, 0.0), "raw_features": (93.0339, 0.0)}, "RGRL is better than raw features by 0.1 points."),
        ({"trained": (93.2, 0.0), "raw_features": (93.3661, 0.0)}, "Raw features are better than RGRL by 0.1 points."),
        (
            {"trained": (99.9478, 0.0), "random_encoder": (99.8812, 0.0)},
            "The random encoder is as good as RGRL within 0.1 points or the spread of the splits.",
        ),
        (
            {"trained": (93.2, 0.0), "raw_features": (87.1, 0.0), "random_encoder": (93.2999, 0.0)},
            "The random encoder is as good as RGRL within 0.1 points or the spread of the splits; "
            "RGRL is better than raw features by 6.1 points.",
        ),
        ({"raw_features": None}, None),
    ],
)
def test_a_report_comes_to_one_sentence(
    world: World, look: Look, baselines: dict[str, tuple[float, float] | None], words: str | None
) -> None:
    scores = {name: None if of is None else score(*of) for name, of in baselines.items()}
    own = scores.pop("trained", score(93.2, 0.4))
    probe = REPORT["probe"] | {"trained": {"last": own}, "baselines": scores}
    page = look(world.server)
    page.route("**/report", lambda route: route.fulfill(json=REPORT | {"probe": probe}))
    page.goto(f"/#/embeddings/{world.whole}")
    panel = page.get_by_role("region", name="Quality")
    expect(panel.get_by_text("A note of the evaluation.")).to_be_visible()
    assert panel.locator(".quality-verdict").all_inner_texts() == ([] if words is None else [words])


@pytest.mark.parametrize("width", [1280, 390])
def test_a_label_of_any_length_is_clipped_and_whole_on_demand(world: World, look: Look, width: int) -> None:
    label = "long" * 2500
    graph, ref = world.labelled(f"labelled{width}", [label, label, "short", None])
    page = look(world.server, f"#/embeddings/{ref}?node=0", width=width)
    expect(page.locator(".node-neighbors tbody tr")).to_have_count(3)
    for place in (".legend-name [title]", ".node-neighbors [title]"):
        expect(page.locator(place)).to_have_attribute("title", label)
        assert page.locator(place).inner_text() == label[:60] + "…"
    assert not overflows(page)
    assert faults(page) == []
    page.locator(".node-card summary").press("Enter")
    expect(page.locator(".node-card details")).to_contain_text(label)
    assert not overflows(page)
    assert faults(page) == []
    page.goto(f"/#/graphs/{graph}")
    expect(page.get_by_text("mean 1.5, largest 2")).to_be_visible()
    assert not overflows(page)
    world.forget(graph, ref)


def test_collapsed_embeddings_are_said_to_be(world: World, look: Look) -> None:
    path = world.folder / "data" / "fallen"
    shutil.copytree(world.folder / "data" / "bare", path)
    report = REPORT | {"collapse": REPORT["collapse"] | {"collapsed": True}, "probe": None, "links": None}
    report |= {"degree_buckets": [], "losses": [], "notes": [], "summary": {"collapsed": True, "effective_rank": 1.0}}
    (path / "report.json").write_text(json.dumps(report))
    graph = world.server.client.get(f"/v1/embeddings/{world.whole}").json()["graph"]
    made = world.server.client.post("/v1/embeddings", json={"path": "fallen", "graph": graph}).json()["id"]
    page = look(world.server, f"#/embeddings/{made}")
    expect(page.locator(".tiles .soundness")).to_have_text("Collapsed")
    expect(page.get_by_role("region", name="Quality").get_by_role("paragraph").first).to_contain_text("mean_cosine")
    world.server.client.delete(f"/v1/embeddings/{made}")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_set_without_map_and_report_says_what_is_missing(world: World, look: Look, width: int, dark: bool) -> None:
    page = look(world.server, f"#/embeddings/{world.bare}?node={FIRST}", width=width, dark=dark)
    expect(page.get_by_text("No map of this set")).to_be_visible()
    expect(page.get_by_text("rgrl index", exact=False).first).to_be_visible()
    expect(page.get_by_text("Not evaluated", exact=True).last).to_be_visible()
    # Neighbours need no map.
    expect(page.locator(".node-neighbors tbody tr")).to_have_count(10)
    expect(page.get_by_text("By exact search, the set has no index yet.")).to_be_visible()
    assert faults(page) == []
    assert not overflows(page)


def test_a_set_that_there_is_not_is_said_to_be_none(world: World, look: Look) -> None:
    page = look(world.server, "#/embeddings/emb_none")
    expect(page.get_by_role("alert")).to_be_visible()


def test_without_its_graph_a_map_has_no_labels_and_says_why(world: World, look: Look) -> None:
    bundle = world.folder / "data" / "bundle"
    bundle.rename(bundle.with_name("away"))
    try:
        page = look(world.server, f"#/embeddings/{world.whole}?node={FIRST}")
        expect(page.get_by_text("No labels, degrees or edges here")).to_be_visible()
        assert page.get_by_label("Colour by").locator("option").all_inner_texts() == ["Nothing"]
        expect(page.locator(".node-neighbors tbody tr").first).to_contain_text("unknown")
        page.get_by_role("button", name="Not connected yet").click()
        expect(page.get_by_role("alert")).to_be_visible()
    finally:
        bundle.with_name("away").rename(bundle)
