"""The embedding set: every node's vector under its external id, and the encoder that made it.

A directory artefact of kind ``embedding_set``::

    vectors.npy                   [N, D] float32, in the bundle's row order (memory-mapped)
    ids.parquet, ids.npy|.arrow   the bundle's ids
    part-00000.parquet …          id, vector (fixed list of D), in the same order
    model/config.json             what the encoder is built from
    model/encoder.safetensors     its weights
    snapshots/epoch-00020.safetensors …   the encoder as it was after those epochs, where the run kept snapshots

``report.json`` (evaluate) and ``index/`` come later, outside the manifest's files.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.torch import load_file
from safetensors.torch import save as serialized

from preprocessing.artifact import build, fingerprint, read_manifest, write_json
from preprocessing.bundle import Bundle
from preprocessing.errors import ArtifactError, RgrlError
from preprocessing.ids import IdMap
from preprocessing.stage import Emitter
from trainer.encoders import Encoder, RelationEncoders, new_encoder
from trainer.features import FeatureStore, load_features
from trainer.launch import uses_cuda
from trainer.relations import embed_bundle
from trainer.settings import EncoderSettings, FeatureSettings, TrainSettings, ViewKind

__all__ = ["EMBEDDING_SET", "EmbeddingSet", "Snapshot", "write"]

EMBEDDING_SET = "embedding_set"
PART_ROWS = 262_144

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
        file = self.path / "vectors.npy"
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
    def feature_settings(self) -> FeatureSettings:
        """What was done to the features before the encoder saw them."""
        return FeatureSettings.model_validate(self._config["features"])

    @property
    def views(self) -> ViewKind:
        """Whether a vector is of the whole graph, or the mean over its relations."""
        views: ViewKind = self._config["views"]
        return views

    @property
    def snapshots(self) -> list[Snapshot]:
        """The run's snapshots by epoch; none when it kept none."""
        files = sorted((self.path / "snapshots").glob("epoch-*.safetensors"))
        return sorted((Snapshot(int(file.stem.removeprefix("epoch-")), file) for file in files), key=lambda s: s.epoch)

    def new_encoder(self) -> Encoder | RelationEncoders:
        """An encoder of the same architecture, freshly initialised from torch's generator."""
        config = self._config
        return new_encoder(
            config["in_dim"], EncoderSettings.model_validate(config["encoder"]), len(config["relations"])
        )

    def encoder(self, snapshot: Snapshot | None = None) -> Encoder | RelationEncoders:
        """The encoder that made the vectors, or as it was at a snapshot, in eval mode."""
        encoder = self.new_encoder()
        encoder.load_state_dict(
            load_file(self.path / "model" / "encoder.safetensors" if snapshot is None else snapshot.path)
        )
        return encoder.eval()

    def tables(self) -> Iterator[pa.Table]:
        """The rows of the set as tables of ``id`` and ``vector``, a part at a time."""
        yield from _tables(self.ids, self.vectors)

    @cached_property
    def _config(self) -> dict[str, Any]:
        config: dict[str, Any] = json.loads((self.path / "model" / "config.json").read_text(encoding="utf-8"))
        return config


def write(
    out: Path,
    bundle: Bundle,
    encoder: Encoder | RelationEncoders,
    settings: TrainSettings,
    training_info: Mapping[str, Any],
    snapshots_dir: Path,
    emitter: Emitter,
) -> dict[str, Any]:
    """Infer every node's vector and publish the embedding set at ``out``; the answer is its manifest.

    ``training_info`` becomes the manifest's ``training``. ``RgrlError`` when a vector is not finite; nothing is
    published then.
    """
    identity = fingerprint(bundle.content_hash, settings.model_dump(), dict(training_info))
    features = load_features(bundle, settings.features)
    with build(out, EMBEDDING_SET, identity) as work:
        vectors = _infer(work.path, bundle, encoder, features, settings, emitter)
        bundle.ids.save(work.path)
        for number, table in enumerate(_tables(bundle.ids, vectors)):
            pq.write_table(table, work.path / f"part-{number:05d}.parquet")
        _write_model(work.path / "model", encoder, features.num_columns, bundle.relations, settings)
        if snapshots_dir.is_dir():
            shutil.copytree(snapshots_dir, work.path / "snapshots", dirs_exist_ok=True)
        return work.publish(
            {
                "counts": {"nodes": vectors.shape[0], "dim": vectors.shape[1]},
                "dtype": str(vectors.dtype),
                "id_type": bundle.ids.kind,
                "bundle": {"path": str(bundle.path.absolute()), "content_hash": bundle.content_hash},
                "settings": settings.model_dump(),
                "training": dict(training_info),
            }
        )


def _infer(
    directory: Path,
    bundle: Bundle,
    encoder: Encoder | RelationEncoders,
    features: FeatureStore,
    settings: TrainSettings,
    emitter: Emitter,
) -> FloatArray:
    shape = (bundle.num_nodes, settings.encoder.layers[-1])
    vectors = np.lib.format.open_memmap(directory / "vectors.npy", mode="w+", dtype=np.float32, shape=shape)
    embed_bundle(
        encoder,
        features,
        bundle,
        settings.views,
        vectors,
        directory=directory,
        device="cuda" if uses_cuda(settings.run) else "cpu",
        emitter=emitter,
    )
    vectors.flush()
    for first in range(0, len(vectors), PART_ROWS):
        broken = np.flatnonzero(~np.isfinite(vectors[first : first + PART_ROWS]).all(axis=1))
        if len(broken):
            raise RgrlError(
                "an embedding is not finite",
                given=f"the vector of node {bundle.ids.external(broken[:1] + first)[0]}",
                expected="finite numbers",
                remedy="train again with a smaller optimizer.lr, and look for extreme feature values",
            )
    return vectors


def _tables(ids: IdMap, vectors: FloatArray) -> Iterator[pa.Table]:
    for first in range(0, len(vectors), PART_ROWS):
        part = vectors[first : first + PART_ROWS]
        column = pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), part.shape[1])
        yield pa.table({"id": ids.column(np.arange(first, first + len(part))), "vector": column})


def _write_model(
    directory: Path,
    encoder: Encoder | RelationEncoders,
    in_dim: int,
    relations: Sequence[str],
    settings: TrainSettings,
) -> None:
    directory.mkdir(exist_ok=True)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in encoder.state_dict().items()}
    (directory / "encoder.safetensors").write_bytes(serialized(tensors))
    config = {
        "in_dim": in_dim,
        "encoder": settings.encoder.model_dump(exclude={"predictor_hidden", "batch_norm_statistics"}),
        "views": settings.views,
        "relations": list(relations),
        "features": settings.features.model_dump(),
    }
    write_json(directory / "config.json", config)
