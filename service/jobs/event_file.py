"""Reading a job's event file, which its stages append JSON lines to, while they do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["completed_stages", "read_events"]

CHUNK = 1024 * 1024


def read_events(path: Path, offset: int) -> tuple[int, list[dict[str, Any]]]:
    """Whole lines past byte ``offset``, at most a chunk of them, and the offset after the last.

    A last line still being written is left for the next call. A line that is no JSON object, as a kill in the middle
    of a write leaves, is passed over.
    """
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(CHUNK)
    except FileNotFoundError:
        return offset, []
    end = data.rfind(b"\n") + 1
    if end == 0 and len(data) == CHUNK:
        end = CHUNK
    events = [event for line in data[:end].splitlines() if (event := _parse(line)) is not None]
    return offset + end, events


def completed_stages(path: Path) -> set[str]:
    """Stages whose result the file holds."""
    done: set[str] = set()
    offset = 0
    while True:
        after, events = read_events(path, offset)
        if after == offset:
            return done
        done.update(str(event.get("stage")) for event in events if event.get("event") == "result")
        offset = after


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line, parse_constant=lambda _name: None)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None
