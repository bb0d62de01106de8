"""What a box makes of secrets at its first start: by whom they are read, and that none is made twice."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from preprocessing.errors import UsageError
from service import box_secrets
from service.box_secrets import DATABASE_PASSWORD, GRAFANA_PASSWORD, PGPASS, RAY_TOKEN, make_secrets
from service.settings import ServiceSettings


@pytest.fixture
def own_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups that this process may give, whoever runs the tests."""
    for name in ("POSTGRES_GROUP", "GRAFANA_GROUP"):
        monkeypatch.setattr(box_secrets, name, os.getegid())


def modes(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


def test_secrets_are_made_once_and_read_by_those_they_are_for(own_groups: None, tmp_path: Path) -> None:
    make_secrets(tmp_path)
    assert modes(tmp_path) == {DATABASE_PASSWORD: 0o640, GRAFANA_PASSWORD: 0o640, RAY_TOKEN: 0o600, PGPASS: 0o600}
    before = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert len(set(before.values())) == 4
    assert min(map(len, before.values())) >= 43, "256 bits each"
    assert before[PGPASS] == f"*:*:*:*:{before[DATABASE_PASSWORD]}\n"
    make_secrets(tmp_path)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == before


def test_a_kill_leaves_nothing_half_made(own_groups: None, tmp_path: Path) -> None:
    (tmp_path / f".{PGPASS}.partial").write_text("*:*:*")
    make_secrets(tmp_path)
    assert set(modes(tmp_path)) == {DATABASE_PASSWORD, GRAFANA_PASSWORD, RAY_TOKEN, PGPASS}
    assert (tmp_path / PGPASS).read_text().endswith((tmp_path / DATABASE_PASSWORD).read_text() + "\n")


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["/nowhere/at/all"]])
def test_what_cannot_be_is_one_error(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "service.box_secrets", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "expected:" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_clusters_token_is_found_as_ray_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RGRL_RAY_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    assert ServiceSettings().ray_auth_token is None
    (tmp_path / "token").write_text("of the file\n")
    for name, value, expected in (
        ("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"), "of the file"),
        ("RAY_AUTH_TOKEN", "of ray", "of ray"),
        ("RGRL_RAY_AUTH_TOKEN", "ours", "ours"),
    ):
        monkeypatch.setenv(name, value)
        token = ServiceSettings().ray_auth_token
        assert token is not None
        assert token.get_secret_value() == expected
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "absent"))
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    monkeypatch.delenv("RGRL_RAY_AUTH_TOKEN")
    with pytest.raises(UsageError, match="cannot be read"):
        ServiceSettings()
