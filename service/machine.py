"""What this machine has, told without torch or ray."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["Machine", "available_memory", "machine"]

_GROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Machine:
    """Cores this process may use, memory in bytes (of the machine, or of its control group if less), CUDA devices."""

    cores: int
    memory: int
    gpus: int


def machine() -> Machine:
    """Look."""
    gpus = sum(1 for device in Path("/dev").glob("nvidia[0-9]*") if device.name[6:].isdigit())
    return Machine(len(os.sched_getaffinity(0)), min(psutil.virtual_memory().total, _group_memory()), gpus)


def available_memory() -> int:
    """Bytes that can be had without taking them from who uses them, of the machine or of the control group."""
    available: int = psutil.virtual_memory().available
    with suppress(OSError, ValueError, KeyError):
        told = (_GROUP / "memory.stat").read_text(encoding="ascii").splitlines()
        used = int((_GROUP / "memory.current").read_text(encoding="ascii"))
        unused_pages = int(dict(line.split() for line in told)["inactive_file"])
        available = min(available, max(0, _group_memory() - used + unused_pages))
    return available


def _group_memory() -> int:
    try:
        return int((_GROUP / "memory.max").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 2**63
