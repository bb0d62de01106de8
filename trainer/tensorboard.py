"""Reports as TensorBoard's event files (``tensorboard --logdir FOLDER``), a scalar a figure."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from trainer.copies import Report

__all__ = ["TensorBoard"]


class TensorBoard:
    """A new file in ``folder``; of files before it, TensorBoard forgets what came after ``step``.

    The library's own ``SummaryWriter`` has a thread and a queue of its own, and waits for ever once that thread has
    died of a full disk; its ``EventsWriter`` is the file alone.
    """

    def __init__(self, folder: Path, step: int) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.proto.summary_pb2 import Summary

        self._event, self._summary = Event, Summary
        folder.mkdir(parents=True, exist_ok=True)
        self._writer = EventsWriter(str(folder / "events"), f".{os.getpid()}")
        self._append(wall_time=time.time(), step=step + 1, session_log=SessionLog(status=SessionLog.START))

    def write(self, report: Report) -> None:
        """On the disk at once, for those who look while the run goes on."""
        step, moment, values = report
        scalars = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._append(wall_time=moment, step=step, summary=self._summary(value=scalars))

    def close(self, *, ended: bool) -> None:  # noqa: ARG002
        """End the file."""
        self._writer.close()

    def _append(self, **fields: Any) -> None:
        self._writer.write_event(self._event(**fields))
        self._writer.flush()
