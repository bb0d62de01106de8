"""Shared by the tests of the command line and of the store."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator

import pytest
from postgres_server import PostgresServer, running_postgres

from service.cli import main


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


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
