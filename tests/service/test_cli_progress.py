"""What a command says on its way where no terminal draws bars, and its version."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from preprocessing.artifact import code_version
from service.cli import main
from service.cli import progress as module
from service.cli.progress import ProgressView


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
        "train: 10 of 40 epochs, 1.0/s, 0:30 left, loss 0.1111",
        "train: 20 of 40 epochs, 1.0/s, 0:20 left, loss 0.05263",
        "train: 30 of 40 epochs, 1.0/s, 0:10 left, loss 0.03448",
        "train: 40 epochs",
    ]


def test_the_version_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["rgrl", "--version"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"rgrl {code_version()}\n"
