"""What an unfinished build has done, in one small file that a kill at any moment leaves whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["Journal"]


class Journal:
    """A JSON document beside the files it speaks of. What is written after the last ``record`` is to be cut off."""

    def __init__(self, path: Path) -> None:
        """Opens ``path``; without one, nothing has been done."""
        self._path = path
        try:
            self.state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            self.state = {}

    def record(self, **state: Any) -> None:
        """Replace the document; not flushed to the disk, for it need only outlive the process."""
        temporary = self._path.with_suffix(".new")
        temporary.write_text(json.dumps(state), encoding="utf-8")
        temporary.replace(self._path)
        self.state = state
