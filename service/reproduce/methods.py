"""The methods compared, as settings laid over a data set's preset.

All share the preset's encoder, augmentation, learning rate and length of training, so that the objective is what
differs. What a method's own authors set apart from that stands here: temperatures and epochs of GRACE and GCA (their
configuration files), epochs, drops and λ of CCA-SSG (its README), γ and learning rate of BGRL on cosines. DGI drops
nothing, and trains for 500 epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer.settings import overlay

__all__ = ["METHODS", "Method"]

Document = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """``settings`` on every data set, ``by_dataset`` on top of them on some."""

    title: str
    settings: Document
    by_dataset: Mapping[str, Document] = field(default_factory=dict)

    def on(self, dataset: str) -> Document:
        """What to lay over the data set's preset."""
        return overlay(self.settings, self.by_dataset.get(dataset, {}))


def _contrast(tau: float, epochs: int) -> Document:
    return {"loss": {"tau_contrast": tau}, "run": {"epochs": epochs}}


def _canonical(epochs: int, decorrelation: float, drop_feature: float, drop_edge: float) -> Document:
    drops = {
        f"drop_{what}_{view}": p for what, p in (("feature", drop_feature), ("edge", drop_edge)) for view in (1, 2)
    }
    return {"loss": {"decorrelation": decorrelation}, "augment": drops, "run": {"epochs": epochs}}


_CONTRAST = {
    "cora": _contrast(0.4, 200),
    "citeseer": _contrast(0.9, 200),
    "pubmed": _contrast(0.7, 1500),
    "photo": _contrast(0.3, 2000),
    "computers": _contrast(0.2, 2000),
    "cs": _contrast(0.4, 1000),
    "physics": _contrast(0.5, 1500),
    "wikics": _contrast(0.4, 3000),
}

METHODS: Mapping[str, Method] = {
    "rgrl": Method("RGRL", {}),
    "bgrl": Method("BGRL", {"objective": "bgrl", "optimizer": {"schedule": "cosine", "ema_schedule": "cosine"}}),
    "grace": Method("GRACE", {"objective": "grace"}, _CONTRAST),
    "gca": Method("GCA", {"objective": "gca"}, _CONTRAST),
    "cca_ssg": Method(
        "CCA-SSG",
        {"objective": "cca_ssg"},
        {
            "cora": _canonical(50, 1e-3, 0.1, 0.4),
            "citeseer": _canonical(20, 5e-4, 0.0, 0.4),
            "pubmed": _canonical(100, 1e-3, 0.3, 0.5),
            "photo": _canonical(50, 1e-3, 0.2, 0.3),
            "computers": _canonical(50, 5e-4, 0.1, 0.3),
            "cs": _canonical(50, 1e-3, 0.2, 0.2),
            "physics": _canonical(100, 1e-3, 0.5, 0.5),
        },
    ),
    "dgi": Method("DGI", {"objective": "dgi", "run": {"epochs": 500}} | {"augment": _canonical(1, 0, 0, 0)["augment"]}),
}
