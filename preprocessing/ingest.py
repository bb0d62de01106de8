"""Ingest: any input to a graph bundle.

The bundle is the same, byte for byte, whatever the order of the input's rows: nodes are sorted by external id,
neighbours by row, and files depend on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from preprocessing.artifact import build, fingerprint, read_manifest
from preprocessing.bundle import BUNDLE, Topology
from preprocessing.errors import ArtifactError, InputError, UsageError
from preprocessing.features import FeatureDtype, write_features
from preprocessing.raw_graph import RawGraph
from preprocessing.settings import IngestSettings, NpzSource, PygSource, Settings, Source, TableSource
from preprocessing.stage import Emitter
from preprocessing.tables import existing_file, table_files
from preprocessing.topology import Direction, build_graph

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = ["ingest", "ingest_pyg"]


class _Spec(Settings):
    out: Path
    settings: IngestSettings


def ingest(spec: dict[str, Any], emitter: Emitter) -> Mapping[str, Any]:
    """Stage ``ingest``: ``{"out": PATH, "settings": IngestSettings}`` to a bundle at ``out``; returns its counts.

    ``InputError`` when the input cannot be used, and then nothing is left on disk. Asked again for a bundle that is
    there already, it answers at once.
    """
    request = _Spec.model_validate(spec)
    settings = request.settings
    identity = fingerprint(settings.model_dump(), _inputs(settings.source))

    def read() -> RawGraph:
        return _read(settings.source, settings.feature_dtype, emitter)

    return _ingest(request.out, read, settings.model_dump(), identity, emitter)


def ingest_pyg(
    data: Data,
    out: Path | str,
    *,
    direction: Direction = "undirected",
    feature_dtype: FeatureDtype = "float32",
    emitter: Emitter | None = None,
) -> Mapping[str, Any]:
    """The same from a PyG ``Data`` object: ``edge_index``, ``x`` and ``y``; ids are 0..N−1."""
    from preprocessing.pyg import data_hash, read_pyg

    settings = {"source": {"kind": "pyg_data"}, "direction": direction, "feature_dtype": feature_dtype}
    identity = fingerprint(settings, data_hash(data))

    def read() -> RawGraph:
        return read_pyg(data, feature_dtype, "Data")

    return _ingest(Path(out), read, settings, identity, emitter or Emitter("ingest"))


def _inputs(source: Source) -> list[tuple[str, int, int]]:
    """Path, size and time of change of every input file: when one changes, an unfinished build starts afresh."""
    match source:
        case TableSource():
            paths = [path for path in (source.edges, source.nodes) if path is not None]
            files = [file for path in paths for file in table_files(Path(path))]
        case NpzSource():
            files = [existing_file(Path(source.path))]
        case PygSource():
            files = []
    return [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def _read(source: Source, dtype: FeatureDtype, emitter: Emitter) -> RawGraph:
    # Each reader brings its own libraries; torch is by far the heaviest.
    match source:
        case TableSource():
            from preprocessing.table_graph import read_tables

            return read_tables(source, dtype, emitter)
        case NpzSource():
            from preprocessing.npz import read_npz

            return read_npz(source, dtype)
        case PygSource():
            from preprocessing.pyg import load_pyg, read_pyg

            return read_pyg(load_pyg(source), dtype, source.name)


def _ingest(
    out: Path,
    read: Callable[[], RawGraph],
    settings: dict[str, Any],
    identity: str,
    emitter: Emitter,
) -> Mapping[str, Any]:
    if out.exists():
        return _summary(_existing(out, identity))
    with build(out, BUNDLE, identity) as made:
        raw = read()
        for notice in raw.notices:
            emitter.warning(notice.code, notice.message)
        contents = _write(raw, made.path, settings["direction"], settings["feature_dtype"], emitter)
        manifest = made.publish({**contents, "direction": settings["direction"], "settings": settings})
    return _summary(manifest)


def _existing(out: Path, identity: str) -> dict[str, Any]:
    """The manifest of the bundle that is there, when the same settings and inputs made it."""
    try:
        manifest = read_manifest(out, BUNDLE)
    except ArtifactError as error:
        given = f"{out} ({error.problem})"
    else:
        if manifest["fingerprint"] == identity:
            return manifest
        given = f"{out}, made with other settings or from other inputs"
    raise UsageError(
        "the output exists already",
        given=given,
        expected="a path that does not exist, or the bundle that these settings and inputs made",
        remedy="name another output, or delete this one",
    )


def _write(raw: RawGraph, path: Path, direction: Direction, dtype: FeatureDtype, emitter: Emitter) -> dict[str, Any]:
    """Write every file of the bundle; the answer is the manifest's part about them."""
    if len(raw.ids) == 0 or len(raw.source) == 0:
        raise InputError(
            "the graph is empty",
            where=raw.origin,
            given=f"{len(raw.ids)} nodes and {len(raw.source)} edges",
            expected="at least one node and one edge",
            remedy="check the input",
        )
    raw.ids.save(path)
    graph = build_graph(raw.source, raw.target, len(raw.ids), direction)
    _save_topology(graph.topology, path / "topology")
    if graph.symmetric is not graph.topology:
        _save_topology(graph.symmetric, path / "topology" / "symmetric")
    features = write_features(
        raw.features, path, dtype, lambda done, total: emitter.progress(done, total, "feature rows written")
    )
    return {
        "counts": {"nodes": len(raw.ids), **asdict(graph.counts)},
        "id_type": raw.ids.kind,
        "features": features,
        "labels": None if raw.labels is None else _save_labels(raw.labels, path / "labels.parquet"),
        "warnings": [asdict(notice) for notice in raw.notices],
    }


def _save_topology(topology: Topology, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    np.save(directory / "indptr.npy", topology.indptr)
    np.save(directory / "indices.npy", topology.indices)


def _save_labels(labels: pa.Array, file: Path) -> dict[str, int]:
    pq.write_table(pa.table({"label": labels}), file)
    return {"classes": pc.count_distinct(labels).as_py(), "labelled": len(labels) - labels.null_count}


def _summary(manifest: dict[str, Any]) -> dict[str, Any]:
    return {name: manifest[name] for name in ("counts", "direction", "id_type", "features", "labels", "content_hash")}
