"""How a process that computes on CPUs uses memory and threads; to be set before torch is imported.

The C library gives large blocks back to the kernel as soon as they are freed and asks for new ones, whose pages it
must fault in and clear: an elementwise operation on 40 MB then takes 19 ms instead of 4. A training step frees and
allocates the same sizes all over again. And OpenMP's threads wait for their next work by spinning, on the cores that
our own kernels' threads want: an epoch of Coauthor CS takes a tenth longer.
"""

from __future__ import annotations

import ctypes
import os
import sys

__all__ = ["THREADS_THAT_SLEEP", "tune_process"]

THREADS_THAT_SLEEP = {"OMP_WAIT_POLICY": "PASSIVE"}
"""For the environment of processes that are started."""

# mallopt(3) of glibc.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 1 << 30


def tune_process() -> None:
    """Let this process reuse freed blocks of up to 1 GiB (with glibc), and its waiting threads sleep."""
    for name, value in THREADS_THAT_SLEEP.items():
        os.environ.setdefault(name, value)
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
