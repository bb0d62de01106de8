"""What was hashed once is known again, and no change of any kind goes unseen."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from embedding_fixtures import QUICK_MAP, write_bundle, write_set

from preprocessing.artifact import read_manifest
from preprocessing.errors import ArtifactError
from preprocessing.stage import Emitter
from service import verified
from service.jobs.made import verify_made
from service.search.index_settings import IndexSettings
from service.search.indexing import build_index
from service.verified import VerifiedFiles, served


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return write_set(tmp_path / "set", np.random.default_rng(0).random((50, 4), dtype=np.float32))


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that were read to the end."""
    names: list[str] = []
    really = verified.hash_file

    def counting(path: Path) -> str:
        names.append(path.name)
        return really(path)

    monkeypatch.setattr(verified, "hash_file", counting)
    return names


def files_of(made: Path) -> dict[str, str]:
    return served(read_manifest(made, "embedding_set")["files"])


def test_a_file_is_read_once_and_by_later_processes_not_at_all(made: Path, tmp_path: Path, hashed: list[str]) -> None:
    known = VerifiedFiles(tmp_path / "known")
    for _time in range(3):
        known.check(made, files_of(made))
    assert sorted(hashed) == ["ids.npy", "vectors.npy"]
    VerifiedFiles(tmp_path / "known").check(made, files_of(made))
    assert len(hashed) == 2
    VerifiedFiles().check(made, files_of(made))
    assert len(hashed) == 4


def written_into(file: Path) -> None:
    with file.open("r+b") as handle:
        handle.seek(200)
        handle.write(b"\xff\x01")


def written_into_and_dated_back(file: Path) -> None:
    before = file.stat()
    written_into(file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def another_in_its_place(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(file.read_bytes()[:-1] + b"\xaa")
    other.replace(file)


def cut_short(file: Path) -> None:
    os.truncate(file, 100)


@pytest.mark.parametrize(
    "change", [written_into, written_into_and_dated_back, another_in_its_place, cut_short, Path.unlink]
)
@pytest.mark.parametrize("name", ["vectors.npy", "ids.npy"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_known_file_that_changes_is_found(
    made: Path, tmp_path: Path, change: Callable[[Path], None], name: str, restarted: bool
) -> None:
    known = VerifiedFiles(tmp_path / "known")
    known.check(made, files_of(made))
    whole = (made / name).read_bytes()
    change(made / name)
    known = VerifiedFiles(tmp_path / "known") if restarted else known
    for _time in range(2):
        with pytest.raises(ArtifactError, match=f"{name} is missing or its content changed"):
            known.check(made, files_of(made))
    (made / name).write_bytes(whole)
    known.check(made, files_of(made))


def test_a_name_that_leads_out_is_never_opened(made: Path, tmp_path: Path, hashed: list[str]) -> None:
    (tmp_path / "secret").write_text("x")
    with pytest.raises(ArtifactError):
        VerifiedFiles().check(made, {"../secret": "0" * 64})
    assert hashed == []


@pytest.mark.parametrize("content", [b"", b"[]", b'{"files": []}', b"\xff\xfe"])
def test_a_damaged_record_costs_a_reading(made: Path, tmp_path: Path, hashed: list[str], content: bytes) -> None:
    VerifiedFiles(tmp_path / "known").check(made, files_of(made))
    (record,) = (tmp_path / "known").glob("*.json")
    record.write_bytes(content)
    VerifiedFiles(tmp_path / "known").check(made, files_of(made))
    VerifiedFiles(tmp_path / "known").check(made, files_of(made))
    assert len(hashed) == 4


def test_a_record_that_cannot_be_written_stops_nobody(made: Path, tmp_path: Path) -> None:
    (tmp_path / "known").write_text("a file, where the folder would be")
    VerifiedFiles(tmp_path / "known").check(made, files_of(made))


def test_records_of_what_is_gone_are_dropped(made: Path, tmp_path: Path) -> None:
    known = VerifiedFiles(tmp_path / "known")
    known.check(made, files_of(made))
    known.tidy()
    assert len(list((tmp_path / "known").iterdir())) == 1
    made.rename(tmp_path / "elsewhere")
    known.tidy()
    assert list((tmp_path / "known").iterdir()) == []


def test_what_a_stage_made_is_known_when_the_server_opens_it(tmp_path: Path, made: Path, hashed: list[str]) -> None:
    write_bundle(tmp_path / "bundle", 50, [(0, 1)])
    build_index(made, IndexSettings(kind="hnsw", projection=QUICK_MAP), Emitter("index"))
    known = VerifiedFiles(tmp_path / "known")
    verify_made("ingest", {"out": str(tmp_path / "bundle")}, known)
    verify_made("train", {"out": str(made)}, known)
    verify_made("index", {"embeddings": str(made)}, known)
    verify_made("evaluate", {"embeddings": str(made)}, known)
    found = sorted(hashed)
    assert {"index.faiss", "vectors.npy", "indptr.npy", "indices.npy"} <= set(found)
    later = VerifiedFiles(tmp_path / "known")
    later.check(tmp_path / "bundle", served(read_manifest(tmp_path / "bundle", "graph_bundle")["files"]))
    later.check(made, files_of(made))
    later.check(made / "index", read_manifest(made / "index", "knn_index")["files"])
    assert sorted(hashed) == found


def test_features_and_tables_are_not_read_for_answers() -> None:
    files = ["features/dense.npy", "part-00000.parquet", "ids.parquet", "labels.parquet", "topology/indptr.npy"]
    assert list(served(dict.fromkeys(files, ""))) == ["labels.parquet", "topology/indptr.npy"]
