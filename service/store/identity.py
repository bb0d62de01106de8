"""Which home a home is. Its path does not say: another machine has it too, and a home may be deleted and made anew."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from preprocessing.artifact import read_plain, write_json
from preprocessing.errors import ArtifactError
from service.identifiers import new_id

__all__ = ["IDENTITY", "KIND", "give_identity", "read_identity"]

IDENTITY, KIND = "home.json", "home"


def give_identity(home: Path) -> None:
    """Give ``home`` an id of its own, unless it has one, or the disk takes none: its path alone tells it then."""
    if (home / IDENTITY).exists():
        return
    with suppress(OSError), tempfile.TemporaryDirectory(prefix=f".{IDENTITY}.", dir=home) as folder:
        write_json(Path(folder, IDENTITY), {"id": new_id("home"), "kind": KIND})
        # Of several processes that open a new home the first names it.
        os.link(Path(folder, IDENTITY), home / IDENTITY)


def read_identity(home: Path) -> str | None:
    """The id of ``home``; None where it has none, as the homes of earlier versions.

    ``ArtifactError`` for one that cannot be read: it is not known then which home this is.
    """
    file = home / IDENTITY
    try:
        found = json.loads(read_plain(file))
        if found["kind"] == KIND and isinstance(found["id"], str):
            return str(found["id"])
        why = "it is of another kind"
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        why = str(error) or type(error).__name__
    raise ArtifactError(
        f"the home's id cannot be read: {why}",
        where=str(file),
        remedy="put back what was there, or delete it: the home is known by its path alone then",
    )
