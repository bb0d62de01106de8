"""Files that a server will search are read when it starts: those, in their order, and none that memory lacks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from embedding_fixtures import QUICK_MAP, add_set, settings, write_set

from preprocessing.errors import UsageError
from preprocessing.stage import Emitter
from service import machine, read_ahead
from service.machine import available_memory
from service.search.embedding_set import EmbeddingSet
from service.search.index_settings import IndexSettings
from service.search.indexing import build_index
from service.search.warm_start import begin_reading
from service.store import Store


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, int, int]]:
    """Files, and the bytes of them, that were read."""
    calls: list[tuple[Path, int, int]] = []

    really = os.sendfile

    def asking(to: int, file: int, start: int, length: int) -> int:
        assert Path(f"/proc/self/fd/{to}").readlink() == Path(os.devnull)
        sent = really(to, file, start, length)
        calls.append((Path(f"/proc/self/fd/{file}").readlink(), start, sent))
        return sent

    monkeypatch.setattr(os, "sendfile", asking)
    return calls


def file_of(path: Path, size: int) -> Path:
    path.write_bytes(b"x" * size)
    return path


def test_every_byte_is_read_in_order(
    tmp_path: Path, asked: list[tuple[Path, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "STEP", 131_072)
    files = [file_of(tmp_path / name, size) for name, size in (("b", 300_000), ("empty", 0), ("a", 131_072))]
    read_ahead.read_ahead([files[0], tmp_path / "gone", tmp_path, *files[1:]]).join()
    first, last, step = files[0].resolve(), files[2].resolve(), 131_072
    assert asked == [(first, 0, step), (first, step, step), (first, 2 * step, 300_000 - 2 * step), (last, 0, step)]


def test_a_file_that_half_of_the_memory_cannot_hold_is_left_out(
    tmp_path: Path, asked: list[tuple[Path, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "available_memory", lambda: 2000)
    files = [file_of(tmp_path / name, size) for name, size in (("one", 600), ("large", 500), ("small", 400))]
    read_ahead.read_ahead(files).join()
    assert [file.name for file, _, _ in asked] == ["one", "small"]


@pytest.mark.parametrize(
    ("stat", "available"),
    [("anon 700\ninactive_file 250\n", 350), ("anon 700\ninactive_file 0\n", 100), ("", None), (None, None)],
)
def test_a_control_groups_memory_counts(
    tmp_path: Path, stat: str | None, available: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of files that nobody has used lately can be had."""
    monkeypatch.setattr(machine, "_GROUP", tmp_path)
    whole = available_memory()
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("900\n")
    if stat is not None:
        (tmp_path / "memory.stat").write_text(stat)
    found = available_memory()
    assert found == available if available is not None else found > whole // 2
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory() > whole // 2


def indexed_set(path: Path, kind: str = "hnsw") -> Path:
    write_set(path, np.random.default_rng(1).standard_normal((30, 4)).astype(np.float32))
    build_index(path, IndexSettings.model_validate({"kind": kind}), Emitter("index"))
    return path


def test_a_start_asks_for_the_sets_that_aliases_name_the_newest_first(
    tmp_path: Path, asked: list[tuple[Path, int, int]]
) -> None:
    given = settings(tmp_path / "home", open_embeddings=3)
    store = Store(given)
    paths = [indexed_set(tmp_path / name) for name in ("no alias", "oldest", "older", "scanned", "gone", "newest")]
    build_index(paths[3], IndexSettings(kind="exact", projection=QUICK_MAP), Emitter("index"))
    for path in paths:
        identity = add_set(store, path)
        for alias in ("", "again ") if path.name != "no alias" else ():
            store.put_alias(f"{alias}{path.name}".replace(" ", "-"), identity)
    store.close()
    for file in ("index/index.faiss", "vectors.npy"):
        (tmp_path / "gone" / file).unlink()
    reading = begin_reading(given)
    assert reading is not None
    reading.join()
    names = [str(file.relative_to(tmp_path.resolve())) for file, _, _ in asked]
    assert names == ["newest/index/index.faiss", "newest/vectors.npy", "scanned/vectors.npy"]


def test_a_home_without_a_set_asks_for_nothing(tmp_path: Path, asked: list[tuple[Path, int, int]]) -> None:
    assert begin_reading(settings(tmp_path / "home")) is None
    assert not (tmp_path / "home").exists()
    Store(settings(tmp_path / "home")).close()
    reading = begin_reading(settings(tmp_path / "home"))
    assert reading is not None
    reading.join()
    assert asked == []


def test_an_index_that_no_alias_named_is_asked_for_when_it_is_opened(
    tmp_path: Path, asked: list[tuple[Path, int, int]]
) -> None:
    path = indexed_set(tmp_path / "set")
    EmbeddingSet(path).space()
    for thread in threading.enumerate():
        if thread.name == "read-ahead":
            thread.join()
    assert [file.name for file, _, _ in asked] == ["index.faiss"]


def test_serve_begins_before_it_loads_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rgrl: Callable[..., tuple[int, str, str]]
) -> None:
    def begin(given: object) -> None:
        raise UsageError(f"asked first, for {given.home.name}")  # type: ignore[attr-defined]

    monkeypatch.setattr("service.search.warm_start.begin_reading", begin)
    monkeypatch.setattr("service.api.serve.serve", None)
    assert "asked first, for home" in rgrl("serve", "--home", tmp_path / "home")[2]
