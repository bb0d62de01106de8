"""``python container.py SPEC.json``: process 1 of a container, as root in namespaces of its own (``box.py``).

The root is this machine's, with what the container writes laid over it, volumes and tmpfs in their places, and read
only where the spec says so. The command then runs as the container's user, without capabilities or a way to gain any.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _root(spec: dict[str, Any]) -> Path:
    """The file system, mounted; it ends with this process."""
    place = Path(spec["place"])
    _mount("--make-rprivate", "/")
    _mount("-t", "tmpfs", "tmpfs", str(place))
    upper, work, root = (place / name for name in ("upper", "work", "root"))
    for folder in (upper, work, root):
        folder.mkdir()
    upper.chmod(0o755)
    _mount("-t", "overlay", "-o", f"lowerdir=/,upperdir={upper},workdir={work}", "overlay", str(root))
    # The tests may be where only root comes to.
    for path in map(Path, spec["visible"]):
        for folder in (path, *path.parents):
            inside = root / folder.relative_to("/")
            inside.chmod(inside.stat().st_mode | 0o055)
    for name, text in spec["files"].items():
        file = root / name.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)

    def inside(target: str) -> str:
        # Links are those of this machine, and lead to where they lead in the container.
        folder = root / str(Path(target).resolve()).lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        return str(folder)

    volumes = [(mount["source"], inside(mount["target"]), mount["read_only"]) for mount in spec["mounts"]]
    tmpfs = [(inside(target), options) for target, _, options in (text.partition(":") for text in spec["tmpfs"])]
    if spec["read_only"]:
        _mount("-o", "remount,ro", str(root))
    _mount("-t", "proc", "proc", str(root / "proc"))
    for name in ("dev", "sys"):
        _mount("--rbind", f"/{name}", str(root / name))
    _mount("-t", "tmpfs", "-o", f"size={spec['shm_size']},mode=1777,noexec,nosuid,nodev", "shm", str(root / "dev/shm"))
    for folder, options in tmpfs:
        _mount("-t", "tmpfs", "-o", "noexec,nosuid,nodev," + (options or "mode=1777"), "tmpfs", folder)
    for path in map(Path, spec["visible"]):
        here = root / path.relative_to("/")
        if not here.exists():
            # They may be where the container has a tmpfs, too.
            here.mkdir(parents=True)
            _mount("--bind", str(path), str(here))
            _mount("-o", "remount,ro,bind", str(here))
    for source, folder, read_only in volumes:
        _mount("--bind", source, folder)
        if read_only:
            _mount("-o", "remount,ro,bind", folder)
    return root


def _become(spec: dict[str, Any]) -> list[str]:
    """The command, by a program that gives up all that root may do, but not to be asked."""
    uid, gid = spec["user"]
    groups = [f"--groups={','.join(map(str, spec['groups']))}"] if spec["groups"] else ["--clear-groups"]
    limits = ["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    # The system forgets with the user that process 1 is to end when unshare does; another is init's child.
    limits += [] if spec["init"] else ["--pdeathsig=KILL"]
    return ["setpriv", f"--reuid={uid}", f"--regid={gid}", *groups, *limits, "--", *spec["argv"]]


def _as_init(command: list[str], environment: dict[str, str]) -> int:
    """What ``init: true`` puts before the command: signals are passed on, orphans collected."""
    child = subprocess.Popen(command, env=environment)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: os.kill(child.pid, number))
    while True:
        ended, status = os.wait()
        if ended == child.pid:
            return os.waitstatus_to_exitcode(status) % 256


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    socket.sethostname(spec["name"])
    root = _root(spec)
    os.chdir(root)
    # The old root is stacked on the new one, and let go of.
    subprocess.run(["pivot_root", ".", "."], check=True)
    os.chroot(".")
    subprocess.run(["umount", "--lazy", "/"], check=True)
    os.chdir("/")
    command, environment = _become(spec), spec["environment"]
    if spec["init"]:
        sys.exit(_as_init(command, environment))
    os.execvpe(command[0], command, environment)


if __name__ == "__main__":
    main()
