"""What evaluate left in an embedding set: its report (``trainer.evaluation.evaluate`` says what is in it)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from preprocessing.artifact import read_plain
from preprocessing.errors import ArtifactError

__all__ = ["REPORT", "read_report"]

REPORT = "report.json"


def read_report(path: Path) -> dict[str, Any] | None:
    """The report of the set at ``path``, None before evaluate; ``ArtifactError`` for one that cannot be read."""
    try:
        report = json.loads(read_plain(path / REPORT))
        # JSON can spell half of a surrogate pair, which no answer can hold.
        json.dumps(report, ensure_ascii=False).encode()
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(path) from error
    if not isinstance(report, dict):
        raise _unreadable(path)
    return report


def _unreadable(path: Path) -> ArtifactError:
    return ArtifactError(
        f"{REPORT} in the set cannot be read",
        expected="what rgrl evaluate made",
        remedy="rgrl evaluate the set again",
        where=str(path / REPORT),
    )
