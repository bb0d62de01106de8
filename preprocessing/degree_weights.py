"""Weights of nodes as global anchors: the fewer neighbours, the likelier (METHOD, "Weights and diffusion")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from preprocessing.alias import write_alias_table
from preprocessing.array_types import Float64Array, Int64Array
from preprocessing.artifact import build, finished
from preprocessing.bundle import DEGREE_WEIGHTS, Bundle
from preprocessing.errors import UsageError
from preprocessing.parts import part_ranges, write_part
from preprocessing.preprocessed import weights_identity
from preprocessing.settings import DegreeWeightSettings
from preprocessing.stage import Emitter

__all__ = ["degree_weights", "write_degree_weights"]

BLOCK_ROWS = 1 << 20
"""Sums run block by block, so this size is part of the result's last bits."""


def degree_weights(degrees: Int64Array, settings: DegreeWeightSettings) -> Float64Array:
    """Weight of every node, [N], from its undirected degree without self-loops.

    w = min(1, α^{log(degree+1)} + β), an isolated node's min(1, 1+β) (RGRL, section 3.2, and the cap of its authors'
    code). ``UsageError`` when α is so small that a weight is no longer positive.
    """
    weight: Float64Array = np.minimum(1.0, settings.alpha ** np.log(degrees + 1.0) + settings.beta)
    if not (weight > 0).all():
        raise UsageError(
            "some nodes could never be drawn: their weight is zero",
            given=f"alpha = {settings.alpha}, beta = {settings.beta}, largest degree {int(degrees.max())}",
            expected="a positive weight for every node",
            remedy="raise alpha or beta",
            pointer="/settings/degree_weights/alpha",
        )
    return weight


def write_degree_weights(
    bundle: Bundle, settings: DegreeWeightSettings, shard_rows: int, emitter: Emitter
) -> dict[str, Any]:
    """Write ``degree_weights/`` into the bundle, unless these settings made what is there; returns its manifest.

    Two passes over ``indptr``, block by block; beside the parts stands the alias table, ready to be drawn from.
    """
    target = bundle.path / "degree_weights"
    identity = weights_identity(bundle, settings, shard_rows)
    if (manifest := finished(target, DEGREE_WEIGHTS, identity)) is not None:
        return manifest
    indptr, size = bundle.symmetric.indptr, bundle.num_nodes

    def blocks() -> Iterator[Float64Array]:
        for first in range(0, size, BLOCK_ROWS):
            yield degree_weights(np.diff(indptr[first : first + BLOCK_ROWS + 1]), settings)

    total = sum(float(block.sum()) for block in blocks())
    with build(target, DEGREE_WEIGHTS, identity) as made:
        for number, (first, end) in enumerate(part_ranges(size, shard_rows)):
            degree = np.diff(indptr[first : end + 1])
            weight = degree_weights(degree, settings)
            columns = {"degree": degree, "weight": weight, "probability": weight / total}
            write_part(made.path, number, pa.table({"node": np.arange(first, end), **columns}))
            emitter.progress(end, size, "degree weights")
        write_alias_table(made.path / "alias", size, blocks)
        return made.publish(
            {
                "counts": {"nodes": size},
                "settings": settings.model_dump(),
                "bundle": bundle.content_hash,
            },
            replace=True,
        )
