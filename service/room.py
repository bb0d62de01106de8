"""Whether a disk has room for what is written next."""

from __future__ import annotations

import tempfile
from pathlib import Path

__all__ = ["check_room"]

# What an ordinary write needs: some pages of the database, a job's files.
ROOM_BYTES = 64 * 1024


def check_room(folder: Path) -> None:
    """Raise ``OSError`` where the disk of ``folder`` has no room, or takes no file.

    Nothing is left behind, and no disk is made to work: a file that is gone at once reserves its room, and is never
    written out.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(ROOM_BYTES))
        file.flush()
