import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from preprocessing.kernel_cache import kept, keyed_cache, source_digest


def run(code: str, cache: str | None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = cache
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_change_of_any_source_moves_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    called, calling = package / "inner" / "called.py", package / "calling.py"
    seen = set()
    for text in ("one", "another"):
        for path in (called, calling):
            path.write_text(text)
            monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
            keyed_cache([package])
            seen.add(os.environ["NUMBA_CACHE_DIR"])
    called.rename(package / "called.py")
    seen.add(str(tmp_path / "cache" / f"source-{source_digest([package])}"))
    assert len(seen) == 5
    assert {Path(folder).parent for folder in seen} == {tmp_path / "cache"}


def test_numba_uses_it_and_started_processes_share_it(tmp_path: Path) -> None:
    code = "import trainer.sparse, numba; print(numba.config.CACHE_DIR)"
    first = run(code, str(tmp_path))
    assert Path(first).parent == tmp_path
    assert run(code, first) == first
    assert list(Path(first).rglob("*.nbi"))


def test_the_first_kernel_compiled_is_told_and_one_kept_is_not(tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"

    def warnings(number: int) -> list[str]:
        settings = {"kind": "blocks", "nodes": 100}
        spec.write_text(json.dumps({"out": str(tmp_path / f"tables-{number}"), "settings": settings}))
        events = tmp_path / f"events-{number}"
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kernels"), "RGRL_EVENTS": str(events)}
        subprocess.run([sys.executable, "-m", "preprocessing", "generate", str(spec)], env=environment, check=True)
        told = map(json.loads, events.read_text().splitlines())
        return [event["code"] for event in told if event["event"] == "warning"]

    assert [warnings(number) for number in range(2)] == [["compiling"], []]


@pytest.mark.parametrize("module", ["preprocessing.topology", "preprocessing.push", "trainer.sparse"])
def test_kernels_that_were_compiled_are_found(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    importlib.import_module(module)
    name = module.rpartition(".")[2]
    assert kept(name)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert not kept(name)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / ("n" * 300)))
    assert not kept(name), "a folder that cannot be read has none"
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    assert kept(name), "nothing can be told"


def test_make_fills_the_cache_that_commands_use() -> None:
    makefile = Path(__file__).parents[2] / "Makefile"
    assert "NUMBA_CACHE_DIR" not in makefile.read_text()


def test_without_the_variable_kernels_go_to_the_users_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import preprocessing, os; print(os.environ.get('NUMBA_CACHE_DIR'))"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert Path(run(code, None)).parent == tmp_path / "home" / ".cache" / "rgrl" / "numba"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert Path(run(code, None)).parent == tmp_path / "cache" / "rgrl" / "numba"
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert run(code, None) == "None"
