"""The map of an embedding set: its nodes, or a sample of them, as points of the plane.

``PATH/projection`` is an artefact of kind ``projection``: ``rows.npy`` int64 [P], ascending, and ``points.npy`` float32
[P, 2]. Vectors are taken at length 1, as for neighbours.
"""

from __future__ import annotations

import shutil
import time
import warnings
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from preprocessing.array_types import Float32Array, Float64Array
from preprocessing.artifact import MANIFEST, build, fingerprint, finished
from preprocessing.stage import Emitter
from service.search.embedding_set import PROJECTION
from service.search.exact import unit
from service.search.index_settings import ProjectionSettings

__all__ = ["make_projection", "projection_identity"]

BLOCK_ROWS = 65_536
STEPS = "steps of the map"


def projection_identity(settings: ProjectionSettings, content_hash: str) -> str:
    """The fingerprint of the projection of a set of that content."""
    return fingerprint(settings.model_dump(), content_hash)


def make_projection(
    path: Path, vectors: npt.NDArray[Any], content_hash: str, settings: ProjectionSettings, emit: Emitter
) -> dict[str, Any] | None:
    """Draw the map of the set at ``path``, or keep the one of these settings; its manifest, None where none is wanted.

    ``vectors`` [N, D] are finite.
    """
    target = path / PROJECTION
    if settings.method == "none":
        # Without its manifest a directory is no artefact, however far its removal comes.
        (target / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(target, ignore_errors=True)
        return None
    identity = projection_identity(settings, content_hash)
    manifest = finished(target, PROJECTION, identity)
    if manifest is None:
        with build(target, PROJECTION, identity) as making:
            facts = _project(vectors, settings, making.path, emit) | {"vectors": content_hash}
            manifest = making.publish(facts, replace=True)
    return {name: value for name, value in manifest.items() if name != "files"}


def _project(vectors: npt.NDArray[Any], settings: ProjectionSettings, directory: Path, emit: Emitter) -> dict[str, Any]:
    began, nodes = time.monotonic(), len(vectors)
    rows = np.arange(nodes)
    if nodes > settings.points:
        drawn = np.random.default_rng(settings.seed).choice(nodes, settings.points, replace=False, shuffle=False)
        rows = np.sort(drawn)
    method = settings.method_for(len(rows))
    steps = 1 if method == "pca" else 2
    emit.progress(0, steps, STEPS)
    directions = _directions(vectors, rows)
    points = _pca(directions)
    emit.progress(1, steps, STEPS)
    if method != "pca":
        # Noise, since what starts in one place stays together; and a set without spread has no scale.
        noise: Float32Array = np.random.default_rng(settings.seed).standard_normal(points.shape, dtype=np.float32)
        start = points / (np.abs(points).max() or 1.0) + np.float32(1e-5) * noise
        points = (_tsne if method == "tsne" else _umap)(directions, start, settings)
        if not np.isfinite(points).all():
            raise ArithmeticError(f"{method} gave a point that is not finite")
        emit.progress(2, steps, STEPS)
    np.save(directory / "rows.npy", rows)
    np.save(directory / "points.npy", points)
    return {
        "method": method,
        "counts": {"nodes": nodes, "points": len(rows)},
        "settings": settings.model_dump(),
        "build_seconds": round(time.monotonic() - began, 3),
    }


def _directions(vectors: npt.NDArray[Any], rows: npt.NDArray[np.int64]) -> Float32Array:
    directions = np.empty((len(rows), vectors.shape[1]), dtype=np.float32)
    for start in range(0, len(rows), BLOCK_ROWS):
        directions[start : start + BLOCK_ROWS] = unit(vectors[rows[start : start + BLOCK_ROWS]])
    return directions


def _pca(directions: Float32Array) -> Float32Array:
    """Scores [P, 2] on the two widest axes, by the eigenvectors of the covariance; zeros where there are fewer axes."""
    count, dim = directions.shape
    mean = directions.mean(axis=0, dtype=np.float64)
    scatter = np.zeros((dim, dim))
    for start in range(0, count, BLOCK_ROWS):
        block = directions[start : start + BLOCK_ROWS] - mean
        scatter += block.T @ block
    axes: Float64Array = np.linalg.eigh(scatter)[1][:, ::-1][:, :2]
    # An eigenvector has no sign of its own: its largest entry is made positive.
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    points = np.zeros((count, 2), dtype=np.float32)
    for start in range(0, count, BLOCK_ROWS):
        block = directions[start : start + BLOCK_ROWS] - mean
        points[start : start + BLOCK_ROWS, : axes.shape[1]] = block @ axes
    return points


def _tsne(directions: Float32Array, start: Float32Array, settings: ProjectionSettings) -> Float32Array:
    """Barnes-Hut t-SNE (van der Maaten 2014), on one thread, so that a seed has one map."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    # Of the spread that the first step is tuned for (Kobak and Berens 2019).
    small = 1e-4 * start / (start[:, 0].std() or 1.0)
    tsne = TSNE(perplexity=settings.neighbors, metric="cosine", init=small, random_state=settings.seed, n_jobs=1)
    with threadpool_limits(1):
        placed: Float32Array = tsne.fit_transform(directions)
    return placed


def _umap(directions: Float32Array, start: Float32Array, settings: ProjectionSettings) -> Float32Array:
    """UMAP (McInnes, Healy and Melville 2018), on one thread, so that a seed has one map.

    Neighbours are the exact ones, by faiss: umap-learn's own search compiles for a minute before it starts.
    """
    cosines, rows = faiss.knn(directions, directions, settings.neighbors, faiss.METRIC_INNER_PRODUCT)
    distances = np.maximum(1 - cosines, 0)
    with warnings.catch_warnings():
        # umap-learn says on import that its parametric kind lacks TensorFlow, and then that without a search of its own
        # no more points can be added: neither is used here.
        warnings.simplefilter("ignore", ImportWarning)
        warnings.filterwarnings("ignore", "precomputed_knn", UserWarning)
        from umap import UMAP

        umap = UMAP(
            n_neighbors=settings.neighbors,
            metric="cosine",
            init=10 * start,
            random_state=settings.seed,
            n_jobs=1,
            precomputed_knn=(rows, distances, None),
        )
        placed: Float32Array = umap.fit_transform(directions)
    return placed
