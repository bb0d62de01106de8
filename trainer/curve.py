"""The training curve: a line of JSON in ``work/losses.jsonl`` for every report of the loop.

A resumed run trains some steps again; they come out the same, and the last line of a step counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["append", "clear", "read"]

MOST_POINTS = 1000


def append(work: Path, point: Mapping[str, float]) -> None:
    """Add a point; ``step`` is its key."""
    with _file(work).open("a", encoding="utf-8") as file:
        file.write(json.dumps(point) + "\n")


def read(work: Path) -> list[dict[str, Any]]:
    """The points by step: all, or ``MOST_POINTS`` evenly spaced from the first to the last."""
    if not _file(work).exists():
        return []
    points: dict[int, dict[str, Any]] = {}
    for line in _file(work).read_text(encoding="utf-8").splitlines():
        try:
            point = json.loads(line)
        except ValueError:  # a kill tore the line
            continue
        points[point["step"]] = point
    ordered = [points[step] for step in sorted(points)]
    if len(ordered) <= MOST_POINTS:
        return ordered
    return [ordered[i * (len(ordered) - 1) // (MOST_POINTS - 1)] for i in range(MOST_POINTS)]


def clear(work: Path) -> None:
    """Forget an earlier run's curve."""
    _file(work).unlink(missing_ok=True)


def _file(work: Path) -> Path:
    return work / "losses.jsonl"
