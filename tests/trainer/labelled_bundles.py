"""Small labelled bundles with external ids of one's choice, and embedding sets made of them without training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from training_bundles import random_edges, settings_document, write_ppr

from preprocessing.artifact import fingerprint
from preprocessing.bundle import Bundle
from preprocessing.ingest import ingest
from preprocessing.stage import Emitter
from trainer import embedding_set
from trainer.encoders import Encoder
from trainer.encoders import new_encoder as build_encoder
from trainer.features import load_features
from trainer.model import Model
from trainer.settings import TrainSettings


def make_labelled_bundle(
    folder: Path,
    ids: Sequence[int | str],
    labels: Sequence[str | None] | None = None,
    *,
    features: bool = True,
    ppr: bool = True,
) -> Bundle:
    """Node i of a fixed random graph is called ``ids[i]``; the rows of its tables are in random order.

    Features tell the class number (label modulo words) apart, more or less.
    """
    nodes = len(ids)
    rng = np.random.default_rng(0)
    edges = random_edges(nodes, 2 * nodes, seed=0)
    values = rng.normal(size=(nodes, 6)).astype(np.float32)
    if labels is not None:
        codes = np.unique([label or "" for label in labels], return_inverse=True)[1]
        values[np.arange(nodes), codes % 6] += 5
    order = rng.permutation(nodes)
    columns: dict[str, Any] = {"id": [ids[i] for i in order]}
    if features:
        columns["x"] = pa.FixedSizeListArray.from_arrays(pa.array(values[order].reshape(-1)), 6)
    if labels is not None:
        columns["label"] = pa.array([labels[i] for i in order], pa.string())
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / "nodes.parquet")
    ends = {"source": [ids[i] for i in edges[:, 0]], "target": [ids[i] for i in edges[:, 1]]}
    pq.write_table(pa.table(ends), folder / "edges.parquet")
    source = {"kind": "tables", "nodes": str(folder / "nodes.parquet"), "edges": str(folder / "edges.parquet")}
    ingest({"out": folder / "bundle", "settings": {"source": source}}, Emitter("ingest"))
    bundle = Bundle(folder / "bundle")
    if ppr:
        write_ppr(bundle, 4)
    return bundle


def write_embeddings(
    out: Path,
    bundle: Bundle,
    encoder: Encoder | None = None,
    *,
    snapshots_dir: Path = Path("no-snapshots"),
    training_info: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    settings = TrainSettings.model_validate(settings_document())
    model = Model.trained(encoder or new_encoder(bundle), settings, bundle, load_features(bundle, settings.features))
    told = {"settings": settings.model_dump(), "training": {"epochs": 4, **(training_info or {})}}
    identity = fingerprint(bundle.content_hash, hash(model.weights), told)
    return embedding_set.write(out, bundle, model, told, identity, Emitter("train"), snapshots=snapshots_dir)


def new_encoder(bundle: Bundle, seed: int = 3) -> Encoder:
    settings = TrainSettings.model_validate(settings_document())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_encoder(load_features(bundle, settings.features).num_columns, settings.encoder)
