"""Copies of a run's reports for other programs: TensorBoard, MLflow.

Each is written by a thread of its own. The run hands reports over and goes on: it never waits for one, and never fails
of one. What goes wrong is told once, as a warning, and that copy ends there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Full, Queue
from threading import Thread
from typing import Protocol

from trainer.settings import TrainSettings

__all__ = ["Copies", "Report", "Sink", "copied"]

MOST_WAITING = 10_000
CLOSE_S = 5.0

Report = tuple[int, float, dict[str, float]]
"""The step, the time in seconds since 1970, and figures by name."""


class Sink(Protocol):
    """Where reports are written; made and used by one thread."""

    def write(self, report: Report) -> None:
        """One more."""

    def close(self, *, ended: bool) -> None:
        """The last is written; ``ended``: the run came to its end."""


class Copies:
    """Threads that write reports; ``warn`` takes a code and a message, in the thread that hands reports over."""

    def __init__(self, sinks: Mapping[str, Callable[[], Sink]], warn: Callable[[str, str], None]) -> None:
        self._writers = [_Writer(name, make) for name, make in sinks.items()]
        self._warn = warn

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Hand a report over."""
        for writer in self._writers:
            writer.put((step, time.time(), dict(values)))
        self._tell()

    def close(self, *, ended: bool) -> None:
        """No report comes any more; a few seconds are given to what is still to be written."""
        for writer in self._writers:
            writer.put(ended)
        until = time.monotonic() + CLOSE_S
        for writer in self._writers:
            writer.finish(until)
        self._tell()

    def _tell(self) -> None:
        for writer in [writer for writer in self._writers if writer.fault is not None]:
            self._writers.remove(writer)
            self._warn(
                f"{writer.name}_failed",
                f"reports are no longer written for {writer.name}: {writer.fault}; training goes on",
            )


class _Writer:
    """One thread and what waits for it; ``fault`` says why it writes no more."""

    def __init__(self, name: str, make: Callable[[], Sink]) -> None:
        self.name = name
        self.fault: str | None = None
        self._make = make
        self._waiting: Queue[Report | bool] = Queue(MOST_WAITING)
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, what: Report | bool) -> None:
        """A report, or at the end whether the run came to its own."""
        try:
            self._waiting.put_nowait(what)
        except Full:
            self.fault = self.fault or f"{MOST_WAITING:,} wait to be written"

    def finish(self, until: float) -> None:
        """Wait for the thread up to a moment of ``time.monotonic``."""
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            self.fault = self.fault or "the last of them took too long"

    def _run(self) -> None:
        # Whatever it is, also what a library raises to end a thread: the run must hear of it, and nothing else happen.
        sink: Sink | None = None
        try:
            sink = self._make()
            while not isinstance(report := self._waiting.get(), bool):
                sink.write(report)
            sink.close(ended=report)
        except BaseException as error:
            self.fault = f"{type(error).__name__}: {error}"
            if sink is not None:
                with suppress(BaseException):
                    sink.close(ended=False)


@contextmanager
def copied(
    settings: TrainSettings, folder: Path, step: int, fingerprint: str, warn: Callable[[str, str], None]
) -> Iterator[Copies]:
    """Those that the settings ask for, in ``folder``, of a run that goes on from ``step`` and ends with the block."""
    sinks: dict[str, Callable[[], Sink]] = {}
    if settings.run.tensorboard:
        from trainer.tensorboard import TensorBoard

        sinks["tensorboard"] = lambda: TensorBoard(folder / "tensorboard", step)
    if settings.run.mlflow:
        from trainer.mlflow_run import MlflowRun

        sinks["mlflow"] = lambda: MlflowRun(folder, settings.model_dump(mode="json"), fingerprint)
    copies = Copies(sinks, warn)
    ended = False
    try:
        yield copies
        ended = True
    finally:
        copies.close(ended=ended)
