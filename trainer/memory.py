"""How much memory this process has needed."""

from __future__ import annotations

import resource
import sys

import torch

__all__ = ["peak_bytes"]


def peak_bytes(device: torch.device) -> int:
    """The most bytes held so far: of the GPU by torch's tensors, else the largest resident set of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # Linux counts KiB, macOS bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
