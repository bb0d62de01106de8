"""Shared by the tests of the command line and of the store."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from postgres_server import PostgresServer, running_postgres

from service.cli import main


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of its own, of 8 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no file system may be mounted here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


@pytest.fixture
def rgrl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command in this process: exit code, standard output, standard error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rgrl", *map(str, arguments)])
        capsys.readouterr()
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        with pytest.raises(SystemExit) as ended:
            main()
        # `serve` sets up logging for its process, which goes on here.
        root.handlers[:] = handlers
        root.setLevel(level)
        code = ended.value.code
        return (code if isinstance(code, int) else 0, *capsys.readouterr())

    return run
