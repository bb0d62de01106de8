"""What commands print: answers to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from preprocessing.errors import RgrlError
from service.sizes import size_text

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console

__all__ = ["fail", "log_before", "print_deleted", "print_facts", "print_json", "print_record", "print_rows"]

WIDE = 1000
NARROW_CELL = 8
"""Columns, as far as they need as much, that a cell is folded into at least."""


def print_json(value: object) -> None:
    """One JSON document."""
    print(json.dumps(value, indent=2, default=str))


def print_deleted(what: str, *, as_json: bool) -> None:
    """That something is gone."""
    if as_json:
        print_json({"deleted": what})
    else:
        print(f"deleted {what}")


def fail(error: RgrlError, *, as_json: bool) -> int:
    """Print an error; the answer is the exit code."""
    if as_json:
        print_json({"error": error.as_dict()})
    else:
        print(f"error: {error.text()}", file=sys.stderr)
    return error.exit_code


def log_before(error: RgrlError, log: str) -> str:
    """What a stage's log says before the error, which is told by itself: a stage ends its log with it."""
    return log.rstrip().removesuffix(error.text()).removesuffix(error.problem).rstrip()


def print_facts(facts: Mapping[str, Any]) -> None:
    """Names and values, nested ones by their dotted names, bytes in MiB, GiB and so on; lists left to ``--json``."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _flat(facts):
        table.add_row(name, size_text(value) if name.endswith("bytes") and isinstance(value, int) else _text(value))
    _console().print(table)


def print_record(record: BaseModel, *, as_json: bool) -> None:
    """One thing that a server has."""
    if as_json:
        print_json(record.model_dump(mode="json"))
    else:
        print_facts(record.model_dump())


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table; empty cells for None. What a terminal is too narrow for goes on in the next line, and ids stay whole;
    where there is no room for every column, each row is told as facts.
    """
    from rich.table import Table

    rows, console = list(rows), _console()
    if console.width < _least_width(columns, rows):
        for row in rows:
            print_facts(dict(zip(columns, row, strict=True)))
            print()
        return
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=number == 0, overflow="fold")
    for row in rows:
        table.add_row(*map(_text, row))
    console.print(table)


def _least_width(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> int:
    """Of a table: the first column whole, of every other at least some letters."""
    first, *others = (max(map(len, cells)) for cells in zip(columns, *(map(_text, row) for row in rows), strict=True))
    return first + sum(2 + min(width, NARROW_CELL) for width in others)


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, float):
        return f"{value:,.6g}"
    return "" if value is None else str(value)


def _console() -> Console:
    """Standard output, as wide as it needs to be where no terminal limits it: programs read whole lines."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=WIDE)


def _flat(facts: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None and not isinstance(value, list):
            yield f"{prefix}{name}", value
