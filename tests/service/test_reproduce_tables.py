"""Tables of the paper: plans, rows of made-up results, reports and figures, and a harness whose stages are made up."""

from __future__ import annotations

import builtins
import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from preprocessing.errors import Interrupted, ResourceError, UsageError
from service.jobs.stages import StageOutcome
from service.reproduce import harness, report
from service.reproduce.best import BEST
from service.reproduce.datasets import DATASETS
from service.reproduce.harness import Done, run_all
from service.reproduce.measures import LINKS
from service.reproduce.methods import METHODS
from service.reproduce.plan import Request, Run, plan
from service.reproduce.plots import Line, charts, draw
from service.reproduce.published import PUBLISHED
from service.reproduce.reproduce import reproduce
from service.reproduce.summary import findings, rows_of
from service.reproduce.tables import TABLES
from trainer.settings import TrainSettings, overlay


def request_for(table: str, out: Path = Path("out"), **given: Any) -> Request:
    return Request(table=table, data=out / "data", out=out, **{"methods": ["rgrl"], "seeds": 1, **given})


def training(**given: Any) -> dict[str, Any]:
    losses = [{"epoch": e, "seconds": s} for e, s in ((1, 9.0), (2, 9.5), (3, 10.0), (4, 13.0))]
    return {"epochs": 4, "seconds": 13.0, "peak_bytes": 2**30, "parameters": 1234, "losses": losses, **given}


def score(mean: float, deviation: float = 0.01, epoch: int = 4) -> dict[str, Any]:
    return {"epoch": epoch, "test_mean": mean, "test_std": deviation, "val_mean": 0.5, "val_std": 0.0}


def probed(best: float, *, baselines: dict[str, float] | None = None, errors: list[float] | None = None) -> Any:
    """A report of nodes whose best epoch has this accuracy, the last one 0.1 less."""
    buckets = [
        {"min_degree": low, "max_degree": high, "nodes": 5, "error_rate": rate}
        for (low, high), rate in zip([(1, 1), (2, 3)], errors or [], strict=False)
    ]
    told = {"best_validation": score(best), "last": score(best - 0.1), "label_free": None}
    return {
        "probe": {"trained": told, "baselines": {name: score(value) for name, value in (baselines or {}).items()}},
        "degree_buckets": buckets,
    }


def done(run: Run, report_: Any, **given: Any) -> Done:
    return Done(run, {"report": report_, "training": training(**given), "settings": run.settings})


def test_figures_are_those_of_the_paper() -> None:
    """Spot checks of every table's corners, and what must be missing."""
    accuracy = PUBLISHED["accuracy"]
    assert accuracy["wikics"]["raw_features"] == (71.98, 0.0)
    assert accuracy["physics"]["rgrl"] == (95.46, 0.10)
    assert "grace" not in accuracy["physics"]
    assert accuracy["pubmed"]["bgrl"] == (86.16, 0.19)
    assert accuracy["corafull"]["rgrl"] == (64.62, 0.39)
    assert PUBLISHED["random_auc"]["computers"]["rgrl"] == (0.974, None)
    assert PUBLISHED["hard_ap"]["physics"]["rgrl"] == (0.919, None)
    assert PUBLISHED["random_ap"]["physics"].keys() == {"cca_ssg", "bgrl", "rgrl"}
    assert PUBLISHED["macro_f1"]["imdb"]["rgrl"] == (0.653, None)


def test_a_plan_is_every_row_once_and_then_the_next_seed() -> None:
    runs = plan(request_for("ablation", seeds=2, datasets=["cora"], overrides={"optimizer": {"lr": 0.5}}))
    titles = ["RGRL", "Global only", "Local only", "Uniform anchors"]
    assert [(run.seed, run.variant.title) for run in runs] == [(seed, title) for seed in (0, 1) for title in titles]
    full, global_only, local_only, uniform = (run.settings for run in runs[:4])
    # Cora's published settings, 20 snapshots of them.
    assert full["encoder"]["layers"] == [256, 128]
    assert (full["run"]["epochs"], full["run"]["snapshot_every"], full["run"]["seed"]) == (400, 20, 0)
    assert (full["anchors"]["weights"], full["loss"]["local_weight"]) == ({"alpha": 0.9, "beta": 0.1}, 1)
    assert global_only["loss"]["local_weight"] == local_only["loss"]["global_weight"] == 0
    assert uniform["anchors"]["weights"] == {"alpha": 1, "beta": 0}
    assert {run.settings["optimizer"]["lr"] for run in runs} == {0.5}
    assert len({run.name for run in runs}) == 8


