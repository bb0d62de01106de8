"""What requests name is held under the configured roots: paths with links and ``..`` resolved, URIs as they are."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from preprocessing.errors import InputError, UsageError
from service.errors import ForbiddenError

__all__ = ["check_roots", "under_roots", "under_roots_or_uris"]

_REMEDY = "move the data under a data root, or start the server with --data-root (RGRL_DATA_ROOTS) naming its folder"


def check_roots(roots: Sequence[Path]) -> None:
    """``UsageError`` for a data root that is no folder: requests could name nothing under it."""
    for root in roots:
        if not root.is_dir():
            raise UsageError(
                "a data root is no folder",
                given=root,
                expected="existing folders (--data-root, RGRL_DATA_ROOTS)",
                remedy="make the folder, or correct its path",
            )


def under_roots_or_uris(text: str, roots: Sequence[Path], uris: Sequence[str], pointer: str) -> str:
    """The real path of ``text`` as ``under_roots`` has it; a URI as given, if it is at or below one of ``uris``.

    Whether there is anything at a URI is not asked here: that needs a network.
    """
    if "://" not in text:
        return str(under_roots(text, roots, pointer))
    try:
        given = urlsplit(text)
    except ValueError as error:
        raise InputError("this cannot be a URI", expected="a path or a URI", pointer=pointer) from error
    if given.scheme == "file":
        return str(under_roots(unquote(given.path), roots, pointer))
    if not any(_below(given, urlsplit(uri)) for uri in uris):
        raise ForbiddenError(
            "the URI is outside what this server may read",
            expected="a URI at or below one of the setting data_uris (RGRL_DATA_URIS), without '..'",
            remedy="move the data there, or start the server with RGRL_DATA_URIS naming its place",
            pointer=pointer,
        )
    return given.geturl()


def under_roots(text: str, roots: Sequence[Path], pointer: str, *, must_exist: bool = True) -> Path:
    """The real path of ``text``, which is absolute or relative to a data root.

    ``ForbiddenError`` when it, or a link anywhere in it, leads out of every root; ``InputError`` when there is nothing
    there. Whether something exists outside the roots is not told.
    """
    inside = [path for path in _candidates(text, roots, pointer) if _within(path, roots)]
    if not inside:
        raise ForbiddenError(
            "the path is outside this server's data roots",
            expected="a path under one of the folders of the setting data_roots (RGRL_DATA_ROOTS)",
            remedy=_REMEDY,
            pointer=pointer,
        )
    present = [path for path in inside if _exists(path)]
    if must_exist and not present:
        raise InputError("there is nothing at this path", expected="an existing path", pointer=pointer)
    path = (present or inside)[0]
    if any(_leads_out(link, roots) for link in _links(path)):
        raise ForbiddenError(
            "the folder holds a link that leads out of the data roots", remedy=_REMEDY, pointer=pointer
        )
    return path


def _candidates(text: str, roots: Sequence[Path], pointer: str) -> Iterator[Path]:
    for root in roots:
        try:
            yield (root / text).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise InputError("this cannot be a path", expected="a path", pointer=pointer) from error


def _links(folder: Path) -> Iterator[Path]:
    """Every symbolic link in a folder, at any depth; none for a file."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            entry = Path(parent, name)
            if entry.is_symlink():
                yield entry


def _leads_out(link: Path, roots: Sequence[Path]) -> bool:
    try:
        return not _within(link.resolve(), roots)
    except (OSError, RuntimeError):
        # A link that leads to itself leads nowhere.
        return True


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _within(path: Path, roots: Sequence[Path]) -> bool:
    return any(path.is_relative_to(root) for root in roots)


def _below(given: SplitResult, root: SplitResult) -> bool:
    """A query tells a file system where it is (an end point, a region): it must be the root's own."""
    steps = unquote(given.path).strip("/").split("/")
    base = [step for step in unquote(root.path).split("/") if step]
    return (
        (given.scheme, given.netloc, given.query, given.fragment) == (root.scheme, root.netloc, root.query, "")
        and steps[: len(base)] == base
        and not {"", ".", ".."} & set(steps)
    )
