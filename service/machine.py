"""What this machine has, told without torch or ray."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["Machine", "machine"]


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


def _group_memory() -> int:
    try:
        return int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 2**63
