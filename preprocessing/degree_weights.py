"""Weights of nodes as global anchors: the fewer neighbours, the likelier (METHOD, "Weights and diffusion")."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from preprocessing.artifact import build, fingerprint, finished
from preprocessing.bundle import DEGREE_WEIGHTS, Bundle
from preprocessing.errors import UsageError
from preprocessing.parts import part_ranges, write_part
from preprocessing.settings import DegreeWeightSettings
from preprocessing.stage import Emitter

__all__ = ["degree_weights", "write_degree_weights"]


def degree_weights(
    degrees: npt.NDArray[np.int64], settings: DegreeWeightSettings
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Weight and probability of every node, [N] each, from its undirected degree without self-loops.

    w = min(1, α^{log(degree+1)} + β), an isolated node's min(1, 1+β); the probability is w / Σw (RGRL, section 3.2, and
    the cap of its authors' code). ``UsageError`` when α is so small that a weight is no longer positive.
    """
    weight = np.minimum(1.0, settings.alpha ** np.log(degrees + 1.0) + settings.beta)
    if not (weight > 0).all():
        raise UsageError(
            "some nodes could never be drawn: their weight is zero",
            given=f"alpha = {settings.alpha}, beta = {settings.beta}, largest degree {int(degrees.max())}",
            expected="a positive weight for every node",
            remedy="raise alpha or beta",
            pointer="/settings/degree_weights/alpha",
        )
    return weight, weight / weight.sum()


def write_degree_weights(
    bundle: Bundle, settings: DegreeWeightSettings, shard_rows: int, emitter: Emitter
) -> dict[str, Any]:
    """Write ``degree_weights/`` into the bundle, unless these settings made what is there; returns its manifest."""
    target = bundle.path / "degree_weights"
    identity = fingerprint(DEGREE_WEIGHTS, settings.model_dump(), bundle.content_hash, shard_rows)
    if (manifest := finished(target, DEGREE_WEIGHTS, identity)) is not None:
        return manifest
    degree = bundle.symmetric.degrees()
    weight, probability = degree_weights(degree, settings)
    with build(target, DEGREE_WEIGHTS, identity) as made:
        for number, (first, end) in enumerate(part_ranges(len(degree), shard_rows)):
            columns = {"degree": degree, "weight": weight, "probability": probability}
            part = {"node": np.arange(first, end), **{name: column[first:end] for name, column in columns.items()}}
            write_part(made.path, number, pa.table(part))
            emitter.progress(end, len(degree), "degree weights")
        return made.publish(
            {
                "counts": {"nodes": len(degree)},
                "settings": settings.model_dump(),
                "bundle": bundle.content_hash,
            },
            replace=True,
        )
