"""A PostgreSQL server of the test run's own: in a temporary folder, on a socket there, as a user that is not root."""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

# Ordered by a language's rules, in a zone that is not UTC: neither may show.
INITDB = ["--locale-provider=icu", "--icu-locale=en-US", "--locale=C.UTF-8", "--auth=trust", "--no-sync"]
OPTIONS = ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "timezone=Asia/Kathmandu", "-c", "max_connections=100"]


def binaries() -> Path | None:
    """The folder of the newest server's programs; Debian keeps them off the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("postgres")
    return found[-1].parent if found else None if on_path is None else Path(on_path).parent


class PostgresServer:
    """Can be stopped and started again."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self._folder, self._programs = folder, programs
        # The server refuses to run as root.
        self._user = "postgres" if os.geteuid() == 0 else getpass.getuser()
        if os.geteuid() == 0:
            shutil.chown(folder, self._user)
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self._run(str(programs / "initdb"), "-D", str(folder / "data"), "-U", "tests", *INITDB)

    def start(self) -> None:
        log = (self._folder / "log").open("ab")
        command = [self._programs / "postgres", "-D", self._folder / "data", "-k", self._folder, *OPTIONS]
        self._process = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=self._folder, **self._as_user(), start_new_session=True
        )
        log.close()
        end = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self._dsn("postgres")).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < end, (self._folder / "log").read_text()
                time.sleep(0.05)

    def stop(self) -> None:
        """At once, cutting every connection."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.wait(timeout=30)
        self._process = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(timeout=30)

    def new_database(self, options: str = "") -> str:
        """The URL of an empty one, made with more ``options``."""
        self._databases += 1
        name = f"rgrl{self._databases}"
        with psycopg.connect(self._dsn("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} {options}")
        return f"postgresql://tests@/{name}?host={self._folder}"

    def _dsn(self, name: str) -> str:
        return f"host={self._folder} user=tests dbname={name}"

    def _as_user(self) -> dict[str, object]:
        if os.geteuid() != 0:
            return {}
        found = pwd.getpwnam(self._user)
        return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}

    def _run(self, *command: str) -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self._folder, **self._as_user())


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """A server, or a skipped test where the machine has none."""
    programs = binaries()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed (Debian: apt-get install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="rgrl-postgres-"))
    try:
        server = PostgresServer(folder, programs)
        try:
            server.start()
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder)
