"""By what stage ``preprocess`` knows what is made already. No kernel is imported, so that others may ask, too."""

from __future__ import annotations

from preprocessing.artifact import fingerprint, finished
from preprocessing.bundle import DEGREE_WEIGHTS, PPR, Bundle
from preprocessing.previous import Previous
from preprocessing.settings import DegreeWeightSettings, PreprocessSettings

__all__ = ["preprocessed", "rows_identity", "weights_identity"]

FORMAT = 2
"""Of ``ppr/``: rows made in another one are made again. 2: matrices beside the parts."""


def rows_identity(bundle: Bundle, settings: PreprocessSettings, previous: Previous | None = None) -> str:
    """The fingerprint of the rows of these settings: of all of them computed, or some kept from ``previous``."""
    of_all = (PPR, FORMAT, settings.ppr.model_dump(), bundle.content_hash, settings.shard_rows)
    return fingerprint(*of_all, *(() if previous is None else (previous.identity,)))


def weights_identity(bundle: Bundle, settings: DegreeWeightSettings, shard_rows: int) -> str:
    """The fingerprint of the degree weights of these settings."""
    return fingerprint(DEGREE_WEIGHTS, settings.model_dump(), bundle.content_hash, shard_rows)


def preprocessed(bundle: Bundle, settings: PreprocessSettings, previous: Previous | None = None) -> set[str]:
    """Which of ``PPR`` and ``DEGREE_WEIGHTS`` a run of these settings would find made, and keep."""
    rows = {rows_identity(bundle, settings), rows_identity(bundle, settings, previous)}
    made = {PPR} if any(finished(bundle.path / "ppr", PPR, identity) for identity in rows) else set()
    identity = weights_identity(bundle, settings.degree_weights, settings.shard_rows)
    weights = finished(bundle.path / "degree_weights", DEGREE_WEIGHTS, identity)
    return made if weights is None else {*made, DEGREE_WEIGHTS}
