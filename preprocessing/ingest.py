"""Ingest: any input to a graph bundle.

The bundle is the same, byte for byte, whatever the order of the input's rows: nodes are sorted by external id,
neighbours by row, and files depend on nothing else.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from preprocessing.arc_buckets import ArcBuckets
from preprocessing.artifact import build, existing, fingerprint
from preprocessing.attributes import write_attributes
from preprocessing.bundle import BUNDLE
from preprocessing.errors import InputError
from preprocessing.features import FeatureDtype, write_features
from preprocessing.input_files import InputFile
from preprocessing.journal import Journal
from preprocessing.labels import write_labels
from preprocessing.prefetch import ahead
from preprocessing.raw_graph import Arcs, RawGraph
from preprocessing.settings import GraphSettings, IngestSettings, NpzSource, PygSource, Settings, Source, TableSource
from preprocessing.splits import write_split
from preprocessing.stage import Emitter
from preprocessing.tables import table_files
from preprocessing.topology import Direction, EdgeCounts, write_topology

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = ["SHARES", "ingest", "ingest_pyg", "input_stamps", "make_bundle"]

SCRATCH = "scratch"
SHARES = 2
"""What is sorted may take one share of the memory, the blocks that are read and the libraries have the other."""


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
    identity = fingerprint(settings.model_dump(exclude={"memory"}), input_stamps(settings.source))

    def read(scratch: Path) -> RawGraph:
        return _read(settings, scratch, emitter)

    return make_bundle(request.out, read, settings, settings.source.model_dump(), identity, emitter)


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

    settings = GraphSettings(direction=direction, feature_dtype=feature_dtype)
    source = {"kind": "pyg_data"}
    identity = fingerprint(source, settings.model_dump(exclude={"memory"}), data_hash(data))

    def read(_: Path) -> RawGraph:
        return read_pyg(data, feature_dtype, "Data")

    return make_bundle(Path(out), read, settings, source, identity, emitter or Emitter("ingest"))


def input_stamps(source: Source) -> list[tuple[str, int, int]]:
    """Path, size and time of change of every input file: when one changes, an unfinished build starts afresh."""
    match source:
        case TableSource():
            named = [name for name in (source.edges, *source.relations.values(), source.nodes) if name is not None]
            files = [file for name in named for file in table_files(InputFile.at(name))]
        case NpzSource():
            files = [InputFile.at(source.path).existing()]
        case PygSource():
            files = []
    return [file.stamp() for file in files]


def _read(settings: IngestSettings, scratch: Path, emitter: Emitter) -> RawGraph:
    # Each reader brings its own libraries; torch is by far the heaviest.
    source, dtype = settings.source, settings.feature_dtype
    match source:
        case TableSource():
            from preprocessing.table_graph import read_tables

            return read_tables(source, dtype, scratch, settings.memory // SHARES, emitter)
        case NpzSource():
            from preprocessing.npz import read_npz

            return read_npz(source, dtype)
        case PygSource():
            from preprocessing.pyg import load_pyg, read_pyg

            return read_pyg(load_pyg(source), dtype, source.name)


def make_bundle(
    out: Path,
    read: Callable[[Path], RawGraph],
    settings: GraphSettings,
    source: dict[str, Any],
    identity: str,
    emitter: Emitter,
) -> Mapping[str, Any]:
    """The bundle at ``out`` of what ``read(scratch)`` answers; ``identity`` tells what would make the same one."""
    there = existing(out, BUNDLE, identity, "the bundle that these settings and inputs made")
    if there is not None:
        return _summary(there)
    with build(out, BUNDLE, identity) as made:
        # What is half done was cut to the memory at hand then.
        scratch = made.path / SCRATCH / str(int(settings.memory))
        scratch.mkdir(parents=True, exist_ok=True)
        raw = read(scratch)
        for notice in raw.warnings:
            emitter.warning(notice.code, notice.message)
        contents = _write(raw, made.path, scratch, settings, emitter)
        del raw
        _remove(made.path / SCRATCH)
        told = {"source": source, **settings.model_dump(include={"direction", "feature_dtype"})}
        manifest = made.publish({**contents, "direction": settings.direction, "settings": told})
    return _summary(manifest)


def _remove(folder: Path) -> None:
    """Away at once: killed among its files, some gone and a journal not, the next build would look for those."""
    gone = folder.with_suffix(".gone")
    shutil.rmtree(gone, ignore_errors=True)
    folder.rename(gone)
    shutil.rmtree(gone)


def _write(raw: RawGraph, path: Path, scratch: Path, settings: GraphSettings, emitter: Emitter) -> dict[str, Any]:
    """Write every file of the bundle; the answer is the manifest's part about them."""
    raw.ids.save(path)
    topology = path / "topology"
    topology.mkdir(exist_ok=True)
    counts = {}
    if len(raw.relations) > 1:
        counts = {
            name: _write_arcs(raw, [arcs], topology / name, scratch / f"arcs-{name}", settings, emitter)
            for name, arcs in raw.relations.items()
        }
    union = list(raw.relations.values()) if raw.union is None else [raw.union]
    whole = _write_arcs(raw, union, topology, scratch / "arcs", settings, emitter)
    features = write_features(
        raw.features,
        path,
        settings.feature_dtype,
        Journal(scratch / "features-written.json"),
        lambda done, total: emitter.progress(done, total, "feature rows written"),
    )
    return {
        "counts": {"nodes": len(raw.ids), **asdict(whole)},
        "relations": {name: asdict(count) for name, count in counts.items()},
        "id_type": raw.ids.kind,
        "features": features,
        "labels": None if raw.labels is None else write_labels(raw.labels, path / "labels.parquet"),
        "split": None if raw.split is None else write_split(raw.split, path / "splits.parquet"),
        "attributes": write_attributes(raw.attributes, path),
        "warnings": [asdict(notice) for notice in raw.warnings],
    }


def _write_arcs(
    raw: RawGraph,
    relations: Sequence[Arcs],
    folder: Path,
    scratch: Path,
    settings: GraphSettings,
    emitter: Emitter,
) -> EdgeCounts:
    """The CSR of some relations together; a relation without weights among weighted ones has weights of 1."""
    weighted = any(arcs.weighted for arcs in relations)
    expected = sum(arcs.expected for arcs in relations)
    memory = settings.memory // SHARES
    with ArcBuckets(scratch, len(raw.ids), expected, memory, weighted=weighted) as buckets:
        if not buckets.whole:
            _fill(buckets, relations)
        if len(raw.ids) == 0 or buckets.given == 0:
            raise InputError(
                "the graph is empty",
                where=raw.origin,
                given=f"{len(raw.ids)} nodes and {buckets.given} edges",
                expected="at least one node and one edge",
                remedy="check the input",
            )
        return write_topology(
            buckets, folder, settings.direction, lambda done, total: emitter.progress(done, total, "ranges of rows")
        )


def _fill(buckets: ArcBuckets, relations: Sequence[Arcs]) -> None:
    """Every block of arcs that is not in yet."""
    blocks = chain.from_iterable(arcs.blocks() for arcs in relations)
    with closing(ahead(read() for read in islice(blocks, buckets.blocks, None))) as coming:
        for source, target, weights in coming:
            if buckets.weighted and weights is None:
                weights = np.ones(len(source), dtype=np.float32)
            buckets.add(source, target, weights)
    buckets.close_intake()


def _summary(manifest: dict[str, Any]) -> dict[str, Any]:
    told = ("counts", "direction", "id_type", "features", "labels", "split", "content_hash")
    return {name: manifest.get(name) for name in told}
