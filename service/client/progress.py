"""Progress bars from stage events: one a stage and unit, with rate, time left and the latest loss."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from preprocessing.stage import COMPILING, FEW_STEPS

__all__ = ["ProgressView"]

LINE_EVERY_S = 10.0
TEXT_WIDTH = 74
"""What texts of a line take: `train: nodes and layers embedded`, 100 %, a rate, the time left, a loss."""


class ProgressView:
    """Draws events as they come; without a terminal, a line every ten seconds, and one at the end of a stage's part. A
    part of few steps has long ones: each that is reached is told. What has no time left to tell has no rate.
    """

    compiling_said = False
    """Whether this process has said that kernels are being compiled: once is enough."""

    def __init__(self, console: Console | None = None) -> None:
        """Draw on ``console``, by default standard error."""
        self.console = console or Console(stderr=True)
        self._progress = Progress(
            # The one column that is folded where the others leave it too little room.
            TextColumn("{task.description}", table_column=Column(overflow="fold")),
            BarColumn(max(4, min(32, self.console.width - TEXT_WIDTH)), table_column=Column(no_wrap=True)),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[rate]}", justify="right"),
            TextColumn("{task.fields[left]}", justify="right"),
            TextColumn("[dim]{task.fields[figures]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._tasks: dict[tuple[str, str], TaskID] = {}
        self._current: tuple[str, str] | None = None
        self._said_at = time.monotonic()

    def __enter__(self) -> ProgressView:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, event: str, stage: str, data: Mapping[str, Any]) -> None:
        """Draw one event of ``preprocessing.stage``."""
        match event:
            case "progress":
                self._advance(stage, data)
            case "metrics" if self._current is not None and stage == self._current[0]:
                self._progress.update(self._tasks[self._current], figures=_figures(data))
            case "health" if data["reason"] is not None:
                self.console.print(f"[yellow]{data['state']}[/] {escape(str(data['reason']))}", highlight=False)
            case "warning" if data["code"] == COMPILING and ProgressView.compiling_said:
                # Every stage is a process of its own, and says so of its own kernels.
                self.console.print(f"{stage}: compiling kernels", highlight=False)
            case "warning":
                ProgressView.compiling_said |= data["code"] == COMPILING
                self.console.print(
                    f"[yellow]warning[/] {escape(str(data['message']))}", highlight=False, soft_wrap=True
                )

    def _advance(self, stage: str, data: Mapping[str, Any]) -> None:
        unit, done, total = str(data["unit"]), int(data["done"]), int(data["total"])
        if self._current is not None and self._current != (stage, unit):
            self._end(*self._current)
        self._current = stage, unit
        task = self._tasks.get(self._current)
        if task is None:
            task = self._progress.add_task(f"{stage}: {unit}", total=total, rate="", left="", figures="")
            self._tasks[self._current] = task
        rate, eta = data.get("rate"), data.get("eta_s")
        self._progress.update(
            task,
            completed=done,
            total=total,
            rate="" if not rate or eta is None else f"{rate:,.1f}/s",
            left="" if done == total or eta is None else _duration(eta),
        )
        if not self._progress.disable:
            return
        if done == total:
            self.console.print(_line(stage, unit, done, total), highlight=False, soft_wrap=True)
        elif 0 < done <= total <= FEW_STEPS or time.monotonic() - self._said_at >= LINE_EVERY_S:
            shown = self._progress.tasks[task].fields
            words = [_line(stage, unit, done, total), shown["rate"], shown["left"], shown["figures"]]
            self.console.print(", ".join(word for word in words if word), highlight=False, soft_wrap=True)
        else:
            return
        self._said_at = time.monotonic()

    def _end(self, stage: str, unit: str) -> None:
        """A part is done when the next begins: a server keeps no more than a stage's last progress."""
        task = self._progress.tasks[self._tasks[stage, unit]]
        if task.finished:
            return
        self._progress.update(task.id, completed=task.total, left="")
        if self._progress.disable:
            self.console.print(
                _line(stage, unit, int(task.total or 0), int(task.total or 0)), highlight=False, soft_wrap=True
            )


def _line(stage: str, unit: str, done: int, total: int) -> str:
    return f"{stage}: {unit} {done:,} of {total:,}"


def _figures(data: Mapping[str, Any]) -> str:
    values = {name: value for name, value in data.get("values", {}).items() if value is not None}
    name = "loss" if "loss" in values else next(iter(values), None)
    return "" if name is None else f"{name} {values[name]:.4g}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02} left"
