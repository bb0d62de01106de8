"""Shared by every test: where the real graphs are, caches outside the caller's home, and the longest file first."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from trainer.process import THREADING

ROOT = Path(__file__).resolve().parent.parent
os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".venv" / "numba-cache"))
# Of the processes that run tests and of those they start: as many as there are cores are at work already, and threads
# that spin take these from one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.update(THREADING)

# A deadline would be a test of the machine.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real graphs; tests that use it carry the mark ``realdata``."""
    folder = Path(os.environ.get("RGRL_DATA_DIR", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real graphs at {folder}; name their folder with RGRL_DATA_DIR")
    return folder


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[Any]]]:
    """``subprocess.Popen``, whose processes do not outlive the test however it ends."""
    processes: list[subprocess.Popen[Any]] = []

    def start(command: list[str], **options: Any) -> subprocess.Popen[Any]:
        processes.append(subprocess.Popen(command, **options))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the file that waits for Ray most first, so that it does not run alone in the end."""
    items.sort(key=lambda item: item.path.name != "test_ray_train.py")
