"""The training curve survives kills, repeats and length."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer import curve


def test_points_of_a_killed_and_resumed_run(tmp_path: Path) -> None:
    assert curve.read(tmp_path) == []
    for step in (1, 2, 3):
        curve.append(tmp_path, {"epoch": step, "step": step, "loss": 10.0 - step})
    with (tmp_path / "losses.jsonl").open("a") as file:
        file.write('{"epoch": 4, "st\n')
    for step in (3, 4):
        curve.append(tmp_path, {"epoch": step, "step": step, "loss": 20.0 - step})
    points = curve.read(tmp_path)
    assert [(point["step"], point["loss"]) for point in points] == [(1, 9.0), (2, 8.0), (3, 17.0), (4, 16.0)]
    curve.clear(tmp_path)
    curve.clear(tmp_path)
    assert curve.read(tmp_path) == []


def test_a_long_curve_keeps_its_ends_and_is_thinned_evenly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve, "MOST_POINTS", 5)
    for step in range(1, 18):
        curve.append(tmp_path, {"step": step, "loss": 0.5})
    assert [point["step"] for point in curve.read(tmp_path)] == [1, 5, 9, 13, 17]
