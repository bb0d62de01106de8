"""The index stage: build the nearest-neighbour index of an embedding set, measure its recall, and draw its map.

``python -m service.search.indexing index SPEC.json`` with ``{"embeddings": PATH, "settings": IndexSettings}`` writes
``PATH/index``, an artefact of kind ``knn_index``, and then ``PATH/projection``, each in place of one of other settings.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from preprocessing.artifact import build, fingerprint, finished, read_manifest
from preprocessing.errors import InputError, Interrupted, UsageError
from preprocessing.stage import Emitter, run_stage
from service.search.embedding_set import EMBEDDING_SET, PROJECTION, open_vectors
from service.search.exact import inverse_norms
from service.search.index_settings import IndexSettings
from service.search.knn_index import DEFAULT_EFFORT, KNN_INDEX, choose_kind, make_index
from service.search.neighbors import Space, nearest
from service.search.projecting import make_projection, projection_identity
from service.search.recall import measured_recall

__all__ = ["build_index", "index", "indexed"]

RECALL_AT = 10


def index(spec: dict[str, Any], emit: Emitter) -> dict[str, Any]:
    """Run the stage; its summary is the index manifest without its list of files, with that of the ``projection``."""
    unknown = set(spec) - {"embeddings", "settings"}
    if unknown or "embeddings" not in spec:
        raise UsageError("the index stage does not know this spec", given=sorted(spec), expected="embeddings, settings")
    return build_index(Path(spec["embeddings"]), IndexSettings.model_validate(spec.get("settings", {})), emit)


def build_index(path: Path, settings: IndexSettings, emit: Emitter) -> dict[str, Any]:
    """Index the embedding set at ``path``; what is there already is kept if it is of the same settings and vectors.

    ``ArtifactError`` when ``path`` holds no whole embedding set, ``InputError`` for a value that is not finite.
    """
    manifest = read_manifest(path, EMBEDDING_SET)
    content = manifest["content_hash"]
    identity = _identity(settings, content)
    summary = finished(path / "index", KNN_INDEX, identity)
    vectors = open_vectors(path, manifest)
    if summary is None:
        with build(path / "index", KNN_INDEX, identity) as making:
            summary = making.publish(_build(vectors, settings, making.path, emit), replace=True)
    projection: dict[str, Any] | None
    try:
        projection = make_projection(path, vectors, content, settings.projection, emit)
    except Interrupted:
        raise
    except Exception as error:
        # The index is whole and searches need no map; the next run of the stage tries again.
        emit.warning("projection_failed", f"the map could not be drawn: {error}")
        projection = {"error": str(error) or type(error).__name__}
    return {name: value for name, value in summary.items() if name != "files"} | {"projection": projection}


def indexed(path: Path, settings: IndexSettings) -> set[str]:
    """Which of ``KNN_INDEX`` and ``PROJECTION`` ``build_index`` would find made, and keep."""
    content = read_manifest(path, EMBEDDING_SET)["content_hash"]
    made = {
        KNN_INDEX: finished(path / "index", KNN_INDEX, _identity(settings, content)),
        PROJECTION: finished(path / PROJECTION, PROJECTION, projection_identity(settings.projection, content)),
    }
    return {part for part, manifest in made.items() if manifest is not None}


def _identity(settings: IndexSettings, content: str) -> str:
    return fingerprint(_of_the_index(settings), content)


def _of_the_index(settings: IndexSettings) -> dict[str, Any]:
    """Without those of the map, which leave the index as it is."""
    return settings.model_dump(exclude={"projection"})


def _build(vectors: npt.NDArray[Any], settings: IndexSettings, directory: Path, emit: Emitter) -> dict[str, Any]:
    nodes, dim = vectors.shape
    kind = choose_kind(settings, nodes)
    _check_finite(vectors)
    began = time.monotonic()
    knn = None
    if kind != "exact":
        knn = make_index(kind, vectors, settings, emit)
        knn.save(directory)
    seconds = time.monotonic() - began
    return {
        "index": kind,
        "metric": "cosine",
        "counts": {"nodes": nodes, "dim": dim},
        "settings": _of_the_index(settings),
        "effort": DEFAULT_EFFORT[kind] if settings.effort is None else settings.effort,
        "build_seconds": round(seconds, 3),
        "recall": _recall(Space(vectors, kind, knn), settings, emit),
    }


def _check_finite(vectors: npt.NDArray[Any]) -> None:
    lengthless = np.flatnonzero(inverse_norms(vectors) == 0)
    broken = lengthless[~np.isfinite(vectors[lengthless]).all(axis=1)]
    if len(broken):
        raise InputError(
            "an embedding is not finite",
            given=f"row {broken[0]} and {len(broken) - 1} more",
            expected="numbers",
            remedy="train again; a smaller optimizer.lr may help",
        )


def _recall(space: Space, settings: IndexSettings, emit: Emitter) -> dict[str, Any]:
    nodes = len(space.vectors)
    k = min(RECALL_AT, nodes - 1)
    if k == 0:
        return {"k": 0, "queries": 0, "value": 1.0}
    rng = np.random.default_rng(settings.seed)
    sample = np.sort(rng.choice(nodes, min(nodes, settings.recall_queries), replace=False))

    def search(queries: npt.NDArray[np.float64], rows: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
        return [answer.rows for answer in nearest(space, queries, k, list(rows[:, None]))]

    value = measured_recall(
        space.vectors, search, sample, k, lambda done: emit.progress(done, nodes, "vectors compared")
    )
    return {"k": k, "queries": len(sample), "value": value}


if __name__ == "__main__":
    sys.exit(run_stage({"index": index}, sys.argv[1:]))
