"""The bundle before a change of the graph, as far as its PPR rows can be of use to the one after."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preprocessing.artifact import read_manifest
from preprocessing.bundle import PPR, Bundle
from preprocessing.errors import ArtifactError, UsageError
from preprocessing.settings import PprSettings, PreviousSettings

__all__ = ["Previous"]


@dataclass(frozen=True)
class Previous:
    """``rows`` is the bundle's ``ppr/``, ``content_hash`` that of its files."""

    bundle: Bundle
    rows: Path
    content_hash: str
    tolerance: float

    @classmethod
    def open(cls, settings: PreviousSettings, new: Bundle, ppr: PprSettings) -> Previous:
        """``ArtifactError`` without PPR rows, or with those of another graph; ``UsageError`` for rows or ids of another
        kind than ``ppr`` and ``new`` have.
        """
        old = Bundle(settings.bundle.absolute())
        if old.path.resolve() == new.path.resolve():
            raise UsageError(
                "the previous bundle is the one to preprocess",
                given=str(settings.bundle),
                expected="the bundle from before the change",
                remedy="ingest the changed tables into a bundle of another name",
                pointer="/previous/bundle",
            )
        rows = old.path / "ppr"
        try:
            manifest = read_manifest(rows, PPR)
        except ArtifactError as error:
            error.remedy = f"rgrl preprocess {old.path}"
            raise
        if manifest["bundle"] != old.content_hash:
            raise ArtifactError(
                "the PPR rows are not of this bundle", where=str(rows), remedy=f"rgrl preprocess {old.path}"
            )
        _check_settings(manifest["settings"], ppr)
        if old.ids.kind != new.ids.kind:
            raise UsageError(
                "the two graphs have other kinds of ids: no node of one is known in the other",
                given=f"{old.ids.kind} before, {new.ids.kind} now",
                remedy="leave the previous bundle out",
                pointer="/previous/bundle",
            )
        return cls(old, rows, manifest["content_hash"], settings.tolerance)

    @property
    def identity(self) -> dict[str, Any]:
        """What the rows that are made with it depend on."""
        return {"content_hash": self.content_hash, "tolerance": self.tolerance}


def _check_settings(before: dict[str, Any], ppr: PprSettings) -> None:
    now = ppr.model_dump()
    differing = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    if differing:
        given, expected = (", ".join(f"ppr.{name} = {of.get(name)}" for name in differing) for of in (now, before))
        raise UsageError(
            f"the previous PPR rows were made with another {', '.join(differing)}",
            given=given,
            expected=f"{expected}, as before: both bundles are preprocessed with the same ppr settings",
            remedy="preprocess with the settings of before, or leave the previous bundle out",
            pointer=f"/settings/ppr/{differing[0]}",
        )
