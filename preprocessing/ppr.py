"""Stage ``preprocess``: top-K rows of S for every node, and degree weights, written into the bundle."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from preprocessing.artifact import build, finished
from preprocessing.bundle import PPR, Bundle
from preprocessing.degree_weights import write_degree_weights
from preprocessing.kept_rows import Before, tally_rows, write_change
from preprocessing.locality import renumber
from preprocessing.parts import part_name, part_ranges
from preprocessing.preprocessed import rows_identity
from preprocessing.previous import Previous
from preprocessing.ray_shards import run_shards
from preprocessing.row_parts import count_marked, write_matrices
from preprocessing.row_shards import GRAPH, ShardsWork, ShardWriter, write_shard
from preprocessing.settings import PreprocessSettings, PreviousSettings, Settings
from preprocessing.stage import Emitter

__all__ = ["preprocess"]


class _Spec(Settings):
    bundle: Path
    settings: PreprocessSettings
    previous: PreviousSettings | None = None


def preprocess(spec: dict[str, Any], emitter: Emitter) -> Mapping[str, Any]:
    """Stage ``preprocess``: ``{"bundle": PATH, "settings": PreprocessSettings, "previous": PreviousSettings | None}``.

    Returns what was written. ``ppr/`` and ``degree_weights/`` are artefacts of their own inside the bundle. What these
    settings made already is kept, what other settings made is replaced when the new one is whole, and a killed run goes
    on from its shards. With ``previous``, rows that a change of the graph has moved little come from the bundle before
    it, unless all rows of these settings are there already; ``UsageError`` when its rows are of other settings.
    """
    request = _Spec.model_validate(spec)
    bundle, settings = Bundle(request.bundle.absolute()), request.settings
    previous = None if request.previous is None else Previous.open(request.previous, bundle, settings.ppr)
    weights = write_degree_weights(bundle, settings.degree_weights, settings.shard_rows, emitter)
    rows = _write_rows(bundle, settings, previous, emitter)
    told = ("counts", "settings", "content_hash", "previous")
    return {
        name: {key: manifest[key] for key in told if key in manifest}
        for name, manifest in (("ppr", rows), ("degree_weights", weights))
    }


def _write_rows(
    bundle: Bundle, settings: PreprocessSettings, previous: Previous | None, emitter: Emitter
) -> dict[str, Any]:
    """Write ``ppr/`` into the bundle, unless these settings made what is there; returns its manifest."""
    ppr, target = settings.ppr, bundle.path / "ppr"
    if (manifest := finished(target, PPR, rows_identity(bundle, settings))) is not None:
        if previous is not None:
            emitter.warning(
                "previous_unused", "all rows of these settings are here: none was taken from the bundle before"
            )
        return manifest
    identity = rows_identity(bundle, settings, previous)
    if (manifest := finished(target, PPR, identity)) is not None:
        return manifest
    ranges = part_ranges(bundle.num_nodes, settings.shard_rows)
    with build(target, PPR, identity) as made:
        missing = [number for number in range(len(ranges)) if not (made.path / part_name(number)).exists()]
        scratch, before = made.path / "work", None
        scratch.mkdir(exist_ok=True)
        if previous is not None:
            before = Before(previous.rows, scratch / "change", previous.tolerance)
            passes = partial(emitter.progress, unit="passes")
            write_change(before.change, previous.bundle, bundle, ppr, previous.tolerance, passes)
        threads = settings.threads or max((os.cpu_count() or 1) // max(settings.num_workers, 1), 1)
        if missing and not (scratch / GRAPH).exists():
            renumber(bundle.symmetric, ppr, threads, scratch / GRAPH)
        work = ShardsWork(identity, bundle.path, made.path, scratch, ppr, settings.shard_rows, threads, before)
        _write_shards(work, missing, ranges, settings.num_workers, emitter)
        write_matrices(made.path, ranges, ppr.top_k)
        tally = None if before is None else tally_rows(before, count_marked(made.path, len(ranges), "kept"))
        shutil.rmtree(scratch)
        manifest = {
            "counts": {"nodes": bundle.num_nodes, "exact": count_marked(made.path, len(ranges), "exact")},
            "settings": ppr.model_dump(),
            "bundle": bundle.content_hash,
        }
        if previous is not None and tally is not None:
            manifest["previous"] = previous.identity | asdict(tally)
            if tally.recomputed > tally.kept:
                emitter.warning("few_kept", tally.text(previous.tolerance))
        return made.publish(manifest, replace=True)


def _write_shards(
    work: ShardsWork, missing: list[int], ranges: list[tuple[int, int]], num_workers: int, emitter: Emitter
) -> None:
    """Write the missing shards, here or by Ray's workers."""
    sizes = [end - first for first, end in ranges]
    count = _counter(sum(sizes) - sum(sizes[number] for number in missing), sum(sizes), emitter)
    if not missing:
        return
    if num_workers == 0:
        with ShardWriter(work) as writer:
            for number in missing:
                emitter.metrics(number, writer.write(number, count))
        return
    with closing(run_shards(partial(write_shard, work), missing, num_workers, work.threads)) as shards:
        for number, figures in shards:
            count(sizes[number])
            emitter.metrics(number, figures)


def _counter(done: int, total: int, emitter: Emitter) -> Callable[[int], None]:
    """Counts nodes, from ``done`` on, and tells how many are there."""

    def count(more: int) -> None:
        nonlocal done
        done += more
        emitter.progress(done, total, "nodes")

    count(0)
    return count
