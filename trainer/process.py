"""How a process that computes on CPUs uses memory and threads; to be set before torch and numpy are imported.

The C library gives large blocks back to the kernel as soon as they are freed and asks for new ones, whose pages it
must fault in and clear: an elementwise operation on 40 MB then takes 19 ms instead of 4. A training step frees and
allocates the same sizes all over again. OpenMP's threads wait for their next work by spinning, on the cores that our
own kernels' threads want: an epoch of Coauthor CS takes a tenth longer. And those threads call numpy's products, which
must not start threads of their own in each.
"""

from __future__ import annotations

import ctypes
import os
import sys

__all__ = ["THREADING", "release_memory", "tune_process"]

THREADING = {"OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_NUM_THREADS": "1"}
"""For the environment of processes that are started."""

# mallopt(3) of glibc.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 1 << 30


def tune_process() -> None:
    """Let this process reuse freed blocks of up to 1 GiB (with glibc), and set ``THREADING``."""
    for name, value in THREADING.items():
        os.environ.setdefault(name, value)
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def release_memory() -> None:
    """Give freed blocks back to the kernel (with glibc).

    Mini-batches differ in size, so that blocks that are reused leave gaps, and the process grows for hours.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
