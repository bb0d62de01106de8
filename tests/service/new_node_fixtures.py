"""Graphs of tables, encoders with weights at random, and what append and embed make of new nodes: the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from preprocessing.append import append
from preprocessing.bundle import Bundle
from preprocessing.ingest import ingest
from preprocessing.stage import Emitter
from trainer import embedding_set
from trainer.embed import embed
from trainer.embedding_set import EmbeddingSet
from trainer.encoders import new_encoder
from trainer.features import load_features
from trainer.model import Model
from trainer.settings import TrainSettings

KNOWN, NEW, COLUMNS = 50, 8, 7


@dataclass(frozen=True)
class Case:
    """A graph and an encoder; ``density`` is the share of features that are not zero."""

    encoder: dict[str, Any] = field(default_factory=lambda: {"layers": [9, 5]})
    direction: str = "undirected"
    feature_dtype: str = "float32"
    density: float = 1.0
    features: dict[str, Any] = field(default_factory=dict)
    relations: tuple[str, ...] = ()
    views: str = "augmented"
    weighted: bool = False
    ids: str = "int64"
    seed: int = 0


class World:
    """A case on disk: ``known`` and ``new`` nodes by id, features and edges of both."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.folder, self.case = folder, case
        rng = self.rng = np.random.default_rng(case.seed)
        # Old and new ids lie among each other, so that appending moves rows.
        numbers = rng.permutation(3 * (KNOWN + NEW))[: KNOWN + NEW].tolist()
        ids = numbers if case.ids == "int64" else [f"nöde {number}" for number in numbers]
        self.known, self.new = ids[:KNOWN], ids[KNOWN:]
        values = rng.normal(1, 2, (KNOWN + NEW, COLUMNS))
        self.features = np.where(rng.random(values.shape) < case.density, values, 0).astype(np.float32)
        self.kinds = case.relations or (None,)
        old = {kind: rng.integers(0, KNOWN, (2, 120)) for kind in self.kinds}
        if case.weighted:  # append refuses an edge that is there already
            old = {kind: np.unique(pairs, axis=1) for kind, pairs in old.items()}
        self._old = {kind: [(ids[s], ids[t]) for s, t in pairs.T.tolist()] for kind, pairs in old.items()}
        self.edges = {kind: self._new_edges(ids) for kind in self.kinds}
        self.bundle = self._ingested()
        self.set = self._written()

    def _new_edges(self, ids: Sequence[Any]) -> list[tuple[Any, Any]]:
        """Both ways between old and new, among the new, twice the same, to oneself; the last new node has none."""
        new = self.rng.integers(KNOWN, KNOWN + NEW - 1, 14)
        other = self.rng.integers(0, KNOWN, 14)
        pairs = [*zip(new[:7], other[:7], strict=True), *zip(other[7:], new[7:], strict=True)]
        among = self.rng.integers(KNOWN, KNOWN + NEW - 1, (2, 6))
        pairs += [*zip(*among, strict=True), pairs[0], pairs[0][::-1], (KNOWN, KNOWN)]
        return [(ids[int(source)], ids[int(target)]) for source, target in pairs]

    def _table(self, name: str, columns: dict[str, Any]) -> str:
        path = self.folder / f"{name}.parquet"
        pq.write_table(pa.table(columns), path)
        return str(path)

    def _tables(self, name: str, ids: list[Any], features: np.ndarray, edges: dict[Any, Any]) -> dict[str, Any]:
        source: dict[str, Any] = {"kind": "tables"}
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(features.reshape(-1)), COLUMNS)
        source["nodes"] = self._table(f"{name}-nodes", {"id": ids, "x": vectors})
        paths = {}
        for kind, pairs in edges.items():
            columns = {"source": [pair[0] for pair in pairs], "target": [pair[1] for pair in pairs]}
            if self.case.weighted:
                columns["weight"] = self.rng.random(len(pairs)) + 0.1
            paths[kind] = self._table(f"{name}-edges-{kind}", columns)
        return source | ({"edges": paths[None]} if None in paths else {"relations": paths})

    def _ingested(self) -> Bundle:
        self.folder.mkdir(parents=True)
        source = self._tables("old", self.known, self.features[:KNOWN], self._old)
        settings = {"source": source, "direction": self.case.direction, "feature_dtype": self.case.feature_dtype}
        ingest({"out": self.folder / "bundle", "settings": settings}, Emitter("ingest"))
        return Bundle(self.folder / "bundle")

    def _written(self) -> EmbeddingSet:
        """A set whose encoder has weights, statistics and slopes at random."""
        case, out = self.case, self.folder / "set"
        document = {"encoder": case.encoder, "features": case.features, "views": case.views}
        settings = TrainSettings.model_validate(document)
        features = load_features(self.bundle, settings.features)
        encoder = new_encoder(features.num_columns, settings.encoder, len(self.bundle.relations))
        generator = torch.Generator().manual_seed(case.seed)
        with torch.no_grad():
            for name, tensor in encoder.state_dict().items():
                if not name.endswith("num_batches_tracked"):
                    positive = name.endswith(("running_var", "activation.weight"))
                    drawn = torch.randn(tensor.shape, generator=generator)
                    tensor.copy_(drawn.abs() + 0.2 if positive else drawn)
        told = {"path": str(self.bundle.path), "content_hash": self.bundle.content_hash}
        embedding_set.write(
            out,
            self.bundle,
            Model.trained(encoder, settings, self.bundle, features),
            {"settings": settings.model_dump(), "training": {"bundle": told}},
            "test",
            Emitter("train"),
        )
        return EmbeddingSet(out)

    def oracle(self) -> np.ndarray:
        """Vectors of the new nodes after append and embed, [NEW, D]."""
        source = self._tables("new", self.new, self.features[KNOWN:], self.edges)
        spec = {"bundle": self.bundle.path, "out": self.folder / "grown", "settings": {"source": source}}
        append(spec, Emitter("append"))
        embed(
            {"embeddings": self.set.path, "bundle": self.folder / "grown", "out": self.folder / "embedded"},
            Emitter("embed"),
        )
        made = EmbeddingSet(self.folder / "embedded")
        rows = made.ids.rows(self.new)
        assert (rows >= 0).all()
        return np.array(made.vectors[rows])

    def request(self, **changes: Any) -> dict[str, Any]:
        """The same new nodes as a body; every other one names its features by column."""
        nodes = []
        for place, (node, row) in enumerate(zip(self.new, self.features[KNOWN:], strict=True)):
            columns = np.flatnonzero(row).tolist()
            sparse = {"columns": columns, "values": row[columns].tolist()}
            nodes.append({"id": node, "features": sparse if place % 2 else row.tolist()})
        edges = [
            {"source": source, "target": str(target)} | ({} if kind is None else {"relation": kind})
            for kind, pairs in self.edges.items()
            for source, target in pairs
        ]
        if self.case.weighted:
            edges = [edge | {"weight": 0.5} for edge in edges]
        return {"nodes": nodes, "edges": edges, **changes}
