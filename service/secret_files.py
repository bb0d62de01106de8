"""Secrets as files: there whole or not at all, and read by their owner alone, or by one group as well."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["write_secret"]


def write_secret(path: Path, text: str, group: int | None = None) -> None:
    """Write or replace the file; ``OSError`` where that cannot be, as where ``group`` is none of this process's."""
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(text)
        if group is not None:
            os.fchown(file.fileno(), -1, group)
            os.fchmod(file.fileno(), 0o640)
    partial.rename(path)
