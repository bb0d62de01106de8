"""The embedding set: every node's vector under its external id, and the encoder that made it.

A directory artefact of kind ``embedding_set``::

    vectors.npy                   [N, D] float32, in the bundle's row order (memory-mapped)
    ids.parquet, ids.npy|.arrow   the bundle's ids
    part-00000.parquet …          id, vector (fixed list of D), in the same order
    model/…                       the encoder, and how features come to it (``trainer.model``)
    snapshots/epoch-00020.safetensors …   the encoder as it was after those epochs, where the run kept snapshots

``report.json`` (evaluate) and ``index/`` come later, outside the manifest's files.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.artifact import build, read_manifest
from preprocessing.bundle import Bundle
from preprocessing.errors import ArtifactError, DivergedError
from preprocessing.ids import IdMap
from preprocessing.stage import Emitter
from trainer.health import judge
from trainer.layer_arrays import LayerFiles
from trainer.model import Model
from trainer.relations import embed_bundle

__all__ = ["EMBEDDING_SET", "EmbeddingSet", "Snapshot", "summary", "write"]

EMBEDDING_SET = "embedding_set"
PART_ROWS = 262_144
VECTORS = "vectors.npy"

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Snapshot:
    """The weights of an encoder after ``epoch`` epochs."""

    epoch: int
    path: Path


class EmbeddingSet:
    """An embedding set on disk, opened for reading."""

    def __init__(self, path: Path | str) -> None:
        """``ArtifactError`` when ``path`` holds no whole embedding set."""
        self.path = Path(path)
        self.manifest = read_manifest(self.path, EMBEDDING_SET)

    @cached_property
    def vectors(self) -> FloatArray:
        """[N, D], memory-mapped."""
        file = self.path / VECTORS
        try:
            vectors: FloatArray = np.load(file, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise ArtifactError(f"the vectors cannot be read ({error})", where=str(file)) from error
        return vectors

    @cached_property
    def ids(self) -> IdMap:
        """External ids by row."""
        return IdMap.open(self.path)

    @property
    def content_hash(self) -> str:
        """sha256 over the hashes of the set's files."""
        return str(self.manifest["content_hash"])

    @cached_property
    def model(self) -> Model:
        """What made the vectors."""
        return Model.open(self.path / "model")

    def model_at(self, snapshot: Snapshot) -> Model:
        """As it was then."""
        return Model.open(self.path / "model", snapshot.path)

    @property
    def snapshots(self) -> list[Snapshot]:
        """The run's snapshots by epoch; none when it kept none."""
        files = sorted((self.path / "snapshots").glob("epoch-*.safetensors"))
        return sorted((Snapshot(int(file.stem.removeprefix("epoch-")), file) for file in files), key=lambda s: s.epoch)

    def tables(self) -> Iterator[pa.Table]:
        """The rows of the set as tables of ``id`` and ``vector``, a part at a time."""
        yield from _tables(self.ids, self.vectors)


def write(
    out: Path,
    bundle: Bundle,
    model: Model,
    told: Mapping[str, Any],
    identity: str,
    emitter: Emitter,
    *,
    snapshots: Path | None = None,
    device: str = "cpu",
) -> dict[str, Any]:
    """Infer every node's vector and publish the embedding set at ``out``; the answer is its manifest.

    ``told`` is the manifest's part about the model, whose training's ``health`` is what the vectors show where these
    carry no information; ``identity`` is the fingerprint of all that decides the vectors: a
    killed process's rows are gone on from. ``snapshots`` is the folder that the set's own is to be a copy of.
    ``DivergedError`` when a vector is not finite; nothing is published then.
    """
    with build(out, EMBEDDING_SET, identity) as work:
        vectors = _infer(work.path, bundle, model, device, emitter)
        if (state := judge(vectors)) is not None:
            emitter.health(state.state, state.reason)
            told = {**told, "training": told["training"] | {"health": state.as_dict()}}
        bundle.ids.save(work.path)
        for number, table in enumerate(_tables(bundle.ids, vectors)):
            pq.write_table(table, work.path / f"part-{number:05d}.parquet")
        model.save(work.path / "model")
        if snapshots is not None and snapshots.is_dir():
            shutil.copytree(snapshots, work.path / "snapshots", dirs_exist_ok=True)
        return work.publish(
            {
                "counts": {"nodes": vectors.shape[0], "dim": vectors.shape[1]},
                "dtype": str(vectors.dtype),
                "id_type": bundle.ids.kind,
                "bundle": {"path": str(bundle.path.absolute()), "content_hash": bundle.content_hash},
                **told,
            }
        )


def summary(out: Path, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a stage answers that made a set."""
    told = {name: manifest[name] for name in ("counts", "content_hash", "model") if name in manifest}
    training = {key: value for key, value in manifest["training"].items() if key != "losses"}
    return {"embeddings": str(out), **told, "training": training}


def _infer(directory: Path, bundle: Bundle, model: Model, device: str, emitter: Emitter) -> FloatArray:
    """``vectors.npy``, which is there once it is whole."""
    file, unfinished = directory / VECTORS, directory / "inference"
    if not file.exists():
        arrays = LayerFiles(bundle.num_nodes, unfinished)
        step = embed_bundle(
            model.encoder, model.features(bundle), bundle, model.views, arrays, device=device, emitter=emitter
        )
        (made,) = arrays.files(step)
        made.rename(file)
    shutil.rmtree(unfinished, ignore_errors=True)
    vectors: FloatArray = np.load(file, mmap_mode="r", allow_pickle=False)
    for first in range(0, len(vectors), PART_ROWS):
        broken = np.flatnonzero(~np.isfinite(vectors[first : first + PART_ROWS]).all(axis=1))
        if len(broken):
            raise DivergedError(
                "an embedding is not finite",
                given=f"the vector of node {bundle.ids.external(broken[:1] + first)[0]}",
                expected="finite numbers",
                remedy="train again with a smaller optimizer.lr, or with features.transform = standardize",
            )
    return vectors


def _tables(ids: IdMap, vectors: FloatArray) -> Iterator[pa.Table]:
    for first in range(0, len(vectors), PART_ROWS):
        part = vectors[first : first + PART_ROWS]
        column = pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), part.shape[1])
        yield pa.table({"id": ids.column(np.arange(first, first + len(part))), "vector": column})
