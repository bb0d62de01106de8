"""Bundles held open between requests, and read only while they are what was verified."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from preprocessing.artifact import MANIFEST
from preprocessing.bundle import Bundle
from service.verified import VerifiedFiles, served, stamps, written_to

__all__ = ["opened"]

OPEN_BUNDLES = 16
_TOPOLOGY = ("indptr.npy", "indices.npy")
_MAPPED = (
    "ids.npy",
    "ids.arrow",
    *(f"topology/{name}" for name in _TOPOLOGY),
    *(f"topology/symmetric/{name}" for name in _TOPOLOGY),
)


@contextmanager
def opened(path: Path, verified: VerifiedFiles, read: Callable[[str], bool] = lambda _name: True) -> Iterator[Bundle]:
    """The bundle at ``path``, those of its files that are ``read`` verified; ``ArtifactError`` for a damaged one, and
    in the end where a file was written to meanwhile.
    """
    files = [f"{path}/{name}" for name in (MANIFEST, *_MAPPED)]
    lease = verified.leases.take(files)
    try:
        seen = stamps(files)
        bundle = _open(path, seen)
        verified.check(path, {name: digest for name, digest in served(bundle.manifest["files"]).items() if read(name)})
        yield bundle
        if not lease.complete and stamps(files) != seen:
            raise written_to(path)
    finally:
        lease.end()


@lru_cache(maxsize=OPEN_BUNDLES)
def _open(path: Path, _stamps: tuple[int, ...]) -> Bundle:
    """The bundle at ``path``; opened again when one of its files is another."""
    return Bundle(path)