def test_tables_share_what_they_train_alike_and_measure_apart() -> None:
    given: dict[str, Any] = {"datasets": ["photo"]}
    nodes, ablation = plan(request_for("nodes", **given))[0], plan(request_for("ablation", **given))[0]
    assert nodes.name == ablation.name
    assert nodes.result != ablation.result
    assert (nodes.evaluate or {})["baselines"] is True
    assert (ablation.evaluate or {})["baselines"] is False
    assert plan(request_for("nodes", seeds=2, **given))[1].evaluate == ablation.evaluate
    short = plan(request_for("nodes", epochs=7, **given))[0]
    assert short.name != nodes.name
    assert (short.settings["run"]["epochs"], short.settings["run"]["snapshot_every"]) == (7, 1)


def test_grids_hold_the_published_value_and_zeroed_shares_reach_the_features() -> None:
    runs = plan(request_for("sensitivity", datasets=["physics"]))
    values = {run.variant.place for run in runs if run.variant.group == "G"}
    assert values == {128, 256, 512, 1024, 2048}
    assert len(runs) == 20
    runs = plan(request_for("robustness", datasets=["cs"]))
    assert [run.settings["features"]["zeroed"] for run in runs] == [0, 0.2, 0.4, 0.6, 0.8]
    assert {run.settings["features"]["transform"] for run in runs} == {"binarize"}


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        ({"optimizer": {"lrr": 1}}, "optimizer.lrr"),
        ({"optimizer": {"lr": "banana"}}, "optimizer.lr"),
        ({"run": {"epochs": 0}}, "run.epochs"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_settings_that_no_run_can_have_are_refused_before_anything_is_written(
    overrides: dict[str, Any], named: str, tmp_path: Path, made_up: Stages
) -> None:
    request = request_for("nodes", tmp_path / "out", datasets=["cora"], overrides=overrides)
    with pytest.raises(UsageError, match=named):
        reproduce(request, lambda _: None)
    assert made_up.calls == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "given",
    [
        {"overrides": {"run": 5}},
        {"overrides": {"optimizer": "adam"}},
        {"overrides": {"run": {"seed": 7}}},
        {"overrides": {"run": {"snapshot_every": 3}}},
        {"overrides": {"run": {"epochs": 3}}, "epochs": 2},
        {"overrides": {"objective": "bgrl"}},
        {"overrides": {"preset": "photo"}},
        {"datasets": []},
        {"methods": []},
        {"table": "ablation", "methods": ["bgrl"]},
        {"table": "sensitivity", "methods": ["rgrl", "bgrl"]},
        {"table": "ablation", "overrides": {"loss": {"local_weight": 1.0}}},
        {"table": "ablation", "overrides": {"anchors": {"weights": {"alpha": 1.0}}}},
        {"table": "sensitivity", "overrides": {"anchors": {"num_global": 64}}},
        {"table": "sensitivity", "overrides": {"loss": {"tau_target_local": 1.0}}},
        {"table": "robustness", "overrides": {"features": {"zeroed": 0.5}}},
        {"table": "degree", "overrides": {"anchors": {"weights": {"beta": 0.0}}}},
        {"table": "cost", "overrides": {"run": {"epochs": 2}}},
        {"table": "degree", "best": True},
        {"datasets": ["cora", "photo", "cora"]},
        {"methods": ["rgrl", "rgrl"]},
    ],
    ids=str,
)
def test_what_would_be_lost_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        request_for(**{"table": "nodes", **given})


def test_what_a_table_varies_differs_between_all_its_variants() -> None:
    """``varied`` is all that tells a table's own variants apart, so refusing it keeps every one itself."""
    for name, table in TABLES.items():
        for variant in table.variants("photo", ["rgrl"]) if table.varied else []:
            paths = [f"{section}.{key}" for section, values in variant.settings.items() for key in values]
            assert set(paths) <= set(table.varied), name


