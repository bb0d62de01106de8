"""An artefact is whole or absent: after errors, kills, concurrent builders and replacements."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from preprocessing.artifact import MANIFEST, build, existing, fingerprint, read_manifest, verify, write_json
from preprocessing.errors import ArtifactError, InputError, UsageError


def make(target: Path, text: str, identity: str = "a", *, replace: bool = False) -> None:
    with build(target, "thing", identity) as work:
        (work.path / "data.txt").write_text(text)
        work.publish({"settings": {}}, replace=replace)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_publish_writes_the_manifest_with_hashes_and_renames(tmp_path: Path) -> None:
    make(tmp_path / "out", "hello")
    manifest = read_manifest(tmp_path / "out", "thing")
    assert set(manifest["files"]) == {"data.txt"}
    assert manifest["fingerprint"] == "a"
    assert names(tmp_path) == {"out"}
    verify(tmp_path / "out", "thing")


def test_verify_names_the_file_whose_content_changed(tmp_path: Path) -> None:
    make(tmp_path / "out", "hello")
    (tmp_path / "out" / "data.txt").write_text("hullo")
    with pytest.raises(ArtifactError, match=r"data\.txt"):
        verify(tmp_path / "out", "thing")


def test_content_hash_depends_on_the_files_alone(tmp_path: Path) -> None:
    for name, text in (("one", "same"), ("two", "same"), ("three", "other")):
        make(tmp_path / name, text, identity=name)
    one, two, three = (read_manifest(tmp_path / name, "thing")["content_hash"] for name in ("one", "two", "three"))
    assert one == two != three


def test_input_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError), build(tmp_path / "out", "thing", "a") as work:
        (work.path / "data.txt").write_text("half")
        raise InputError("bad row")
    assert names(tmp_path) == set()


def test_other_failures_leave_the_partial_for_the_same_fingerprint_only(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), build(tmp_path / "out", "thing", "a") as work:
        (work.path / "shard-0").write_text("done")
        raise RuntimeError
    assert not (tmp_path / "out").exists()
    with build(tmp_path / "out", "thing", "a") as work:
        assert work.resumed
        assert (work.path / "shard-0").read_text() == "done"
    with build(tmp_path / "out", "thing", "b") as work:
        assert not work.resumed
        assert not (work.path / "shard-0").exists()


def test_existing_target_is_replaced_only_when_asked(tmp_path: Path) -> None:
    make(tmp_path / "out", "one")
    with pytest.raises(UsageError, match="exists already"):
        make(tmp_path / "out", "two")
    assert (tmp_path / "out" / "data.txt").read_text() == "one"
    make(tmp_path / "out", "two", replace=True)
    assert (tmp_path / "out" / "data.txt").read_text() == "two"
    assert names(tmp_path) == {"out"}


@pytest.mark.parametrize("place", ["out/new", "out/deep/new", "link/new"])
def test_no_output_lies_inside_another_artefact(tmp_path: Path, place: str) -> None:
    make(tmp_path / "out", "hello")
    (tmp_path / "link").symlink_to("out")
    with pytest.raises(UsageError, match=r"the output would lie inside a thing\n") as raised:
        existing(tmp_path / place, "thing", "b", "the thing")
    assert raised.value.expected == f"a path outside of {tmp_path / 'out'}"
    (tmp_path / MANIFEST).write_text('{"name": "a page of the web"}')
    assert existing(tmp_path / "new", "thing", "b", "the thing") is None


def test_a_kill_between_the_two_renames_of_a_replacement_loses_nothing(tmp_path: Path) -> None:
    make(tmp_path / "out", "one")
    (tmp_path / "out").rename(tmp_path / ".out.old")
    with build(tmp_path / "out", "thing", "b"):
        assert (tmp_path / "out" / "data.txt").read_text() == "one"


def test_one_builder_at_a_time(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from preprocessing.artifact import build
        with build(Path(sys.argv[1]), "thing", "a") as work:
            (work.path / "shard-0").write_text("done")
            print("building", flush=True)
            sys.stdin.read()
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "out")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "building\n"
        with pytest.raises(UsageError, match="another process"), build(tmp_path / "out", "thing", "a"):
            pass
        os.kill(other.pid, signal.SIGKILL)
    with build(tmp_path / "out", "thing", "a") as work:
        assert (work.path / "shard-0").read_text() == "done"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no artefact here"),
        ("{", "cannot be read"),
        ("[]", "another kind"),
        ('{"kind": "other", "schema_version": 1}', "another kind"),
        ('{"kind": "thing", "schema_version": 99}', "schema version"),
    ],
)
def test_damaged_manifest_is_one_clear_error(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ArtifactError, match=message):
        read_manifest(tmp_path, "thing")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (os.mkfifo, "no ordinary file"),
        (lambda file: file.symlink_to("/dev/zero"), "no ordinary file"),
        (Path.mkdir, "directory"),
        (lambda file: (file.touch(), os.truncate(file, (64 << 20) + 1)), "67108865 bytes"),
    ],
)
def test_what_never_ends_is_no_manifest(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    make(tmp_path / "manifest.json")
    with pytest.raises(ArtifactError, match=message):
        read_manifest(tmp_path, "graph_bundle")


def test_write_json_leaves_the_old_text_when_the_new_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    write_json(file, {"a": 1})
    with pytest.raises(ValueError, match="JSON"):
        write_json(file, {"a": float("nan")})
    assert json.loads(file.read_text()) == {"a": 1}
    assert names(tmp_path) == {"report.json"}


def test_fingerprint_does_not_depend_on_key_order() -> None:
    assert fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1}) != fingerprint({"a": 1, "b": [3]})
