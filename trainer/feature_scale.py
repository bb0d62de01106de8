"""Features too large to be computed with: BatchNorm squares what they become, and float32 ends at 3.4e38."""

from __future__ import annotations

import numpy as np

from preprocessing.bundle import Bundle, DenseFeatures, SparseFeatures
from preprocessing.errors import InputError
from trainer.settings.inputs import FeatureSettings

__all__ = ["check_scale"]

LARGEST = 1e15
"""Its square may be summed over 10^8 nodes."""
LOOKED_AT = 2_000_000
"""Values at most, evenly spaced: what is wrong with the scale is wrong with most."""


def check_scale(bundle: Bundle, settings: FeatureSettings) -> None:
    """``InputError`` where features reach the encoder as they are and some are larger than ``LARGEST``."""
    if settings.transform != "none":
        return
    match bundle.features:
        case DenseFeatures(values):
            seen = values[:: max(1, values.size // LOOKED_AT)]
        case SparseFeatures(values=values):
            seen = values[:: max(1, len(values) // LOOKED_AT)]
        case None:
            return
    largest = float(np.abs(seen).max(initial=0.0))
    if largest > LARGEST:
        raise InputError(
            "the features are too large to be computed with",
            given=f"{largest:.3g} among them",
            expected=f"numbers of at most {LARGEST:g}, positive or negative",
            remedy="set features.transform = standardize (of dense ones), or scale them before ingest",
        )
