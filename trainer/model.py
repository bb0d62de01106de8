"""An encoder with all it needs to embed the nodes of a graph, as an embedding set's ``model/`` keeps it.

``config.json`` says what the encoder is built from, ``encoder.safetensors`` are its weights, and
``standardization.safetensors`` is there where features are standardised: by the columns of the graph it was trained on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from safetensors.torch import save as serialized

from preprocessing.artifact import write_json
from preprocessing.bundle import Bundle
from trainer.encoders import Encoder, RelationEncoders, new_encoder
from trainer.features import HASHED_COLUMNS, FeatureStore, Standardization, load_features
from trainer.settings import EncoderSettings, FeatureSettings, TrainSettings, ViewKind

__all__ = ["Model"]

WEIGHTS = "encoder.safetensors"
STANDARDIZATION = "standardization.safetensors"


@dataclass(frozen=True)
class Model:
    """``config`` is what ``config.json`` holds: in_dim, encoder, views, relations, features, hashed."""

    encoder: Encoder | RelationEncoders
    config: dict[str, Any]
    standardization: Standardization | None

    @classmethod
    def trained(
        cls, encoder: Encoder | RelationEncoders, settings: TrainSettings, bundle: Bundle, features: FeatureStore
    ) -> Model:
        """The encoder that a run on ``bundle`` made, and the features that it saw."""
        config = {
            "in_dim": features.num_columns,
            "encoder": settings.encoder.model_dump(exclude={"predictor_hidden", "batch_norm_statistics"}),
            "views": settings.views,
            "relations": list(bundle.relations),
            "features": settings.features.model_dump(),
            "hashed": bundle.features is None,
        }
        return cls(encoder.eval(), config, features.standardization)

    @classmethod
    def open(cls, directory: Path, weights: Path | None = None) -> Model:
        """What ``save`` wrote into ``directory``; its encoder with other ``weights`` where some are given."""
        config: dict[str, Any] = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        encoder = _new(config)
        encoder.load_state_dict(load_file(directory / WEIGHTS if weights is None else weights))
        stored = directory / STANDARDIZATION
        standardization = Standardization(**load_file(stored)) if stored.exists() else None
        return cls(encoder.eval(), config, standardization)

    def save(self, directory: Path) -> None:
        """Write the files of ``directory``."""
        directory.mkdir(exist_ok=True)
        (directory / WEIGHTS).write_bytes(self.weights)
        if self.standardization is not None:
            stored = {"shift_F": self.standardization.shift_F, "scale_F": self.standardization.scale_F}
            (directory / STANDARDIZATION).write_bytes(serialized(stored))
        write_json(directory / "config.json", self.config)

    @property
    def weights(self) -> bytes:
        """The encoder's, as safetensors."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.encoder.state_dict().items()}
        return bytes(serialized(tensors))

    @property
    def hashed(self) -> bool:
        """Whether features were hashed from the graph that the encoder was trained on.

        Earlier versions did not say: there, as many columns as are hashed may be such.
        """
        return bool(self.config.get("hashed", self.config["in_dim"] == HASHED_COLUMNS))

    @property
    def views(self) -> ViewKind:
        """Whether a vector is of the whole graph, or the mean over its relations."""
        views: ViewKind = self.config["views"]
        return views

    def features(self, bundle: Bundle) -> FeatureStore:
        """A bundle's, as the encoder sees them."""
        return load_features(bundle, FeatureSettings.model_validate(self.config["features"]), self.standardization)

    def new_encoder(self) -> Encoder | RelationEncoders:
        """An encoder of the same architecture, freshly initialised from torch's generator."""
        return _new(self.config)


def _new(config: dict[str, Any]) -> Encoder | RelationEncoders:
    return new_encoder(config["in_dim"], EncoderSettings.model_validate(config["encoder"]), len(config["relations"]))