@pytest.mark.parametrize("table", BEST)
def test_best_settings_lie_between_the_preset_and_what_is_asked_for(table: str) -> None:
    request = request_for(
        table, methods=["rgrl", "cca_ssg"], best=True, epochs=60, overrides={"loss": {"tau_online": 0.2}}
    )
    published = plan(replace(request, best=False))
    for run, plain in zip(plan(request), published, strict=True):
        found = overlay(BEST[table].get(run.dataset, {}), run.variant.settings)
        expected = overlay(overlay(plain.settings, found), {"run": {"epochs": 60}})
        assert run.settings == TrainSettings.model_validate(expected).model_dump(mode="json")
        assert (run.settings == plain.settings) == (found == run.variant.settings)


def test_what_best_settings_change_is_told() -> None:
    request = request_for("links", datasets=["photo", "cora"], best=True)
    made = report.document(request, [], [])
    assert made["best"]
    assert made["title"].endswith(", by the best settings found")
    assert "optimizer.schedule: cosine for Photo, as --best has it" in made["deviations"]
    told = [text for text in made["deviations"] if "Cora" in text]
    assert told == ["--best has nothing for Cora: published settings"]


def test_best_settings_are_told_of_the_runs_that_have_them() -> None:
    """Neither of a method that has its own, nor where something else was asked for."""
    request = request_for(
        "nodes",
        datasets=["cora"],
        methods=["rgrl", "bgrl", "grace"],
        best=True,
        overrides={"batch": {"size": 2000}, "encoder": {"layers": [16]}},
    )
    assert report.document(request, [], [])["deviations"] == [
        "batch.size: 2000 for every run",
        "encoder.layers: [16] for every run",
        "batch.mode: mini for Cora, as --best has it",
        "run.epochs: 130 for Cora (RGRL, BGRL), as --best has it",
    ]
    told = report.document(replace(request, epochs=6), [], [])["deviations"]
    assert [text for text in told if "epochs" in text] == ["run.epochs: 6 for every run"]


def test_what_contradicts_a_best_setting_says_whose_it_is() -> None:
    request = request_for("nodes", datasets=["cora", "photo"], best=True, epochs=3)
    with pytest.raises(UsageError, match=r"--best of photo: .*warmup_epochs is 5"):
        plan(request)


def test_reports_with_and_without_best_stand_beside_each_other(tmp_path: Path, made_up: Stages) -> None:
    with_data(tmp_path, "citeseer")
    for best in (True, False):
        reproduce(request_for("nodes", tmp_path, datasets=["citeseer"], best=best), lambda _: None)
    titles = [(tmp_path / f"{name}.md").read_text().splitlines()[0] for name in ("nodes", "nodes-best")]
    assert titles[1] == titles[0] + ", by the best settings found"
    assert made_up.names.count("train") == 1


def test_a_table_without_rgrl_has_none_of_its_variants() -> None:
    (run,) = plan(request_for("degree", datasets=["photo"], methods=["bgrl"]))
    assert run.variant.title == "BGRL"


def test_a_folder_of_data_that_is_not_there_is_refused(tmp_path: Path, made_up: Stages) -> None:
    with pytest.raises(UsageError, match="folder of data sets does not exist"):
        reproduce(request_for("nodes", tmp_path / "out", datasets=["cora"]), lambda _: None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "source", [{"kind": "npz", "path": "/other/cora.npz"}, {"kind": "pyg", "name": "Planetoid:Cora", "root": "/x"}]
)
def test_a_folder_with_graphs_of_other_data_is_refused(tmp_path: Path, made_up: Stages, source: dict[str, str]) -> None:
    request = request_for("nodes", tmp_path / "out", datasets=["cora"])
    made, file = request.out / "graphs" / "cora" / "manifest.json", request.data / "cora.npz"
    for folder in (made.parent, request.data):
        folder.mkdir(parents=True)
    file.touch()
    made.write_text(json.dumps({"settings": {"source": source}}))
    with pytest.raises(UsageError, match="made of other data") as refused:
        reproduce(request, lambda _: None)
    assert (source.get("path") or source["name"]) in str(refused.value.expected)
    assert made_up.names == []
    # The same file by another spelling, or none at all, is no other data.
    made.write_text(json.dumps({"settings": {"source": {"kind": "npz", "path": f"{request.data}/../data/cora.npz"}}}))
    reproduce(request, lambda _: None)
    made.write_text(json.dumps({"settings": {"source": source}}))
    file.unlink()
    reproduce(request, lambda _: None)


