"""What a process and all that it started hold in memory."""

from __future__ import annotations

from pathlib import Path

import psutil

__all__ = ["held_bytes"]


def held_bytes(process: psutil.Process, *kinds: str) -> int:
    """Bytes of the kinds of pages that ``/proc/PID/status`` tells, as ``RssAnon``, summed."""
    try:
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    total = 0
    for one in family:
        try:
            status = Path(f"/proc/{one.pid}/status").read_text()
        except OSError:
            continue
        wanted = tuple(f"{kind}:" for kind in kinds)
        total += sum(int(line.split()[1]) for line in status.splitlines() if line.startswith(wanted))
    return total * 1024
