"""The faiss index of an embedding set: inner product on vectors of length 1, which is cosine.

faiss only finds candidates; ``exact.rank`` scores and orders them. An exact index is no file at all: it is the
decision to scan. Every search passes its own parameters, so threads share one index without touching it.
"""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from preprocessing.artifact import read_manifest
from preprocessing.errors import ArtifactError
from preprocessing.stage import Emitter
from service.read_ahead import read_ahead
from service.search.index_settings import IndexKind, IndexSettings
from service.verified import VerifiedFiles

__all__ = ["FAISS_FILE", "KNN_INDEX", "KnnIndex", "choose_kind", "make_index"]

KNN_INDEX = "knn_index"
FAISS_FILE = "index.faiss"
EXACT_UP_TO = 200_000
HNSW_UP_TO = 20_000_000
DEFAULT_EFFORT: dict[IndexKind, int] = {"exact": 1, "hnsw": 128, "ivf": 64}
# IVF: cells are learnt from this many vectors each (faiss advises 39 to 256), and four-bit codes pick four times the
# wanted candidates for the float16 copy to refine.
TRAINING_VECTORS_A_CELL = 64
REFINE_FACTOR = 4.0
ADD_ROWS = 10_000

CORES = int(faiss.omp_get_max_threads())
_permits = threading.BoundedSemaphore(CORES)


def choose_kind(settings: IndexSettings, nodes: int) -> IndexKind:
    """The kind of index for so many nodes, or the one the settings force."""
    if settings.kind != "auto":
        return settings.kind
    if nodes <= EXACT_UP_TO:
        return "exact"
    return "hnsw" if nodes <= HNSW_UP_TO else "ivf"


class KnnIndex:
    """An HNSW or IVF index, open for searches from many threads."""

    def __init__(self, kind: IndexKind, index: Any, effort: int) -> None:
        """``effort`` is what a search spends unless it says otherwise (see ``IndexSettings.effort``)."""
        self.kind = kind
        self.effort = effort
        self._index = index
        self._default = self._parameters(effort, 1)

    @classmethod
    def open(cls, path: Path, shape: tuple[int, ...], verified: VerifiedFiles) -> KnnIndex | None:
        """The index artefact at ``path`` over vectors of ``shape``, or None where it is the decision to scan.

        ``ArtifactError`` unless the file is as it was written: faiss walks its links unchecked, and a changed one ends
        the process, or hides nodes.
        """
        manifest = read_manifest(path, KNN_INDEX)
        kind: IndexKind = manifest["index"]
        if kind == "exact":
            return None
        verified.check(path, {FAISS_FILE: manifest["files"][FAISS_FILE]})
        read_ahead([path / FAISS_FILE])
        try:
            # Mapped where its kind allows: shared with the page cache, and searched no slower.
            index = faiss.read_index(str(path / FAISS_FILE), faiss.IO_FLAG_MMAP_IFC)
        except (RuntimeError, MemoryError) as error:
            raise ArtifactError(
                f"the index cannot be read ({error})",
                expected="a faiss index",
                remedy="rgrl index the embedding set again",
                where=str(path / FAISS_FILE),
            ) from error
        if (index.ntotal, index.d) != shape:
            raise ArtifactError(
                "the index is of other vectors",
                given=f"{index.ntotal} vectors of length {index.d}",
                expected=f"{shape[0]} vectors of length {shape[1]}",
                remedy="rgrl index the embedding set again",
                where=str(path / FAISS_FILE),
            )
        return cls(kind, index, int(manifest["effort"]))

    def save(self, directory: Path) -> None:
        """Write the index for ``open``."""
        faiss.write_index(self._index, str(directory / FAISS_FILE))

    def search(self, queries: npt.NDArray[Any], k: int, effort: int | None = None) -> npt.NDArray[np.int64]:
        """Candidate rows [Q, k] of unit queries [Q, D], −1 where the index found fewer.

        One faiss thread: many searches run at once, and a permit for every core bounds them.
        """
        own = k <= self.effort and effort in (None, self.effort)
        parameters = self._default if own else self._parameters(effort or self.effort, k)
        with _permits:
            faiss.omp_set_num_threads(1)
            _, rows = self._index.search(np.ascontiguousarray(queries, dtype=np.float32), k, params=parameters)
        found: npt.NDArray[np.int64] = rows
        return found

    def _parameters(self, effort: int, k: int) -> Any:
        if self.kind == "hnsw":
            # faiss keeps k at least, but stops by efSearch: the last of k are not the nearest where k is more.
            return faiss.SearchParametersHNSW(efSearch=max(effort, k))
        cells = faiss.SearchParametersIVF(nprobe=effort)
        return faiss.IndexRefineSearchParameters(k_factor=REFINE_FACTOR, base_index_params=cells)


def make_index(kind: IndexKind, vectors: npt.NDArray[Any], settings: IndexSettings, emit: Emitter) -> KnnIndex:
    """Build an ``hnsw`` or ``ivf`` index over ``vectors`` [N, D], read block by block."""
    nodes, dim = vectors.shape
    faiss.omp_set_num_threads(settings.threads or CORES)
    index: Any
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(dim, settings.links, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = settings.build_effort
    else:
        cells = min(settings.cells or round(4 * math.sqrt(nodes)), max(1, nodes // TRAINING_VECTORS_A_CELL))
        index = faiss.index_factory(dim, f"IVF{cells},SQ4,Refine(SQfp16)", faiss.METRIC_INNER_PRODUCT)
        taught = min(nodes, cells * TRAINING_VECTORS_A_CELL)
        chosen = np.random.default_rng(settings.seed).choice(nodes, taught, replace=False, shuffle=False)
        index.train(_unit_rows(vectors[np.sort(chosen)]))
    for start in range(0, nodes, ADD_ROWS):
        index.add(_unit_rows(vectors[start : start + ADD_ROWS]))
        emit.progress(min(start + ADD_ROWS, nodes), nodes, "nodes")
    return KnnIndex(kind, index, settings.effort or DEFAULT_EFFORT[kind])


def _unit_rows(block: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    rows = np.array(block, dtype=np.float32, order="C")
    faiss.normalize_L2(rows)
    return rows