def test_epochs_may_be_a_setting() -> None:
    (run,) = plan(request_for("nodes", datasets=["cora"], overrides={"run": {"epochs": 40}}))
    assert (run.settings["run"]["epochs"], run.settings["run"]["snapshot_every"]) == (40, 2)


@pytest.mark.parametrize(
    "given",
    [{"table": "none"}, {"datasets": ["cora", "none"]}, {"methods": ["none"]}],
    ids=lambda given: next(iter(given)),
)
def test_what_does_not_exist_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="there is no such") as error:
        request_for(**{"table": "nodes", **given})
    assert "none" in str(error.value)


def test_rows_are_means_over_seeds_beside_the_published() -> None:
    request = request_for("nodes", datasets=["cora"], methods=["rgrl", "bgrl"], seeds=2)
    # The rival under test is one that this version knows.
    rgrl, rival = plan(request_for("degree", datasets=["cora"]))[:2]
    runs = [
        done(rgrl, probed(0.84, baselines={"raw_features": 0.6, "random_encoder": 0.9})),
        done(rival, probed(0.85)),
        done(rgrl, probed(0.82), peak_bytes=2**31),
        Done(rival, missing="it broke", failed=True),
    ]
    rows = rows_of(request.definition, runs)
    assert [row.variant.title for row in rows] == ["RGRL", "RGRL, uniform anchors", "Raw features", "Random encoder"]
    first, second, raw, _ = rows
    cell = first.cells["accuracy"]
    assert cell.published == (83.98, 0.78)
    best = cell.ours["best_validation"]
    assert (best.mean, best.over_splits, best.over_seeds) == pytest.approx((83, 1, 1))
    assert cell.ours["last"].mean == pytest.approx(73)
    assert "label_free" not in cell.ours
    assert cell.below_published  # 83 < 83.98 − 0.78
    assert (first.seeds, first.epochs, first.parameters, first.peak_bytes) == (2, 4, 1234, 2**31)
    # The spans of its epochs are 0.5, 0.5 and 3 s.
    assert first.epoch_ms == pytest.approx(500)
    assert (second.seeds, second.missing, second.failed) == (1, "it broke", True)
    assert second.cells["accuracy"].ours["best_validation"].over_seeds is None
    assert second.cells["accuracy"].published is None
    assert raw.cells["accuracy"].ours["last"].mean == pytest.approx(60)

    assert findings(request.definition, rows) == [
        "Cora: RGRL is below the published band: 83.00 against 83.98.",
        "Cora: RGRL does not beat RGRL, uniform anchors: 83.00 against 85.00.",
        "Cora: RGRL does not beat Random encoder: 83.00 against 90.00.",
    ]
    text = "\n".join(report._markdown(request, rows, report.document(request, rows, [])))
    assert (
        "| Cora | RGRL | Accuracy | 83.98 (0.78) | 83.00 (1.00; 1.00) | 73.00 (1.00; 1.00) |  "
        "| -0.98 ▼ | 2 | 4 | 13.0 |"
    ) in text
    assert "* Cora, RGRL, uniform anchors: it broke" in text
    assert "* Cora: RGRL does not beat Random encoder" in text


def test_inside_the_band_and_ahead_nothing_is_found() -> None:
    request = request_for("nodes", datasets=["cora"])
    rows = rows_of(request.definition, [done(plan(request)[0], probed(0.8330, baselines={"raw_features": 0.6}))])
    assert findings(request.definition, rows) == []
    rows = rows_of(request.definition, [done(plan(request)[0], probed(0.8330, baselines={"raw_features": 0.84}))])
    assert findings(request.definition, rows) == [
        "Cora: RGRL does not beat Raw features: 83.30 against 84.00, within their deviation."
    ]
    photo = request_for("nodes", datasets=["photo"])
    rows = rows_of(photo.definition, [done(plan(photo)[0], probed(0.9350))])
    assert findings(photo.definition, rows) == [
        "Photo: RGRL is below the highest published linear probe, of a method with Half-Hop: 93.50 against 94.21."
    ]


