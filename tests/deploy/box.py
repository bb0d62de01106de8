"""The services of docker-compose.yml as containers without an engine: namespaces, one network, the very commands.

What an engine would do is done as it does it: the order and conditions of ``depends_on``, environment, user, volumes
that keep what a container leaves, no way to write elsewhere, names of those in the same networks alone. Images are this
machine's files, with our sources in place of an installed rgrl, and a stand-in for the entry point of postgres.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from compose_file import ROOT, Service, in_order, services
from postgres_server import binaries

CONTAINER = Path(__file__).with_name("container.py")
NETWORK = """
import fcntl, signal, socket, struct
with socket.socket() as asked:
    fcntl.ioctl(asked, 0x8914, struct.pack("16sh", b"lo", 0x49))  # SIOCSIFFLAGS: up and running
print("up", flush=True)
signal.pause()
"""
POSTGRES = """#!/bin/sh
# What docker-entrypoint.sh of the image postgres does, as far as docker-compose.yml uses it.
set -e
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    initdb --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth-local=trust --auth-host=scram-sha-256
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    pg_ctl --pgdata="$PGDATA" --options="-c listen_addresses=" --wait start
    [ "$POSTGRES_DB" = postgres ] || createdb --username="$POSTGRES_USER" --maintenance-db=postgres "$POSTGRES_DB"
    pg_ctl --pgdata="$PGDATA" --mode=fast --wait stop
fi
exec "$@" -c listen_addresses='*' -c unix_socket_directories=/var/run/postgresql
"""
PR_SET_PDEATHSIG = 1
USERS = {10001: "rgrl", 999: "postgres", 65534: "nobody", 472: "grafana"}
HEALTHY_WITHIN_S = 60.0
_SIZES = {"mb": 2**20, "gb": 2**30}


def why_not() -> str | None:
    """What this machine lacks for containers."""
    if os.geteuid() != 0:
        return "containers are made by root alone"
    if shutil.which("unshare") is None or shutil.which("setpriv") is None:
        return "util-linux is not installed"
    tried = subprocess.run(["unshare", "--mount", "--pid", "--net", "--uts", "--fork", "true"], capture_output=True)
    if tried.returncode != 0:
        return f"this machine permits no namespaces ({tried.stderr.decode().strip()})"
    for program, package in (("prometheus", "prometheus"), ("wget", "wget")):
        if shutil.which(program) is None:
            return f"{program} is not installed (Debian: apt-get install {package})"
    return "PostgreSQL is not installed (Debian: apt-get install postgresql)" if binaries() is None else None


def die_with(parent: int) -> Callable[[], None]:
    """For a process about to become another program: it is killed when ``parent`` ends, however that ends.

    That outlasts nsenter and unshare, whose ``--kill-child`` has a container's process 1 killed, and so all others.
    """
    libc = ctypes.CDLL(None)

    def before() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return before


@dataclass
class _Running:
    process: subprocess.Popen[bytes]
    first: int
    """The container's process 1, as this machine numbers it."""


