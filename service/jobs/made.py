"""What a stage has made, read once as soon as it is there, so that nobody's first question waits for that."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from preprocessing.artifact import MANIFEST
from preprocessing.errors import ArtifactError
from service.verified import VerifiedFiles, served

__all__ = ["verify_made"]


def verify_made(stage: str, spec: dict[str, Any], verified: VerifiedFiles) -> None:
    """Hash what ``stage`` made by ``spec``. A fault is not told here: it is found by whoever opens the files."""
    with contextlib.suppress(ArtifactError, OSError, ValueError, KeyError, TypeError, AttributeError):
        for artifact in _made(stage, spec):
            manifest = json.loads((artifact / MANIFEST).read_text(encoding="utf-8"))
            verified.check(artifact, served(manifest["files"]))


def _made(stage: str, spec: dict[str, Any]) -> list[Path]:
    match stage:
        case "ingest" | "append" | "train" | "embed":
            return [Path(spec["out"])]
        case "index":
            return [Path(spec["embeddings"]) / part for part in ("index", "projection")]
        case _:
            return []
