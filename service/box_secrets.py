"""``python -m service.box_secrets FOLDER``: the secrets of a box (docker-compose.yml), drawn at its first start.

A secret that is there already stays as it is. Who else than our own user reads one is a group, that of the image.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from preprocessing.errors import RgrlError, UsageError
from service.secret_files import write_secret

__all__ = ["DATABASE_PASSWORD", "GRAFANA_PASSWORD", "PGPASS", "RAY_TOKEN", "main", "make_secrets"]

DATABASE_PASSWORD, GRAFANA_PASSWORD, RAY_TOKEN = "database-password", "grafana-password", "ray-token"
PGPASS = "pgpass"
"""The database's password as its clients look for it (PGPASSFILE)."""
POSTGRES_GROUP, GRAFANA_GROUP = 999, 472
"""Of the images postgres (Debian) and grafana/grafana."""


def make_secrets(folder: Path) -> None:
    """Draw those that lack; ``UsageError`` where the folder cannot be written to, or a group is not ours to give."""
    try:
        password = _secret(folder / DATABASE_PASSWORD, POSTGRES_GROUP)
        _secret(folder / GRAFANA_PASSWORD, GRAFANA_GROUP)
        _secret(folder / RAY_TOKEN)
        _secret(folder / PGPASS, text=f"*:*:*:*:{password}\n")
    except OSError as error:
        raise UsageError(
            f"the secrets cannot be written: {error.strerror}",
            given=folder,
            expected=f"a folder that this user may write to, and groups {POSTGRES_GROUP} and {GRAFANA_GROUP}",
            remedy="give the container user and group_add as in docker-compose.yml",
        ) from error


def _secret(path: Path, group: int | None = None, text: str | None = None) -> str:
    """The file's content, which is ``text`` or random unless it was there."""
    if not path.exists():
        write_secret(path, text or secrets.token_urlsafe(32), group)
    return path.read_text(encoding="ascii")


def main(argv: Sequence[str]) -> int:
    """Make them in the folder named."""
    try:
        if len(argv) != 1:
            raise UsageError("one folder is wanted", given=" ".join(argv), expected="FOLDER")
        make_secrets(Path(argv[0]))
    except RgrlError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
