"""How an attempt ended, in a file whose room is taken when it begins: a disk that is full by then silences nobody."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

__all__ = ["LastWord"]

ROOM_BYTES = 64 * 1024


class LastWord:
    """Takes the room beside ``path``; ``OSError`` where there is none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._room = path.with_name(f".{path.name}.room")
        self._write(b"", "wb")

    def say(self, outcome: dict[str, Any]) -> None:
        """Write ``outcome`` into the room, and give that its name: readers see all of it or nothing.

        Of a log's end that takes too much, the last lines are kept.
        """
        text, lines = _json(outcome), outcome.get("error", {}).get("log_tail", [])
        while len(text) > ROOM_BYTES and lines:
            lines = lines[1:]
            text = _json(outcome | {"error": outcome["error"] | {"log_tail": lines}})
        self._write(text, "r+b")
        self._room.replace(self._path)

    def _write(self, text: bytes, mode: str) -> None:
        # Over what is there: that asks the disk for nothing. Blanks after a document are none of it.
        with self._room.open(mode) as file:
            file.write(text.ljust(ROOM_BYTES))
            file.flush()
            os.fsync(file.fileno())


def _json(outcome: dict[str, Any]) -> bytes:
    return json.dumps(outcome, allow_nan=False).encode()
