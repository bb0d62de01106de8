"""How a stage of the pipeline runs as a process of its own.

``python -m <package> <stage> SPEC.json`` reads its settings from a JSON file, appends events as JSON lines to the file
named by ``RGRL_EVENTS``, and ends with a documented exit code. The command line and the job scheduler both start stages
this way and no other; neither imports what a stage imports.

Events: ``{"time", "event", "stage", …}`` with ``event`` one of

* ``progress``  ``done total unit rate eta_s`` (null where nothing tells it)
* ``metrics``   ``step values``
* ``warning``   ``code message``
* ``health``    ``state reason`` (of a training run: ``healthy``, ``stalled`` or ``collapsed``, whenever it changes)
* ``result``    ``summary`` (last event of a success)
* ``error``     ``error`` (``RgrlError.as_dict``; last event of a failure)
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import IO, Any

from pydantic import BaseModel, ValidationError

from preprocessing.again import again, goes_on, in_job
from preprocessing.errors import Interrupted, NotNowError, ResourceError, RgrlError, UsageError
from preprocessing.fault_words import fault_words, meant_value
from preprocessing.unknown_fields import fields_beside, meant_field

__all__ = ["COMPILING", "FEW_STEPS", "FULL", "Emitter", "StageMain", "disk_errors", "run_stage", "usage_error"]

EVENTS_VARIABLE = "RGRL_EVENTS"
PARENT_VARIABLE = "RGRL_PARENT"
"""Where set, the process that the stage shall not outlive."""
_PR_SET_PDEATHSIG = 1
COMPILING = "compiling"
"""The code of the warning that kernels are being compiled."""
PROGRESS_INTERVAL_S = 0.2
RATE_REPORTS = 100
FEW_STEPS = 4
"""A part of no more than these tells no time left: its steps are long, and seldom alike."""
STORAGE = {
    errno.ENOSPC: "no space is left",
    errno.EDQUOT: "the quota is used up",
    errno.EFBIG: "the file would be larger than its limit",
    errno.EROFS: "it is read-only",
    errno.EACCES: "no permission",
    errno.EPERM: "no permission",
    errno.ENOTDIR: "a parent of the path is a file",
    errno.EEXIST: "the path, or a parent of it, is a file or a link that leads nowhere",
    errno.ELOOP: "the path leads in a circle",
    errno.ENAMETOOLONG: "a name in the path is too long",
}
"""What a disk refuses for reasons that a person can mend."""
FULL = {errno.ENOSPC, errno.EDQUOT}
"""Those of them that may pass by themselves: others make room, too."""
_ALLOCATORS = ("DefaultCPUAllocator: ", "CUDA out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "std::bad_alloc")
"""Words of a ``RuntimeError`` by which torch, cuBLAS and faiss say that memory is wanting."""


class Emitter:
    """Appends events to a file; without one (plain use from Python) events are dropped, warnings go to stderr."""

    def __init__(self, stage: str, path: Path | None = None) -> None:
        self.stage = stage
        self._file: IO[str] | None = None if path is None else path.open("a", encoding="utf-8", buffering=1)
        self._unit = ""
        self._reports: deque[tuple[float, int]] = deque(maxlen=RATE_REPORTS)

    def progress(self, done: int, total: int, unit: str) -> None:
        """Report ``done`` of ``total``; at most five events a second, the first and last always.

        ``rate`` is that of the last reports, so that a pause long ago does not count. A part of few steps has no
        ``eta_s``.
        """
        now = time.monotonic()
        if self._unit != unit or (self._reports and done < self._reports[-1][1]):
            self._unit = unit
            self._reports.clear()
        if done < total and self._reports and now - self._reports[-1][0] < PROGRESS_INTERVAL_S:
            return
        self._reports.append((now, done))
        began, first = self._reports[0]
        rate = (done - first) / (now - began) if now > began else 0.0
        eta_s = (total - done) / rate if rate > 0 and total > FEW_STEPS else None
        self._emit("progress", done=done, total=total, unit=unit, rate=rate, eta_s=eta_s)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Report figures of one step or epoch; non-finite values become null."""
        finite = {name: value if abs(value) < float("inf") else None for name, value in values.items()}
        self._emit("metrics", step=step, values=finite)

    def warning(self, code: str, message: str) -> None:
        """Report something the user should know that does not stop the stage."""
        self._emit("warning", code=code, message=message)
        if self._file is None:
            print(f"warning: {message}", file=sys.stderr)

    def health(self, state: str, reason: str | None) -> None:
        """Report what state the stage's work is in, and why where it is not a good one."""
        self._emit("health", state=state, reason=reason)
        if self._file is None and reason is not None:
            print(f"{state}: {reason}", file=sys.stderr)

    def result(self, summary: Mapping[str, Any]) -> None:
        """Report the success of the whole stage."""
        self._emit("result", summary=dict(summary))

    def error(self, error: RgrlError) -> None:
        """Report the failure of the whole stage."""
        self._emit("error", error=error.as_dict())

    def _emit(self, event: str, **fields: Any) -> None:
        if self._file is not None:
            moment = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            line = {"time": moment, "event": event, "stage": self.stage, **fields}
            self._file.write(json.dumps(line, allow_nan=False, default=str) + "\n")


