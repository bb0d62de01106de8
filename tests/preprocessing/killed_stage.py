"""A stage that is killed where a file of its scratch folder shows how far it is, and then started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["SIGNS", "killed_and_run_again"]

SIGNS = {
    "ids": "*/ids/journal.json",
    "checked": "*/features-checked.json",
    "counted": "*/features-counted.json",
    "arcs": "*/arcs/journal.json",
    "rows": "*/arcs/rows.json",
    "written": "*/features-written.json",
}
"""By moment, the file that tells it."""


def killed_and_run_again(stage: str, spec: Path, out: Path, moment: str, hold: str = "") -> None:
    """``stage`` is Python that runs it on the file of its argument; in the end ``out`` is there.

    ``hold`` is run ahead of it where it is killed: it has the stage wait at a moment that is soon over.
    """
    process = subprocess.Popen([sys.executable, "-c", hold + stage, str(spec)], stderr=subprocess.DEVNULL)
    scratch = out.parent / f".{out.name}.partial" / "scratch"
    while not list(scratch.glob(SIGNS[moment])) and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not out.exists()
    done = subprocess.run([sys.executable, "-c", stage, str(spec)], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr
