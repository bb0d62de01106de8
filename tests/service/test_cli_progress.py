"""What a command says on its way where no terminal draws bars, which settings there are, and its version."""

from __future__ import annotations

import inspect
import io
import json
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel
from rich.console import Console

from preprocessing.artifact import code_version
from preprocessing.settings import (
    AppendSettings,
    EdgeSplitSettings,
    GenerateSettings,
    InduceSettings,
    PreprocessSettings,
    TableSource,
)
from service.cli import app, main, output
from service.cli.settings import Stage
from service.client import progress as module
from service.client.progress import ProgressView
from service.search.index_settings import IndexSettings
from trainer.settings import EmbedSettings, EvaluateSettings, TrainSettings


def test_without_a_terminal_a_line_comes_every_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    told = io.StringIO()
    with ProgressView(Console(file=told, width=40)) as view:
        for done in range(1, 41):
            now += 1
            figures = {"done": done, "total": 40, "unit": "epochs", "rate": 1.0, "eta_s": 40.0 - done}
            view.show("progress", "train", figures)
            view.show("metrics", "train", {"values": {"loss": 1 / done}})
    assert told.getvalue().splitlines() == [
        "train: epochs 10 of 40, 1.0/s, 0:30 left, loss 0.1111",
        "train: epochs 20 of 40, 1.0/s, 0:20 left, loss 0.05263",
        "train: epochs 30 of 40, 1.0/s, 0:10 left, loss 0.03448",
        "train: epochs 40 of 40",
    ]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_bars_keep_their_figures_in_a_narrow_terminal(width: int) -> None:
    told = io.StringIO()
    with ProgressView(Console(file=told, width=width, force_terminal=True, color_system=None)) as view:
        embedded = {"done": 1, "total": 9, "unit": "nodes and layers embedded", "rate": 123_456.7, "eta_s": 3599.0}
        view.show(
            "progress", "train", {"done": 38_000, "total": 40_000, "unit": "steps", "rate": 12.3, "eta_s": 3725.0}
        )
        view.show("metrics", "train", {"values": {"loss": 0.0000123456}})
        view.show("progress", "train", embedded)
    drawn = told.getvalue().rpartition("\x1b[1A")[2]
    assert [
        word for word in ("12.3/s", "loss 1.235e-05", "123,456.7/s", "59:59 left", "11 %") if word not in drawn
    ] == []
    assert "…" not in drawn


@pytest.mark.parametrize("terminal", [True, False])
def test_a_part_is_done_when_the_next_begins(terminal: bool) -> None:
    told = io.StringIO()
    with ProgressView(Console(file=told, width=80, force_terminal=terminal, color_system=None)) as view:
        for stage, unit, done in (("train", "steps", 396), ("train", "nodes", 30), ("evaluate", "probes", 7)):
            figures = {"done": done, "total": 400, "unit": unit, "rate": 1.0, "eta_s": 4.0}
            view.show("progress", stage, figures)
    lines = told.getvalue().rpartition("\x1b[1A")[2].splitlines()
    if terminal:
        assert [("100 %" in line, "left" in line) for line in lines[:3]] == [
            (True, False),
            (True, False),
            (False, True),
        ]
    else:
        assert lines == ["train: steps 400 of 400", "train: nodes 400 of 400"]