@contextmanager
def disk_errors(target: str | Path) -> Iterator[None]:
    """Make a ``ResourceError`` of what a disk refuses inside; ``target`` is told where the system names no file."""
    try:
        yield
    except OSError as error:
        if error.errno not in STORAGE:
            raise
        kind = NotNowError if error.errno in FULL else ResourceError
        elsewhere = "" if in_job() else " or name another path"
        raise kind(
            f"the disk refused: {STORAGE[error.errno]}",
            where=str(error.filename or target),
            given=str(error),
            remedy=f"{_mended_by(error.errno)}{elsewhere}, then {again('it continues')}",
        ) from error


def _mended_by(number: int) -> str:
    match number:
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return "make room"
        case errno.EROFS | errno.EACCES | errno.EPERM:
            return "give it the right to write there"
    return "clear the path"


StageMain = Callable[[dict[str, Any], Emitter], Mapping[str, Any]]


def run_stage(stages: Mapping[str, StageMain], argv: list[str]) -> int:
    """Run ``stages[argv[0]]`` on the JSON file ``argv[1]``; the answer is the process's exit code.

    A stage takes the spec and an emitter and returns its summary. SIGTERM and SIGINT raise ``Interrupted`` inside it.
    """
    if len(argv) != 2 or argv[0] not in stages:
        print(f"usage: {{{'|'.join(stages)}}} SPEC.json", file=sys.stderr)
        return UsageError.exit_code
    stage, spec_path = argv
    events = os.environ.get(EVENTS_VARIABLE)
    emitter = Emitter(stage, Path(events) if events else None)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    try:
        try:
            if parent := os.environ.get(PARENT_VARIABLE):
                _end_with(int(parent))
            with disk_errors(spec_path):
                spec = json.loads(Path(spec_path).read_text(encoding="utf-8"))
            with disk_errors(spec.get("out") or spec.get("bundle") or spec.get("embeddings") or spec_path):
                emitter.result(stages[stage](spec, emitter))
        except ValidationError as error:
            raise usage_error(error) from error
    except RgrlError as error:
        if _lack_of_memory(error.__cause__):  # A file is called unreadable where there was no memory to read it.
            return _unexpected(emitter, error)
        print(error.text(), file=sys.stderr)
        emitter.error(error)
        return error.exit_code
    except Exception as error:
        return _unexpected(emitter, error)
    return 0


def _end_with(parent: int) -> None:
    """Have the kernel send SIGTERM when the parent is gone, also if it is killed (prctl(2), Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            raise Interrupted("the command that started the stage is gone", remedy=goes_on("it continues"))


def usage_error(error: ValidationError, model: type[BaseModel] | None = None, where: str | None = None) -> UsageError:
    """The first fault of a settings object of class ``model`` as one ``UsageError`` with its JSON pointer."""
    first = error.errors(include_url=False)[0]
    pointer = "".join(f"/{part}" for part in first["loc"])
    unknown = first["type"] == "extra_forbidden"
    beside = fields_beside(model, first["loc"]) if unknown else []
    meant = meant_field(model, first["loc"]) if unknown else meant_value(first)
    name = f"setting {pointer.strip('/').replace('/', '.')}" if pointer else "settings"
    return UsageError(
        f"{name}: {'unknown' if unknown else fault_words(first)}",
        given=first.get("input") if pointer and not unknown else None,
        expected="one of " + ", ".join(beside) if beside else None,
        where=where,
        pointer=pointer,
        remedy=meant or "correct the setting; nothing was started",
    )


def _unexpected(emitter: Emitter, error: Exception) -> int:
    traceback.print_exception(error)
    if wanting := _lack_of_memory(error):
        failure = RgrlError(
            f"the stage ran out of memory: {wanting}",
            remedy="a dry run of the job tells what it takes: train in mini-batches or in smaller ones, run fewer jobs "
            "beside it, or use a machine or GPU with more memory; see the log for the traceback",
        )
        failure.code = "out_of_memory"
    else:
        failure = RgrlError(f"{type(error).__name__}: {error}", remedy="see the log for the traceback")
        failure.code = "internal"
    emitter.error(failure)
    return failure.exit_code


def _lack_of_memory(error: BaseException | None) -> str | None:
    """The first line of what an allocator said, where that is why ``error`` or a cause of it was raised.

    Allocators of C++ and CUDA raise errors of classes that are not known here: torch's is a ``RuntimeError`` on the
    CPU and an ``OutOfMemoryError`` on a GPU.
    """
    while error is not None:
        name, text = type(error).__name__, str(error)
        no_memory = isinstance(error, OSError) and error.errno == errno.ENOMEM
        if isinstance(error, MemoryError) or name == "OutOfMemoryError" or no_memory:
            return text.partition("\n")[0] or name
        if isinstance(error, RuntimeError) and (said := [words for words in _ALLOCATORS if words in text]):
            return next(line for line in text.splitlines() if said[0] in line)
        error = error.__cause__
    return None


def _interrupt(number: int, _frame: FrameType | None) -> None:
    raise Interrupted.by_signal(number)


@contextmanager
def interrupts_kept() -> Iterator[Callable[[], Interrupted | None]]:
    """Inside, a stage's first SIGTERM or SIGINT is an answer to be asked for, so that work can end where it can be gone
    on from; a second raises as ever. One that nobody asked for is raised at the end.

    Elsewhere than in a stage's process nothing is kept.
    """
    came: list[Interrupted] = []
    if signal.getsignal(signal.SIGTERM) is not _interrupt or threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return

    def keep(number: int, frame: FrameType | None) -> None:
        if came:
            _interrupt(number, frame)
        came.append(Interrupted.by_signal(number))

    before = {number: signal.signal(number, keep) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: came[0] if came else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise came[0]
