"""What this machine offers, and what is missing and how to get it.

torch is asked in a process of its own: the service must run, and say what is wrong, where torch does not.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from service.machine import machine
from trainer.settings import SAMPLER_SOURCES

__all__ = ["Finding", "examine"]

PACKAGES = (
    "rgrl",
    "numpy",
    "numba",
    "pyarrow",
    "faiss-cpu",
    "fastapi",
    "sqlalchemy",
    "torch",
    "torch-geometric",
    "ray",
)
INSTEAD = {"faiss-cpu": "faiss-gpu-cu12"}
"""Builds that do as well, as the image for GPUs has them."""
PROBE = """
import json, torch
print(json.dumps({"threads": torch.get_num_threads(),
                  "cuda": [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]}))
"""
PROBE_TIMEOUT_S = 120
GIB = 1 << 30
LOW_DISK = 5 * GIB
LOW_SHM = 1 * GIB


@dataclass(frozen=True)
class Finding:
    """One thing looked at; ``remedy`` is what to do, or may be done where it is ``ok``."""

    name: str
    state: Literal["ok", "warning", "missing"]
    detail: str
    remedy: str | None = None


def examine(home: Path) -> list[Finding]:
    """Look at versions, devices, shared memory, disk and caches, for a server whose home is ``home``."""
    looks: tuple[Callable[[], Iterator[Finding]], ...] = (
        _python,
        _packages,
        _samplers,
        _devices,
        _shared_memory,
        lambda: _disk(home),
        _numba_cache,
    )
    return [finding for look in looks for finding in look()]


def _python() -> Iterator[Finding]:
    yield Finding("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def _packages() -> Iterator[Finding]:
    for name in PACKAGES:
        for build in filter(None, (name, INSTEAD.get(name))):
            try:
                yield Finding(build, "ok", version(build))
                break
            except PackageNotFoundError:
                continue
        else:
            yield Finding(name, "missing", "not installed", f"pip install {name}")


def _samplers() -> Iterator[Finding]:
    """``batch.sampler``: one that is absent is no fault, and only its own setting needs it."""
    yield Finding("sampler", "ok", "numba, on the memory-mapped graph")
    for name, source in SAMPLER_SOURCES.items():
        try:
            yield Finding(f"sampler {name}", "ok", version(name))
        except PackageNotFoundError:
            yield Finding(f"sampler {name}", "ok", "not installed; only batch.sampler = " + name + " needs it", source)


def _devices() -> Iterator[Finding]:
    here = machine()
    yield Finding("cores", "ok", str(here.cores))
    yield Finding("memory", "ok", f"{here.memory / GIB:.1f} GiB")
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", PROBE], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=True
        )
        told = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        yield Finding(
            "torch devices",
            "missing",
            _last_line(error),
            "reinstall torch; without a GPU: pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu",
        )
        return
    yield Finding("torch threads", "ok", str(told["threads"]))
    if told["cuda"]:
        yield Finding("cuda", "ok", ", ".join(told["cuda"]))
    elif here.gpus:
        remedy = "install a CUDA build of torch that fits the driver (nvidia-smi shows which)"
        yield Finding("cuda", "warning", f"{here.gpus} devices that torch does not see", remedy)
    else:
        yield Finding("cuda", "ok", "no device: training runs on the CPU")


def _shared_memory() -> Iterator[Finding]:
    try:
        size = shutil.disk_usage("/dev/shm").total
    except OSError:
        yield Finding("/dev/shm", "warning", "absent", "mount a tmpfs there: Ray's object store lives in it")
        return
    if size < LOW_SHM:
        remedy = "give the container more (docker run --shm-size=2g): Ray falls back to slow files in /tmp"
        yield Finding("/dev/shm", "warning", f"{size / GIB:.2f} GiB", remedy)
    else:
        yield Finding("/dev/shm", "ok", f"{size / GIB:.1f} GiB")


def _disk(home: Path) -> Iterator[Finding]:
    place = next(folder for folder in (home.absolute(), *home.absolute().parents) if folder.exists())
    free = shutil.disk_usage(place).free
    detail = f"{free / GIB:.1f} GiB free at {place}"
    if not os.access(place, os.W_OK):
        yield Finding("disk", "missing", f"{place} is not writable", "name another home with --home or RGRL_HOME")
    elif free < LOW_DISK:
        yield Finding("disk", "warning", detail, "free some, or name another home with --home or RGRL_HOME")
    else:
        yield Finding("disk", "ok", detail)


def _numba_cache() -> Iterator[Finding]:
    folder = os.environ.get("NUMBA_CACHE_DIR")
    if folder is None:
        remedy = "set NUMBA_CACHE_DIR to a writable folder that stays, or kernels may be compiled at every start"
        yield Finding("numba cache", "warning", "beside the installed code", remedy)
        return
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            yield Finding("numba cache", "ok", folder)
    except OSError as error:
        yield Finding("numba cache", "warning", str(error), "set NUMBA_CACHE_DIR to a writable folder that stays")


def _last_line(error: Exception) -> str:
    text = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
    lines = (text or str(error)).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
