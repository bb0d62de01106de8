"""Stage ``preprocess``: top-K rows of S for every node, and degree weights, written into the bundle."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.artifact import build, fingerprint, finished
from preprocessing.bundle import PPR, Bundle, Topology
from preprocessing.degree_weights import write_degree_weights
from preprocessing.parts import fixed_lists, part_name, part_ranges, write_part
from preprocessing.push import push_rows
from preprocessing.settings import PprSettings, PreprocessSettings, Settings
from preprocessing.stage import Emitter
from preprocessing.workspace import Arcs, Rows, Rule, Traits, Workspace

__all__ = ["preprocess"]

CHUNK_ROWS = 16
"""Rows a thread takes at a time: short enough that a stop is prompt and no thread waits long for another's hub."""


class _Spec(Settings):
    bundle: Path
    settings: PreprocessSettings


def preprocess(spec: dict[str, Any], emitter: Emitter) -> Mapping[str, Any]:
    """Stage ``preprocess``: ``{"bundle": PATH, "settings": PreprocessSettings}``; returns what was written.

    ``ppr/`` and ``degree_weights/`` are artefacts of their own inside the bundle. What these settings made already is
    kept, what other settings made is replaced when the new one is whole, and a killed run goes on from its shards.
    """
    request = _Spec.model_validate(spec)
    bundle, settings = Bundle(request.bundle), request.settings
    if bundle.symmetric.weights is not None:
        emitter.warning("weights_ignored", f"{bundle.path}: PPR walks every edge alike, whatever its weight")
    weights = write_degree_weights(bundle, settings.degree_weights, settings.shard_rows, emitter)
    rows = _write_rows(bundle, settings, emitter)
    return {
        name: {key: manifest[key] for key in ("counts", "settings", "content_hash")}
        for name, manifest in (("ppr", rows), ("degree_weights", weights))
    }


def _write_rows(bundle: Bundle, settings: PreprocessSettings, emitter: Emitter) -> dict[str, Any]:
    """Write ``ppr/`` into the bundle, unless these settings made what is there; returns its manifest."""
    ppr, target = settings.ppr, bundle.path / "ppr"
    identity = fingerprint(PPR, ppr.model_dump(), bundle.content_hash, settings.shard_rows)
    if (manifest := finished(target, PPR, identity)) is not None:
        return manifest
    ranges = part_ranges(bundle.num_nodes, settings.shard_rows)
    with build(target, PPR, identity) as made:
        missing = [number for number in range(len(ranges)) if not (made.path / part_name(number)).exists()]
        done = bundle.num_nodes - sum(ranges[number][1] - ranges[number][0] for number in missing)
        emitter.progress(done, bundle.num_nodes, "nodes")
        if missing:
            with _Pushers(bundle.symmetric, ppr, settings.threads or os.cpu_count() or 1) as pushers:
                for number in missing:
                    first, end = ranges[number]
                    rows = Rows.empty(end - first, ppr.top_k)
                    for chunk in pushers.fill(first, rows):
                        done += chunk
                        emitter.progress(done, bundle.num_nodes, "nodes")
                    write_part(made.path, number, _table(first, rows, bundle.num_nodes))
                    emitter.metrics(number, _figures(rows))
        exact = pq.read_table([made.path / part_name(number) for number in range(len(ranges))], columns=["exact"])
        return made.publish(
            {
                "counts": {"nodes": bundle.num_nodes, "exact": int(np.count_nonzero(exact["exact"].to_numpy()))},
                "settings": ppr.model_dump(),
                "bundle": bundle.content_hash,
            },
            replace=True,
        )


class _Pushers:
    """Threads that fill rows of S, each with a workspace of its own; a row's bits do not depend on who fills it."""

    def __init__(self, topology: Topology, settings: PprSettings, threads: int) -> None:
        self._arcs, self._traits, self._rule = Arcs.of(topology), Traits.of(topology), Rule.of(settings)
        self._idle: SimpleQueue[Workspace] = SimpleQueue()
        for _ in range(threads):
            self._idle.put(Workspace.of(self._arcs, self._traits, self._rule))
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="push")

    def __enter__(self) -> _Pushers:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def fill(self, first: int, rows: Rows) -> Iterator[int]:
        """Fill ``rows`` with the rows from node ``first`` on; yields the number of rows done, chunk by chunk."""
        size = len(rows.counts)
        chunks = [(start, min(start + CHUNK_ROWS, size)) for start in range(0, size, CHUNK_ROWS)]
        futures = {
            self._pool.submit(self._push, first + start, rows.part(start, end)): end - start for start, end in chunks
        }
        for future in as_completed(futures):
            future.result()
            yield futures[future]

    def _push(self, first: int, rows: Rows) -> None:
        workspace = self._idle.get()
        try:
            push_rows(self._arcs, self._traits, workspace, self._rule, first, rows)
        finally:
            self._idle.put(workspace)


def _table(first: int, rows: Rows, num_nodes: int) -> pa.Table:
    """The rows as a part; rounding to float32 keeps scores lower bounds, and errors and gaps upper ones."""
    scores = _round(rows.scores, down=True)
    lost = (rows.scores - scores).max(axis=1, initial=0.0)
    # By the scores as stored, then by row number; −1 is the largest unsigned number, so the padding stays last.
    order = np.lexsort((rows.neighbors.view(np.uint64), -scores), axis=1)
    scores = np.take_along_axis(scores, order, axis=1)
    neighbors = np.take_along_axis(rows.neighbors, order, axis=1)
    row_dtype = np.int32 if num_nodes < 2**31 else np.int64
    return pa.table(
        {
            "node": np.arange(first, first + len(rows.counts)),
            "neighbors": fixed_lists(neighbors.astype(row_dtype)),
            "scores": fixed_lists(scores),
            "count": rows.counts,
            "exact": rows.exact,
            "gap": _round(rows.gap, down=False),
            "error": _round(rows.error + lost, down=False),
        }
    )


def _round(values: npt.NDArray[np.float64], *, down: bool) -> npt.NDArray[np.float32]:
    """To float32, never up (``down``) or never down."""
    rounded = values.astype(np.float32)
    wrong = rounded > values if down else rounded < values
    return np.where(wrong, np.nextafter(rounded, np.float32(-np.inf if down else np.inf)), rounded)


def _figures(rows: Rows) -> dict[str, float]:
    """What a shard cost and how much of it is proved."""
    if len(rows.counts) == 0:
        return {}
    return {"exact_share": float(rows.exact.mean()), "edge_visits_per_row": float(rows.visits.mean())}
