"""An embedding set that the command line made, checked before it is served: its files, its numbers and its graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from preprocessing.artifact import fingerprint, read_manifest
from preprocessing.bundle import BUNDLE
from preprocessing.errors import ArtifactError, InputError
from service.errors import ConflictError
from service.search.embedding_set import PROJECTION, EmbeddingSet
from service.search.knn_index import KNN_INDEX
from service.search.report import REPORT, read_report
from service.verified import VerifiedFiles

__all__ = ["checked_set"]

ROWS = 65_536
MADE_BY = "a directory that rgrl train or rgrl embed made, with its manifest.json"


def checked_set(path: Path, bundle: Path, verified: VerifiedFiles) -> dict[str, Any]:
    """``counts``, ``report`` and ``index`` of the set at ``path``, whose every vector and id has been read.

    Tables are for other programs and are not read. ``InputError`` when the set is not whole,
    was changed, or holds a number that is not finite; ``ConflictError`` when ``bundle`` is not the graph it embeds.
    """
    try:
        found = EmbeddingSet(path, verified=verified)
    except (ArtifactError, KeyError, TypeError) as error:
        problem = error.problem if isinstance(error, ArtifactError) else "the manifest lacks a part"
        raise InputError(
            f"there is no whole embedding set at this path ({problem})", expected=MADE_BY, pointer="/path"
        ) from error
    _check_graph(found.manifest, bundle)
    _check_finite(found)
    counts, content = found.manifest["counts"], found.manifest["content_hash"]
    return {"counts": counts, "report": _report(path), "index": _index(path, content, verified)}


def _check_graph(manifest: dict[str, Any], bundle: Path) -> None:
    embedded, given = manifest["bundle"]["content_hash"], read_manifest(bundle, BUNDLE)["content_hash"]
    if embedded != given:
        raise ConflictError(
            "the set embeds another graph than this one, or this one as it was before a change",
            expected="the graph whose bundle the set was made on",
            remedy="register the bundle that the set's manifest names, and name that graph",
        )


def _check_finite(found: EmbeddingSet) -> None:
    for first in range(0, found.nodes, ROWS):
        whole = np.isfinite(found.vectors[first : first + ROWS]).all(axis=1)
        if not whole.all():
            node = found.ids.external([first + int(np.argmin(whole))])[0]
            raise InputError(
                f"the vector of node {node} is not finite", expected="numbers", remedy="train again", pointer="/path"
            )


def _report(path: Path) -> dict[str, Any] | None:
    """The headline figures of what evaluate left in the set, if it did; earlier versions kept none in the report."""
    try:
        report = read_report(path)
        return None if report is None else {"report": str(path / REPORT), **report.get("summary", {})}
    except (ArtifactError, TypeError) as error:
        raise _unreadable(REPORT, "rgrl evaluate") from error


def _index(path: Path, content_hash: str, verified: VerifiedFiles) -> dict[str, Any] | None:
    """The summary of the set's index, if it has one, with that of its map."""
    index = _part(path / "index", KNN_INDEX, content_hash, verified)
    if index is None:
        return None
    return index | {"projection": _part(path / PROJECTION, PROJECTION, content_hash, verified)}


def _part(folder: Path, kind: str, content_hash: str, verified: VerifiedFiles) -> dict[str, Any] | None:
    """The summary of what the index stage made in ``folder``, if it did; of other vectors it would answer wrongly."""
    if not folder.exists():
        return None
    try:
        manifest = read_manifest(folder, kind)
        verified.check(folder, manifest["files"])
        of_these_vectors = manifest["fingerprint"] == fingerprint(manifest["settings"], content_hash)
    except (ArtifactError, KeyError) as error:
        raise _unreadable(folder.name, "rgrl index") from error
    if not of_these_vectors:
        raise InputError(
            f"the {folder.name} in the set is of other vectors",
            expected="one of this set",
            remedy=f"rgrl index it again, or remove the folder {folder.name}",
            pointer="/path",
        )
    return {name: value for name, value in manifest.items() if name != "files"}


def _unreadable(what: str, made_by: str) -> InputError:
    return InputError(
        f"{what} in the set cannot be read",
        expected=f"what {made_by} made",
        remedy=f"{made_by} the set again, or remove {what}",
        pointer="/path",
    )
