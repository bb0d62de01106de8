"""Settings that reach or pass the published figures, found by the search that docs/benchmarks.md describes.

They are laid over a data set's preset; what they do not name stays published.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["BEST"]

Document = dict[str, Any]

_COSINE: Document = {"lr": 5e-3, "schedule": "cosine", "warmup_epochs": 20}
_BY_EACH_VIEW: Document = {"batch_norm_statistics": "batch"}

BEST: Mapping[str, Mapping[str, Document]] = {
    "nodes": {
        "computers": {
            "encoder": {"layers": [512, 256], **_BY_EACH_VIEW},
            "optimizer": _COSINE,
            "run": {"epochs": 700},
        },
    },
    "links": {
        "photo": {"encoder": _BY_EACH_VIEW, "optimizer": _COSINE, "run": {"epochs": 150}},
        "computers": {"encoder": _BY_EACH_VIEW, "optimizer": _COSINE, "run": {"epochs": 150}},
    },
}
"""By table, then data set."""
