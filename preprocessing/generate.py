"""Stage ``generate``: synthetic graphs of any size as the tables a user would bring, to measure and to try things on.

Edges are drawn in blocks, each from a generator seeded by (seed, block), so that the bytes depend on the settings alone
and memory on nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from preprocessing.artifact import build, existing, fingerprint
from preprocessing.parts import fixed_lists, part_name, part_ranges, write_part
from preprocessing.settings import GenerateSettings, Settings
from preprocessing.stage import Emitter

if TYPE_CHECKING:
    from preprocessing.synthetic_edges import Ids

__all__ = ["generate"]

KIND = "generated_tables"
BLOCK = 1 << 21
"""Edges or nodes of a part."""
CLASSES = 10


class _Spec(Settings):
    out: Path
    settings: GenerateSettings


def generate(spec: dict[str, Any], emitter: Emitter) -> Mapping[str, Any]:
    """Stage ``generate``: ``{"out": PATH, "settings": GenerateSettings}``.

    Writes ``edges/part-….parquet`` (``source``, ``target``, int64) and for blocks ``nodes/part-….parquet`` (``id``,
    ``features`` [dimensions] float32, ``label``); repeats and self-loops are left in, as real tables have them. A
    killed run goes on from its parts. ``UsageError`` when ``out`` exists.
    """
    request = _Spec.model_validate(spec)
    settings = request.settings
    total = round(settings.nodes * settings.degree / 2)
    summary = {"out": str(request.out), "nodes": settings.nodes, "edges": total}
    identity = fingerprint(settings.model_dump())
    if existing(request.out, KIND, identity, "the tables that these settings made") is not None:
        return summary
    with build(request.out, KIND, identity) as made:
        # Here, where there is a place to write to: its kernels may have to be compiled.
        from preprocessing.synthetic_edges import Ids, draw_edges

        ids = Ids.of(settings.nodes, settings.seed)
        (made.path / "edges").mkdir(exist_ok=True)
        for number, (first, end) in enumerate(part_ranges(total, BLOCK)):
            if not (made.path / "edges" / part_name(number)).exists():
                ends = draw_edges(settings, ids, number, end - first)
                write_part(made.path / "edges", number, pa.table({"source": ends[:, 0], "target": ends[:, 1]}))
            emitter.progress(end, total, "edges")
        if settings.kind == "blocks":
            _write_nodes(made.path / "nodes", settings, ids, emitter)
        made.publish({"counts": {"nodes": settings.nodes, "edges": total}, "settings": settings.model_dump()})
    return summary


def _write_nodes(folder: Path, settings: GenerateSettings, ids: Ids, emitter: Emitter) -> None:
    """Ids, numbers about the centre of the node's class, and the class: its community modulo ten."""
    folder.mkdir(exist_ok=True)
    columns = settings.dimensions
    centers = np.random.default_rng([settings.seed, 2]).normal(size=(CLASSES, columns))
    for number, (first, end) in enumerate(part_ranges(settings.nodes, max(1, BLOCK * 8 // max(8, columns)))):
        if not (folder / part_name(number)).exists():
            nodes = np.arange(first, end)
            labels = (nodes // settings.community_size) % CLASSES
            noise = np.random.default_rng([settings.seed, 3, number]).normal(size=(end - first, columns))
            features = (centers[labels] + 2 * noise).astype(np.float32)
            table = {"id": ids.named(nodes), "features": fixed_lists(features), "label": labels}
            write_part(folder, number, pa.table(table))
        emitter.progress(end, settings.nodes, "nodes")