def test_link_scores_are_read_by_kind_of_negatives() -> None:
    inner = {"epoch": 3, "val_auc": 0.5, "val_ap": 0.5, "test_auc": 0.97, "test_ap": 0.96}
    told = {"links": {"trained": {"best_validation": {"random": inner, "hard": None}}, "baselines": {"x": None}}}
    auc, ap, hard, _ = LINKS
    assert [measure.name for measure in LINKS] == ["random_auc", "random_ap", "hard_auc", "hard_ap"]
    scores = [measure.of_run(told, "best_validation") for measure in (auc, ap)]
    assert [(one.mean, one.deviation) for one in scores if one is not None] == [(0.97, None), (0.96, None)]
    assert hard.of_run(told, "best_validation") is None
    assert auc.of_run(told, "last") is None
    assert auc.of_baselines(told) == {}


def test_charts_of_an_axis_and_of_degrees(tmp_path: Path) -> None:
    request = request_for("robustness", tmp_path, datasets=["cs"], seeds=2)
    runs = plan(request)
    results = [
        done(run, probed(0.9 - place / 10 - run.seed / 100, baselines={"raw_features": 0.5}))
        for run in runs
        if isinstance(place := run.variant.place, float)
    ]
    (chart,) = charts(request, rows_of(request.definition, results))
    assert (chart.name, chart.panels[0].title, chart.unit) == ("robustness", "CS", "Accuracy, %")
    ours, raw = chart.panels[0].lines
    assert ours.x == [0.0, 0.2, 0.4, 0.6, 0.8]
    assert ours.y == pytest.approx([89.5, 87.5, 85.5, 83.5, 81.5])
    assert ours.deviation == pytest.approx([0.5] * 5)
    assert (raw.title, raw.y) == ("Raw features", pytest.approx([50] * 5))

    request = request_for("degree", tmp_path, datasets=["photo"], seeds=2)
    results = [done(run, probed(0.9, errors=[0.4 + run.seed / 5, 0.1])) for run in plan(request)]
    (chart,) = charts(request, rows_of(request.definition, results))
    assert chart.panels[0].lines[0] == Line("RGRL", ["1", "2–3"], [pytest.approx(0.5), pytest.approx(0.1)], [])
    assert len(chart.panels[0].lines) == 2
    rates = {"RGRL": [0.4, 0.1], "RGRL, uniform anchors": [0.5, 0.05]}
    request = replace(request, seeds=1)
    results = [done(run, probed(0.94, errors=rates[run.variant.title])) for run in plan(request)]
    told = "Photo: RGRL errs more often than RGRL, uniform anchors on nodes of degree 2–3."
    assert told in findings(request.definition, rows_of(request.definition, results))

    pytest.importorskip("matplotlib")
    (tmp_path / "again").mkdir()
    first, again = draw(chart, tmp_path), draw(chart, tmp_path / "again")
    assert [file.name for file in first] == ["degree.png", "degree.svg"]
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in again]
    assert b"share misclassified" in first[1].read_bytes() or first[1].read_bytes().count(b"<path") > 10


