"""The degrees of a whole graph, from its row pointers alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from preprocessing.array_types import Int64Array
from service.graphs.open_bundles import opened
from service.graphs.schemas import DegreeBucket, DegreesAnswer
from service.verified import VerifiedFiles

__all__ = ["degrees"]

CHUNK = 1 << 20


def degrees(path: Path, verified: VerifiedFiles) -> DegreesAnswer:
    """Mean, largest, and a histogram; a second or two for 10^8 nodes. ``ArtifactError`` for a damaged bundle."""
    with opened(path, verified, lambda name: name.endswith("indptr.npy")) as bundle:
        return _histogram(bundle.symmetric.indptr)


def _histogram(indptr: Int64Array) -> DegreesAnswer:
    nodes, largest = len(indptr) - 1, 0
    # Bucket b holds degrees of b bits: 0; 1; 2 and 3; 4 to 7; …
    counts = np.zeros(64, dtype=np.int64)
    for start in range(0, nodes, CHUNK):
        found = np.diff(indptr[start : start + CHUNK + 1])
        largest = max(largest, int(found.max()))
        counts += np.bincount(np.frexp(found)[1], minlength=64)
    buckets = [
        DegreeBucket(low=(1 << bits) >> 1, high=(1 << bits) - 1, nodes=int(counts[bits]))
        for bits in range(largest.bit_length() + 1)
    ]
    return DegreesAnswer(mean=int(indptr[-1]) / nodes if nodes else 0.0, max=largest, buckets=buckets)
