"""Where compiled kernels are kept: a folder for each state of the source.

Numba keeps a kernel by the file it is written in, and finds it again although a kernel of another file, which was
compiled into it, has changed. So the folder that ``NUMBA_CACHE_DIR`` names has one inside for each state of all source;
where nothing names one it is ``rgrl/numba`` in the user's cache folder (XDG base directories).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["kept", "keyed_cache", "source_digest"]

VARIABLE, PREFIX = "NUMBA_CACHE_DIR", "source-"


def keyed_cache(packages: Iterable[Path]) -> None:
    """Set ``NUMBA_CACHE_DIR`` to the folder of this source, inside the one that it names; before numba is imported.

    Where it names none and the user has no writable cache folder it stays unset: numba keeps kernels beside the code.
    """
    named = os.environ.get(VARIABLE)
    base = Path(named) if named else _user_cache()
    if base is None:
        return
    if base.name.startswith(PREFIX):
        base = base.parent  # From the process that started this one.
    os.environ[VARIABLE] = str(base / f"{PREFIX}{source_digest(packages)}")


def kept(module: str) -> bool:
    """Whether kernels of a module, named without its package, are in this source's folder; true where there is none.

    In a folder that cannot be read there are none.
    """
    folder = os.environ.get(VARIABLE)
    try:
        return folder is None or any(Path(folder).glob(f"*/{module}.*.nbi"))
    except OSError:
        return False


def _user_cache() -> Path | None:
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rgrl" / "numba"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder if os.access(folder, os.W_OK) else None


def source_digest(packages: Iterable[Path]) -> str:
    """Of the names and the text of all Python files, 16 hex digits."""
    digest = hashlib.blake2b(digest_size=8)
    for package in packages:
        for path in sorted(package.rglob("*.py")):
            text = path.read_bytes()
            digest.update(f"{path.relative_to(package.parent)} {len(text)}\n".encode())
            digest.update(text)
    return digest.hexdigest()
