"""What commands print: answers to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from preprocessing.errors import RgrlError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["fail", "log_before", "print_facts", "print_json", "print_rows"]

WIDE = 1000


def print_json(value: object) -> None:
    """One JSON document."""
    print(json.dumps(value, indent=2, default=str))


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
    """Names and values, nested ones by their dotted names; lists and long texts are left to ``--json``."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _flat(facts):
        table.add_row(name, f"{value:,.6g}" if isinstance(value, float) else str(value))
    _console().print(table)


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table; empty cells for None. What a terminal is too narrow for goes on in the next line, and ids stay whole."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=number == 0, overflow="fold")
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    _console().print(table)


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
