"""Where compiled kernels are kept: a folder for each state of the source.

Numba keeps a kernel by the file it is written in, and finds it again although a kernel of another file, which was
compiled into it, has changed. So the folder that ``NUMBA_CACHE_DIR`` names has one inside for each state of all source.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["keyed_cache", "source_digest"]

VARIABLE, PREFIX = "NUMBA_CACHE_DIR", "source-"


def keyed_cache(packages: Iterable[Path]) -> None:
    """Move ``NUMBA_CACHE_DIR``, where it is set, to the folder of this source; before numba is imported."""
    named = os.environ.get(VARIABLE)
    if not named:
        return
    base = Path(named)
    if base.name.startswith(PREFIX):
        base = base.parent  # From the process that started this one.
    os.environ[VARIABLE] = str(base / f"{PREFIX}{source_digest(packages)}")


def source_digest(packages: Iterable[Path]) -> str:
    """Of the names and the text of all Python files, 16 hex digits."""
    digest = hashlib.blake2b(digest_size=8)
    for package in packages:
        for path in sorted(package.rglob("*.py")):
            text = path.read_bytes()
            digest.update(f"{path.relative_to(package.parent)} {len(text)}\n".encode())
            digest.update(text)
    return digest.hexdigest()