class Stages:
    """Stands in for ``run_stage``: makes what a stage would, and fails as it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.failing: dict[str, StageOutcome] = {}
        monkeypatch.setattr(harness, "run_stage", self)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def __call__(self, stage: str, spec: dict[str, Any], _show: Any) -> StageOutcome:
        self.calls.append((stage, spec))
        if stage in self.failing:
            return self.failing[stage]
        made = {
            "ingest": ("out", "manifest.json", {}),
            "split-edges": ("out", "manifest.json", {}),
            "preprocess": ("bundle", "ppr/manifest.json", {}),
            "train": ("out", "manifest.json", {"training": training()}),
            "evaluate": ("embeddings", "report.json", probed(0.8)),
        }
        place, name, value = made[stage]
        file = Path(spec[place]) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value))
        return StageOutcome(0, {}, None, "")


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Stages:
    return Stages(monkeypatch)


def with_data(out: Path, *datasets: str) -> None:
    (out / "data").mkdir(exist_ok=True)
    for name in datasets:
        (out / "data" / DATASETS[name].file).touch()


def test_a_finished_table_runs_no_stage_and_a_killed_one_what_is_left(tmp_path: Path, made_up: Stages) -> None:
    with_data(tmp_path, "cora")
    request = request_for("nodes", tmp_path, datasets=["cora"], seeds=2, threads=3)
    events: list[dict[str, Any]] = []
    first = reproduce(request, events.append)
    assert made_up.names == ["ingest", "preprocess", "train", "evaluate", "train", "evaluate"]
    specs = dict(made_up.calls[:4])
    assert specs["ingest"]["settings"]["source"] == {"kind": "npz", "path": str(tmp_path / "data" / "cora.npz")}
    assert specs["preprocess"]["settings"] == {"ppr": {"top_k": 16}, "threads": 3}
    assert specs["evaluate"]["embeddings"] == specs["train"]["out"]
    assert [(event["done"], event["total"]) for event in events] == [(1, 2), (2, 2)]
    assert events[0]["eta_s"] is not None

    made_up.calls.clear()
    again = reproduce(request, events.append)
    assert made_up.calls == []
    assert again["rows"] == first["rows"]
    stored = json.loads((tmp_path / "nodes.json").read_text())
    assert stored["rows"] == json.loads(json.dumps(again["rows"]))
    assert (tmp_path / "nodes.md").read_text().startswith("# Node classification")

    # A table that measures the same training in another way trains nothing.
    reproduce(request_for("ablation", tmp_path, datasets=["cora"]), events.append)
    assert made_up.names == ["evaluate"] + ["train", "evaluate"] * 3

    # Killed between train and evaluate of the second seed: that seed's result is not there. Or it is damaged.
    run = plan(request)[1]
    result = tmp_path / "runs" / run.name / run.result
    for damage in (result.unlink, lambda: result.write_text(result.read_text()[:100])):
        damage()
        made_up.calls.clear()
        assert reproduce(request, events.append)["rows"] == first["rows"]
        assert made_up.names == ["evaluate"]


def test_results_outlive_the_embeddings_that_are_not_kept(tmp_path: Path, made_up: Stages) -> None:
    with_data(tmp_path, "cora")
    request = request_for("nodes", tmp_path, datasets=["cora"], keep=False)
    first = reproduce(request, lambda _: None)
    run = plan(request)[0]
    assert [path.name for path in (tmp_path / "runs" / run.name).iterdir()] == [run.result]
    made_up.calls.clear()
    assert reproduce(request, lambda _: None)["rows"] == first["rows"]
    assert made_up.calls == []
    # Killed after the result was written, or kept until now.
    (tmp_path / "runs" / run.name / "embeddings").mkdir()
    reproduce(request, lambda _: None)
    assert [path.name for path in (tmp_path / "runs" / run.name).iterdir()] == [run.result]


def test_links_train_on_a_split_bundle(tmp_path: Path, made_up: Stages) -> None:
    with_data(tmp_path, "photo")
    run = plan(request_for("cost", tmp_path, datasets=["photo"]))[0]
    links = Run(run.dataset, run.variant, 0, links=True, settings=run.settings, evaluate=None)
    outcomes = list(run_all(request_for("cost", tmp_path), [links], lambda _: None))
    assert made_up.names == ["ingest", "split-edges", "preprocess", "train"]
    assert made_up.calls[3][1]["bundle"] == str(tmp_path / "graphs" / "photo-links")
    assert outcomes[0].result is not None
    assert outcomes[0].result["report"] is None


def test_data_that_is_not_at_hand_is_told_once_and_the_rest_runs(tmp_path: Path, made_up: Stages) -> None:
    with_data(tmp_path, "cora")
    made_up.failing["ingest"] = StageOutcome(3, None, {"message": "no network", "given": "Planetoid:PubMed"}, "")
    told = reproduce(request_for("ablation", tmp_path, datasets=["pubmed"]), lambda _: None)
    assert made_up.names == ["ingest"]
    assert made_up.calls[0][1]["settings"]["source"]["name"] == "Planetoid:PubMed"
    assert {row["missing"] for row in told["rows"]} == {"ingest: no network: Planetoid:PubMed"}
    assert not any(row["failed"] for row in told["rows"])
    made_up.failing.clear()
    told = reproduce(request_for("ablation", tmp_path, datasets=["imdb", "cora"]), lambda _: None)
    measured = {row["dataset"]: row["missing"] for row in told["rows"]}
    assert measured["cora"] is None
    assert measured["imdb"] is not None


def test_data_that_is_at_hand_and_broken_is_a_failure(tmp_path: Path, made_up: Stages) -> None:
    with_data(tmp_path, "cora")
    made_up.failing["ingest"] = StageOutcome(3, None, {"message": "truncated"}, "")
    told = reproduce(request_for("nodes", tmp_path, datasets=["cora"]), lambda _: None)
    assert [(row["failed"], row["missing"]) for row in told["rows"]] == [(True, "ingest: truncated")]
    assert "Where RGRL does not win" not in (tmp_path / "nodes.md").read_text()


def test_one_folder_is_for_one_reproduction_at_a_time(tmp_path: Path, made_up: Stages) -> None:
    with_data(tmp_path, "cora")
    request = request_for("nodes", tmp_path, datasets=["cora"])

    def another(_event: dict[str, Any]) -> None:
        with pytest.raises(UsageError, match="another process"):
            reproduce(request, lambda _: None)

    assert reproduce(request, another)["rows"][0]["missing"] is None
    assert made_up.names == ["ingest", "preprocess", "train", "evaluate"]


def test_a_folder_that_cannot_be_made_is_one_error(tmp_path: Path, made_up: Stages) -> None:
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/none")):
        with pytest.raises(UsageError, match="cannot be made"):
            reproduce(replace(request_for("nodes", out, datasets=["cora"]), data=tmp_path), lambda _: None)
    assert made_up.calls == []


def test_a_disk_that_is_full_is_one_error(tmp_path: Path, made_up: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    with_data(tmp_path, "cora")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "nodes.json")

    monkeypatch.setattr(report, "write_json", full)
    with pytest.raises(ResourceError, match="no space is left"):
        reproduce(request_for("nodes", tmp_path, datasets=["cora"]), lambda _: None)
    assert made_up.names == ["ingest", "preprocess", "train", "evaluate"]


def test_a_stage_that_fails_is_a_failed_row_and_an_interrupted_one_ends_it_all(tmp_path: Path, made_up: Stages) -> None:
    with_data(tmp_path, "cora")
    request = request_for("ablation", tmp_path, datasets=["cora"])
    made_up.failing["train"] = StageOutcome(1, None, {"message": "the loss is not finite"}, "")
    told = reproduce(request, lambda _: None)
    assert [(row["failed"], row["missing"]) for row in told["rows"]] == [(True, "train: the loss is not finite")] * 4
    made_up.failing["train"] = StageOutcome(130, None, {"message": "interrupted by SIGINT"}, "")
    made_up.calls.clear()
    with pytest.raises(Interrupted, match="SIGINT"):
        reproduce(request, lambda _: None)
    assert made_up.names == ["train"]
    made_up.failing["train"] = StageOutcome(1, None, None, "Killed")
    assert "Killed" in reproduce(request, lambda _: None)["rows"][0]["missing"]


def test_without_matplotlib_there_is_a_warning_and_a_report(
    tmp_path: Path, made_up: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_data(tmp_path, "cora")
    importing = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return importing(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    events: list[dict[str, Any]] = []
    told = reproduce(request_for("ablation", tmp_path, datasets=["cora"]), events.append)
    assert told["figures"] == []
    assert "rgrl[plots]" in events[-1]["message"]


def test_cost_is_trained_for_few_epochs_and_not_evaluated(tmp_path: Path, made_up: Stages) -> None:
    with_data(tmp_path, "cora")
    told = reproduce(request_for("cost", tmp_path, datasets=["cora"]), lambda _: None)
    assert made_up.names == ["ingest", "preprocess", "train"]
    assert made_up.calls[2][1]["settings"]["run"]["epochs"] == 20
    assert made_up.calls[2][1]["settings"]["run"]["snapshot_every"] is None
    assert "| Cora | RGRL | 500.0 | 1,024 | 1,234 | 1 |" in (tmp_path / "cost.md").read_text()
    assert told["deviations"] == ["run.epochs: 20 for every run, as this table measures epochs"]


def test_every_table_names_sets_that_there_are() -> None:
    for table in TABLES.values():
        assert set(table.datasets) <= set(DATASETS)
        assert set(table.methods) <= set(METHODS)
        assert all(measure.name in PUBLISHED for measure in table.measures)
