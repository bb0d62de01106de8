"""A Ray cluster of one machine, for tests: started by Ray's own command, ended by the processes that carry its mark."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx2
import psutil

MARK = "RGRL_TEST_CLUSTER"
REPOSITORY = Path(__file__).parents[2]
START_WITHIN_S = 60.0


class RayCluster:
    """Two CPUs and a dashboard on a port that stays the same when it is started again."""

    def __init__(self, token: str | None = None) -> None:
        self.mark = uuid.uuid4().hex
        self.token = token
        self.port = _free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        self.folder = Path()
        self.folders: list[Path] = []

    def start(self) -> None:
        # Unix sockets have short paths.
        self.folder = Path(tempfile.mkdtemp(prefix="rgrl-cluster-", dir="/tmp"))
        self.folders.append(self.folder)
        auth = {"RAY_AUTH_MODE": "disabled"} if self.token is None else {"RAY_AUTH_MODE": "token"}
        auth |= {} if self.token is None else {"RAY_AUTH_TOKEN": self.token}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "RGRL_"))}
        environment = (
            inherited
            | auth
            | {
                MARK: self.mark,
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "PYTHONPATH": str(REPOSITORY),
                "RAY_USAGE_STATS_ENABLED": "0",
                "RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE": "1",
                "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
                "RAY_worker_niceness": "0",
            }
        )
        ports = {name: _free_port() for name in ("port", "dashboard-agent-listen-port", "ray-client-server-port")}
        options = [f"--{name}={port}" for name, port in ports.items()]
        with (self.folder / "start.log").open("wb") as output:
            self.process = subprocess.Popen(
                [
                    *(
                        sys.executable,
                        "-c",
                        "from ray.scripts.scripts import main; main()",
                        "start",
                        "--head",
                        "--block",
                    ),
                    *("--num-cpus=2", "--num-gpus=0", "--include-dashboard=true", "--disable-usage-stats"),
                    *("--dashboard-host=127.0.0.1", f"--dashboard-port={self.port}", f"--temp-dir={self.folder}"),
                    *("--object-store-memory=80000000", *options),
                ],
                env=environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._wait()

    def _wait(self) -> None:
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        end = time.monotonic() + START_WITHIN_S
        while time.monotonic() < end:
            assert self.process is not None
            assert self.process.poll() is None, (self.folder / "start.log").read_text()
            try:
                url = f"{self.address}/api/v0/nodes?detail=1"
                found = httpx2.get(url, headers=headers, timeout=10.0, trust_env=False)
                if found.status_code == 200 and found.json()["data"]["result"]["result"]:
                    return
            except httpx2.TransportError:
                pass
            time.sleep(0.2)
        raise AssertionError(f"the cluster did not start: {(self.folder / 'start.log').read_text()}")

    def kill(self) -> None:
        """SIGKILL to Ray's own processes: what it ran finds out for itself."""
        for process in self._processes():
            try:
                if MARK in process.environ() and "RGRL_JOB" not in process.environ() and not _is_watcher(process):
                    process.kill()
            except psutil.Error:
                continue
        assert self.process is not None
        self.process.wait(timeout=20)

    def __enter__(self) -> RayCluster:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        end = time.monotonic() + 20.0
        while (left := list(self._processes())) and time.monotonic() < end:
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            if self.process is not None:
                self.process.poll()
            time.sleep(0.1)
        if self.process is not None:
            self.process.wait(timeout=20)
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _processes(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark:
                    yield process
            except psutil.Error:
                continue


def _is_watcher(process: psutil.Process) -> bool:
    """Ray's shell that ends a job's entrypoint when its supervisor is gone."""
    return "kill -s 0" in " ".join(process.cmdline())


def _free_port() -> int:
    """One below those that Ray's workers take, and that the system gives to clients."""
    for port in range(6500 + os.getpid() % 1000, 10000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            if port not in _TAKEN:
                _TAKEN.add(port)
                return port
    raise AssertionError("no free port")


_TAKEN: set[int] = set()
