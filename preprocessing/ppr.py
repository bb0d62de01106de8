"""Stage ``preprocess``: top-K rows of S for every node, and degree weights, written into the bundle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.artifact import build, fingerprint, finished
from preprocessing.bundle import PPR, Bundle
from preprocessing.degree_weights import write_degree_weights
from preprocessing.parts import fixed_lists, part_name, part_ranges, write_part
from preprocessing.row_solver import RowSolver
from preprocessing.settings import PreprocessSettings, Settings
from preprocessing.stage import Emitter
from preprocessing.workspace import Rows

__all__ = ["preprocess"]


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
            with RowSolver(bundle.symmetric, ppr, settings.threads or os.cpu_count() or 1) as solver:
                for number in missing:
                    first, end = ranges[number]
                    rows = Rows.empty(end - first, ppr.top_k)
                    for chunk in solver.fill(np.arange(first, end), rows):
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
            "tied": rows.tied,
            "capped": rows.capped,
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
