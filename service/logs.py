"""Logging: JSON lines, or text for people on a terminal; the id of the request stands on every line about it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import sys
from contextvars import ContextVar
from typing import Any, Literal

import structlog
from pydantic_core import PydanticSerializationError, to_json
from structlog.typing import EventDict, Processor

__all__ = ["REQUEST_ID", "add_request_id", "configure_logging", "new_request_id"]

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The id of the request that is handled here, if one is."""


def new_request_id() -> str:
    """An id for what came without one; it need not be hard to guess."""
    return f"{random.getrandbits(64):016x}"


class _Lines:
    """Lines on standard error, whatever that is by now. What cannot be written (a full disk, a reader that is gone) is
    lost: no request and no job fails for its log.
    """

    def __init__(self, *_names: object) -> None:
        """structlog hands over the names of the logger."""

    def msg(self, line: str) -> None:
        """Write one line."""
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    debug = info = warning = error = critical = exception = msg


def add_request_id(_logger: object, _method: str, event: EventDict) -> EventDict:
    """The request's id, where there is one, beside what a line says."""
    request_id = REQUEST_ID.get()
    if request_id is not None:
        event["request_id"] = request_id
    return event


def _as_json(line: Any, **_: object) -> str:
    """One line of JSON: by the faster writer, which refuses text that is no Unicode, or by the other."""
    try:
        return to_json(line, fallback=repr).decode()
    except (PydanticSerializationError, UnicodeError):
        return json.dumps(line, default=repr)


def configure_logging(level: str, form: Literal["auto", "text", "json"] = "auto") -> None:
    """Send every log, the libraries' too, through one renderer to standard error.

    ``auto`` is text where that is a terminal, else JSON. Text is coloured on a terminal, unless ``NO_COLOR`` is set.
    """
    terminal = sys.stderr.isatty()
    text = form == "text" or (form == "auto" and terminal)
    shared: list[Processor] = [
        add_request_id,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if text else "iso", utc=not text),
    ]
    rendering: list[Processor] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(_as_json)]
    if text:
        coloured = terminal and not os.environ.get("NO_COLOR")
        renderer = structlog.dev.ConsoleRenderer(
            colors=coloured, sort_keys=False, exception_formatter=structlog.dev.plain_traceback
        )
        rendering = [renderer]
    # The service's own lines, one a request at least, are written at once: a detour by the standard library's records
    # takes three times as long.
    structlog.configure(
        processors=[*shared, *rendering],
        logger_factory=_Lines,
        wrapper_class=structlog.make_filtering_bound_logger(level.lower()),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # What it tells of every start, as that it runs on SQLite, is of use to who looks for a fault alone.
    # So is a line for every question to the Ray cluster, one a second for each job.
    for library in ("alembic", "httpx2"):
        logging.getLogger(library).setLevel(logging.DEBUG if level.lower() == "debug" else logging.WARNING)
    # The request middleware writes one line a request; uvicorn's own would be a second.
    logging.getLogger("uvicorn.access").disabled = True