class Box:
    """The containers of some services, and what is theirs, below ``folder``."""

    def __init__(self, folder: Path, chosen: Iterable[str]) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.data.mkdir()
        all_of_them = services({"RGRL_DATA": str(self.data)})
        self.services = {service.name: service for service in in_order(chosen, all_of_them)}
        self.ended: dict[str, int] = {}
        self._addresses = {name: f"127.0.0.{number}" for number, name in enumerate(self.services, 2)}
        self._running: dict[str, _Running] = {}
        self._network = subprocess.Popen(
            ["unshare", "--net", sys.executable, "-c", NETWORK],
            stdout=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=die_with(os.getpid()),
        )
        assert self._network.stdout is not None
        assert self._network.stdout.readline() == b"up\n"

    def up(self) -> None:
        """Start all, each when those it waits for are as far as it says."""
        for service in self.services.values():
            for needed, condition in service.after.items():
                if condition == "service_completed_successfully":
                    assert self.wait(needed) == 0, self.log(needed)
                else:
                    assert condition == "service_healthy"
                    self.wait_healthy(needed)
            self.start(service.name)
        for name, service in self.services.items():
            if service.health is not None and name in self._running:
                self.wait_healthy(name)

    def start(self, name: str) -> None:
        """Start one, with the volumes as they are."""
        service = self.services[name]
        place = self.folder / "roots" / name
        place.mkdir(parents=True, exist_ok=True)
        spec = self.folder / f"{name}.json"
        spec.write_text(json.dumps(self._spec(service, place)))
        inside = ["nsenter", f"--net=/proc/{self._network.pid}/ns/net"]
        alone = ["unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child"]
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*inside, *alone, sys.executable, str(CONTAINER), str(spec)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with(os.getpid()),
            )
        self._running[name] = _Running(process, self._first(process, name))

    def healthy(self, name: str) -> bool:
        """Run the health check inside."""
        check = self.services[name].health
        assert check is not None
        assert check[0] == "CMD"
        return self.execute(name, check[1:]).returncode == 0

    def wait_healthy(self, name: str) -> None:
        """Until it is; its log if it is not in time, or has ended."""
        end = time.monotonic() + HEALTHY_WITHIN_S
        while not self.healthy(name):
            assert self._running[name].process.poll() is None, f"{name} ended: {self.log(name)}"
            assert time.monotonic() < end, f"{name} is not healthy: {self.log(name)}"
            time.sleep(0.2)

    def execute(self, name: str, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """What ``docker compose exec`` does."""
        service = self.services[name]
        uid, gid = _ids(service)
        target = f"--target={self._running[name].first}"
        environment = {**self._environment(service), "PATH": self._path(service)}
        return subprocess.run(
            [
                *("nsenter", target, "--mount", "--pid", "--uts", f"--net=/proc/{self._network.pid}/ns/net"),
                *("setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs", "--", *command),
            ],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def kill(self, name: str) -> None:
        """As ``docker kill``: process 1 takes all others with it."""
        running = self._running.pop(name)
        with suppress(ProcessLookupError):
            os.kill(running.first, signal.SIGKILL)
        running.process.wait(timeout=20)

    def stop(self, name: str) -> float:
        """As ``docker stop``, but it fails the test if the grace was not enough; the seconds that it took."""
        running = self._running.pop(name)
        began = time.monotonic()
        os.kill(running.first, signal.SIGINT if "postgres" in self.services[name].image else signal.SIGTERM)
        grace = self.services[name].raw.get("stop_grace_period", "10s")
        running.process.wait(timeout=float(grace.removesuffix("s")))
        return time.monotonic() - began

    def wait(self, name: str) -> int:
        """For the end of one that ends by itself; its exit status."""
        if name not in self.ended:
            self.ended[name] = self._running.pop(name).process.wait(timeout=30)
        return self.ended[name]

    def log(self, name: str) -> str:
        """The end of what it has said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-4000:]

    def volume(self, name: str) -> Path:
        """Where a named volume is on this machine."""
        return self.folder / "volumes" / name

    @contextmanager
    def inside(self) -> Iterator[None]:
        """This thread in the box's network."""
        with (
            Path("/proc/thread-self/ns/net").open() as ours,
            Path(f"/proc/{self._network.pid}/ns/net").open() as theirs,
        ):
            _enter(theirs.fileno())
            try:
                yield
            finally:
                _enter(ours.fileno())

    def close(self) -> None:
        """End all."""
        for name in list(self._running):
            self.kill(name)
        self._network.kill()
        self._network.wait()
        assert self._network.stdout is not None
        self._network.stdout.close()

    def _spec(self, service: Service, place: Path) -> dict[str, object]:
        uid, gid = _ids(service)
        mounts = []
        for mount in service.mounts:
            source = Path(mount.source)
            if "/" not in mount.source:
                source = self.volume(mount.source)
                if not source.exists():
                    # A new named volume is as the image has the folder: its user's.
                    source.mkdir(parents=True)
                    os.chown(source, uid, gid)
            elif not source.is_absolute():
                source = ROOT / source
            mounts.append({"source": str(source), "target": mount.target, "read_only": mount.read_only})
        ours = service.image.startswith("rgrl:")
        if ours:
            mounts.append({"source": sys.prefix, "target": "/opt/rgrl", "read_only": True})
        programs = binaries()
        shm = service.raw.get("shm_size", "64mb")
        argv = [f"{programs}/{word}" if word == "postgres" else word for word in service.argv]
        return {
            "name": service.name,
            "place": str(place),
            "argv": argv,
            "environment": {**self._environment(service), "PATH": self._path(service)},
            "user": [uid, gid],
            "groups": [int(group) for group in service.groups],
            "mounts": mounts,
            "tmpfs": service.tmpfs,
            "read_only": service.raw.get("read_only", False),
            "init": service.raw.get("init", False),
            "shm_size": int(shm[:-2]) * _SIZES[shm[-2:]],
            "visible": [str(ROOT), sys.prefix, sys.base_prefix],
            "files": {
                "/etc/hosts": self._hosts(service),
                "/etc/passwd": "root:x:0:0::/root:/bin/sh\n"
                + "".join(f"{name}:x:{number}:{number}::/home/{name}:/bin/sh\n" for number, name in USERS.items()),
                "/usr/local/bin/docker-entrypoint.sh": POSTGRES,
            },
        }

    def _environment(self, service: Service) -> dict[str, str]:
        ours = {"PYTHONPATH": str(ROOT)} if service.image.startswith("rgrl:") else {}
        return {"HOME": f"/home/{USERS[_ids(service)[0]]}", **service.environment, **ours}

    def _path(self, service: Service) -> str:
        return f"{service.environment.get('PATH', '/usr/local/bin:/usr/bin:/bin')}:{binaries()}"

    def _hosts(self, service: Service) -> str:
        """Names of those in a network with it, as the engine's name server answers them."""
        lines = ["127.0.0.1 localhost"]
        for other in self.services.values():
            names = [
                name for network in service.networks.keys() & other.networks.keys() for name in other.networks[network]
            ]
            if names or other is service:
                lines.append(" ".join([self._addresses[other.name], other.name, *names]))
        return "\n".join(lines) + "\n"

    def _first(self, process: subprocess.Popen[bytes], name: str) -> int:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        end = time.monotonic() + 10
        while not (found := children.read_text().split()):
            assert process.poll() is None, self.log(name)
            assert time.monotonic() < end
            time.sleep(0.01)
        return int(found[0])


def _ids(service: Service) -> tuple[int, int]:
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", service.user), f"{service.name} runs as {service.user or 'root'}"
    uid, gid = service.user.split(":")
    return int(uid), int(gid)


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, 0x40000000) != 0:
        raise OSError(ctypes.get_errno(), "setns")
