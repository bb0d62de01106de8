"""The script that draws the docs' images."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from service_harness import wait_for

ROOT = Path(__file__).parents[3]


def processes_of(folder: Path) -> list[str]:
    """Commands that name something below it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_text(encoding="utf-8", errors="replace").replace("\0", " ")
        except OSError:
            continue
        if str(folder) in command:
            found.append(command)
    return found


def test_ended_while_it_trains_it_leaves_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "docs" / "screenshots.py")], env=os.environ | {"TMPDIR": str(tmp_path)}
    )
    try:
        wait_for(lambda: any("service.jobs.runner" in command for command in processes_of(tmp_path)))
    finally:
        process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 1
    assert processes_of(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
