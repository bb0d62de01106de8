"""The server's memory under mixed load, and a short storm of faults: the benchmarks' quick runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("script", ["mixed_load.py", "faults.py"])
def test_the_quick_run_finds_nothing(script: str) -> None:
    command = [sys.executable, str(BENCHMARKS / script), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=BENCHMARKS.parent)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])["claim"]