def test_the_version_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["rgrl", "--version"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"rgrl {code_version()}\n"


STAGES: dict[str, BaseModel] = {
    "generate": GenerateSettings(kind="rmat"),
    "append": AppendSettings(source=TableSource(edges="edges.parquet")),
    "induce": InduceSettings(),
    "split-edges": EdgeSplitSettings(),
    "preprocess": PreprocessSettings(),
    "train": TrainSettings(),
    "embed": EmbedSettings(),
    "evaluate": EvaluateSettings(),
    "index": IndexSettings(),
}


def test_every_command_that_takes_settings_has_them_listed() -> None:
    commands = [one.callback for one in app.registered_commands if one.callback is not None]
    takers = {one.__name__.replace("_", "-") for one in commands if "set_" in inspect.signature(one).parameters}
    # reproduce takes those of train.
    assert takers - {"reproduce"} == {stage.value for stage in Stage} == set(STAGES)


def leaves(model: BaseModel, prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            found |= leaves(value, f"{prefix}{name}.")
        else:
            # What a stage cannot do without has no default.
            found[prefix + name] = None if name in model.model_fields_set else value
    return found


@pytest.mark.parametrize("stage", STAGES)
def test_every_setting_is_listed_and_explained(
    stage: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*more: str) -> str:
        monkeypatch.setattr(sys, "argv", ["rgrl", "settings", stage, *more])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        return capsys.readouterr().out

    rows = {row["name"]: row for row in json.loads(told("--json"))}
    expected = leaves(STAGES[stage])
    assert {name: row["default"] for name, row in rows.items()} == json.loads(json.dumps(expected))
    assert all(row["type"] for row in rows.values())
    assert [name for name, row in rows.items() if not row["description"]] == []
    monkeypatch.setenv("COLUMNS", "60")
    lines = told().splitlines()
    assert all(any(line.startswith(f"{name}: ") for line in lines) for name in rows)
    assert max(map(len, lines)) <= 60
    if stage == "train":
        assert rows["run.epochs"]["type"] == "integer"
        assert rows["run.epochs"]["bounds"] == "≥ 1, ≤ 10000000"
        assert rows["batch.order"]["type"] == "random|near"
        assert rows["batch.fan_out"]["type"] == "list of integer"


@pytest.mark.parametrize("width", [80, 120])
def test_ids_are_whole_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    told = io.StringIO()
    monkeypatch.setattr(output, "_console", lambda: Console(file=told, width=width, force_terminal=False))
    one, graph = "job_01a22820e0b97ea6a87c0ba1a76fbb9a", "graph_01a22821aafa77238515611db315975c"
    output.print_rows(["id", "status", "graph"], [[one, "succeeded", graph]])
    output.print_facts({"id": one, "path": f"/a/long/way/{graph}/bundle"})
    assert told.getvalue().count(one) == 2
    joined = "".join(line.strip() for line in told.getvalue().splitlines())
    assert "…" not in joined
    assert f"/a/long/way/{graph}/bundle"[-12:] in joined


@pytest.mark.parametrize("width", [30, 50, 60, 80, 200])
def test_no_column_is_lost_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, capsys: Any, width: int) -> None:
    monkeypatch.setattr(output, "_console", lambda: Console(width=width, force_terminal=False))
    columns = ("job", "kind", "status", "phase", "health", "name", "created", "took")
    created = datetime(2026, 11, 29, 20, 31, 48, 626176, tzinfo=UTC)
    row = ("job_01a22820e0b97ea6a87c0ba1a76fbb9a", "pipeline", "succeeded", None, "healthy", "mine", created, "1.5 s")
    output.print_rows(columns, [row, row])
    told = capsys.readouterr().out
    assert [name for name in columns if name != "phase" and name not in told] == []
    together = "".join(told.split())
    for cell in (row[0], "healthy", "mine"):
        assert cell in together
    assert "626176" not in together
    output.print_facts({"created_at": created, "nested": {"at": created}})
    assert "626176" not in capsys.readouterr().out


def test_that_kernels_are_compiled_is_explained_once_and_then_named_by_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProgressView, "compiling_said", False)
    console = Console(file=io.StringIO(), width=200)
    for _ in range(2):
        with ProgressView(console) as view:
            for stage in ("preprocess", "train"):
                view.show("warning", stage, {"code": "compiling", "message": "compiling, once for this version"})
                view.show("warning", stage, {"code": "constant_feature", "message": f"{stage} warns"})
    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert (told.count("once for this version"), told.count("preprocess warns"), told.count("train warns")) == (1, 2, 2)
    lines = [line for line in told.splitlines() if "compiling kernels" in line]
    assert lines == [f"{stage}: compiling kernels" for stage in ("train", "preprocess", "train")]


def test_each_of_a_parts_few_steps_is_told_when_it_is_reached() -> None:
    console = Console(file=io.StringIO(), width=200)
    with ProgressView(console) as view:
        for done in range(3):
            view.show("progress", "index", {"unit": "steps of the map", "done": done, "total": 2})
        view.show("progress", "train", {"unit": "steps", "done": 1, "total": 5})
    told = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert told == [f"index: steps of the map {done} of 2" for done in (1, 2)]


def test_what_has_no_time_left_to_tell_has_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.client.progress.LINE_EVERY_S", 0.0)
    console = Console(file=io.StringIO(), width=200)
    with ProgressView(console) as view:
        for eta in (None, 3.0):
            view.show("progress", "index", {"unit": "nodes", "done": 1, "total": 9, "rate": 1.2, "eta_s": eta})
    told = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert told == ["index: nodes 1 of 9", "index: nodes 1 of 9, 1.2/s, 0:03 left"]
