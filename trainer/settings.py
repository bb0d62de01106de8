"""Settings of training and evaluation, and the authors' published settings as presets.

This module is the trainer's public face: it imports neither torch nor ray, so the service can check a job with it.
Every part owns its settings; a preset is a partial document laid under the user's own.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from preprocessing.errors import UsageError
from preprocessing.settings import DegreeWeightSettings, Settings

__all__ = [
    "PRESETS",
    "AnchorSettings",
    "AugmentSettings",
    "BatchSettings",
    "EncoderSettings",
    "EvaluateSettings",
    "LossSettings",
    "OptimizerSettings",
    "RunSettings",
    "TrainSettings",
    "resolve_preset",
]


class FeatureSettings(Settings):
    """What is done to the features before the first layer."""

    transform: Literal["none", "binarize", "standardize"] = Field(
        "none", description="`binarize`: x>0 becomes 1. `standardize`: each column to mean 0, deviation 1 (dense)."
    )


class EncoderSettings(Settings):
    """GCN → BatchNorm → PReLU, a layer each; the last width is the embedding's."""

    layers: list[int] = Field([256, 128], min_length=1, max_length=8)
    predictor_hidden: int = Field(512, ge=1)
    batch_norm_momentum: float = Field(0.01, gt=0, le=1)
    batch_norm_statistics: Literal["batch", "running"] = Field(
        "batch",
        description=(
            "What BatchNorm normalises by while training, in the online and the target encoder alike. `batch`: each "
            "view's own statistics; every forward of a network moves its running ones, which embeddings are made with. "
            "`running`: after the first step, the running ones, which then stay as that step left them."
        ),
    )


class AugmentSettings(Settings):
    """Drop probabilities of the two views: feature columns and edges (METHOD step 1)."""

    drop_feature_1: float = Field(0.2, ge=0, lt=1)
    drop_feature_2: float = Field(0.3, ge=0, lt=1)
    drop_edge_1: float = Field(0.3, ge=0, lt=1)
    drop_edge_2: float = Field(0.3, ge=0, lt=1)


class AnchorSettings(Settings):
    """G global anchors a step, drawn without replacement by degree weight, and K local ones a query, by PPR."""

    num_global: int = Field(512, ge=1)
    num_local: int = Field(4, ge=1)
    weights: DegreeWeightSettings = DegreeWeightSettings()


class LossSettings(Settings):
    """Temperatures, the weight of the local loss, and which way the divergence points."""

    tau_online: float = Field(0.1, gt=0)
    tau_target_global: float = Field(0.01, gt=0)
    tau_target_local: float = Field(1.0, gt=0)
    local_weight: float = Field(1.0, ge=0)
    divergence: Literal["teacher_student", "student_teacher"] = Field(
        "teacher_student", description="KL(target‖online), as the authors' code, or KL(online‖target), as Eqn. 3."
    )


class OptimizerSettings(Settings):
    """AdamW on the online network; the target follows by exponential moving average."""

    lr: float = Field(1e-3, gt=0)
    weight_decay: float = Field(1e-5, ge=0)
    ema_decay: float = Field(0.99, ge=0, lt=1)


class BatchSettings(Settings):
    """Full batch, or mini-batches of query nodes with sampled neighbourhoods."""

    mode: Literal["auto", "full", "mini"] = Field("auto", description="`auto`: full up to 100,000 nodes.")
    size: int = Field(1024, ge=1, description="Queries a step and worker, in mini-batch mode.")
    fan_out: list[int] | None = Field(
        None, description="Neighbours a node and hop, -1 for all; default 10 a hop. One entry a layer."
    )


class RunSettings(Settings):
    """How long, where, and how often state reaches the disk."""

    epochs: int = Field(400, ge=1, le=10_000_000)
    seed: int = Field(0, ge=0, lt=2**31)
    num_workers: int = Field(0, ge=0, le=4096, description="0: in this process. 1 or more: Ray Train workers.")
    device: Literal["auto", "cpu", "cuda"] = "auto"
    checkpoint_every: int = Field(50, ge=1, description="Epochs between checkpoints; a killed run continues from one.")
    snapshot_every: int | None = Field(
        None, ge=1, description="Epochs between encoder snapshots, for the paper's choice of the best epoch."
    )


class TrainSettings(Settings):
    """One training run. ``preset`` records where the values came from; see ``resolve_preset``."""

    preset: str | None = None
    features: FeatureSettings = FeatureSettings()
    encoder: EncoderSettings = EncoderSettings()
    augment: AugmentSettings = AugmentSettings()
    anchors: AnchorSettings = AnchorSettings()
    loss: LossSettings = LossSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    batch: BatchSettings = BatchSettings()
    run: RunSettings = RunSettings()

    @model_validator(mode="after")
    def _one_fan_out_a_layer(self) -> TrainSettings:
        fan_out = self.batch.fan_out
        if fan_out is not None and len(fan_out) != len(self.encoder.layers):
            raise ValueError(f"batch.fan_out has {len(fan_out)} entries for {len(self.encoder.layers)} layers")
        if fan_out is not None and any(n == 0 or n < -1 for n in fan_out):
            raise ValueError("batch.fan_out entries are positive, or -1 for all")
        if any(width < 1 for width in self.encoder.layers):
            raise ValueError("encoder.layers are positive widths")
        return self


class EvaluateSettings(Settings):
    """The linear probe of METHOD: random splits, logistic regression on frozen embeddings, and its baselines."""

    splits: int = Field(20, ge=1, le=1000)
    train_share: float = Field(0.1, gt=0, lt=1)
    validation_share: float = Field(0.1, gt=0, lt=1)
    steps: int = Field(100, ge=1)
    lr: float = Field(0.01, gt=0)
    seed: int = Field(0, ge=0, lt=2**31)
    baselines: bool = True
    snapshots: bool = Field(True, description="Probe the run's snapshots too, and report the best-validation epoch.")

    @model_validator(mode="after")
    def _some_left_for_test(self) -> EvaluateSettings:
        if self.train_share + self.validation_share >= 1:
            raise ValueError("train_share and validation_share leave nothing to test on")
        return self


def _published(
    layers: list[int],
    hidden: int,
    lr: float,
    epochs: int,
    num_global: int,
    num_local: int,
    drops: tuple[float, float, float, float],
    taus: tuple[float, float],
    weights: tuple[float, float],
    local_weight: float = 1.0,
    transform: str = "none",
) -> dict[str, Any]:
    """One published setting as a partial ``TrainSettings`` document.

    The published figures come from code that trains on BatchNorm's running statistics, so the presets do.
    """
    names = ("drop_feature_1", "drop_feature_2", "drop_edge_1", "drop_edge_2")
    return {
        "features": {"transform": transform},
        "encoder": {"layers": layers, "predictor_hidden": hidden, "batch_norm_statistics": "running"},
        "augment": dict(zip(names, drops, strict=True)),
        "anchors": {
            "num_global": num_global,
            "num_local": num_local,
            "weights": {"alpha": weights[0], "beta": weights[1]},
        },
        "loss": {"tau_target_global": taus[0], "tau_target_local": taus[1], "local_weight": local_weight},
        "optimizer": {"lr": lr},
        "batch": {"mode": "full"},
        "run": {"epochs": epochs},
    }


PRESETS: dict[str, dict[str, Any]] = {
    "wikics": _published(
        [512, 256], 512, 1e-3, 1500, 2048, 2, (0.2, 0.1, 0.2, 0.3), (0.05, 1.0), (0.99, 0.01), transform="standardize"
    ),
    "computers": _published(
        [256, 128], 512, 1e-3, 15000, 512, 4, (0.2, 0.1, 0.5, 0.4), (0.01, 1.0), (0.999, 0.1), transform="binarize"
    ),
    "photo": _published(
        [512, 256], 512, 1e-3, 5000, 512, 4, (0.1, 0.2, 0.4, 0.1), (0.01, 1.0), (0.9, 0.1), transform="binarize"
    ),
    "cs": _published(
        [512, 256], 512, 1e-3, 300, 1024, 8, (0.3, 0.4, 0.3, 0.2), (0.01, 0.01), (0.9, 0.0), transform="binarize"
    ),
    "physics": _published(
        [256, 128], 512, 5e-3, 400, 256, 8, (0.1, 0.4, 0.4, 0.1), (0.01, 0.1), (0.9, 0.01), 0.7, transform="binarize"
    ),
    "cora": _published([256, 128], 256, 1e-3, 400, 128, 2, (0.3, 0.4, 0.2, 0.4), (0.01, 1.0), (0.9, 0.1)),
    "citeseer": _published([512, 256], 512, 5e-3, 50, 128, 2, (0.3, 0.2, 0.2, 0.0), (0.01, 0.1), (0.9, 0.1)),
    "pubmed": _published([512, 256], 512, 1e-2, 2500, 1024, 2, (0.0, 0.2, 0.4, 0.1), (0.01, 0.1), (0.9, 0.0)),
    "corafull": _published([512, 256], 512, 1e-4, 2000, 8192, 2, (0.5, 0.5, 0.5, 0.5), (0.01, 0.1), (0.9, 0.0)),
}


def resolve_preset(document: dict[str, Any]) -> dict[str, Any]:
    """The document with its preset's values laid under it; ``UsageError`` for a preset that does not exist."""
    name = document.get("preset")
    if name is None:
        return document
    if name not in PRESETS:
        raise UsageError(
            "there is no such preset", given=name, expected="one of " + ", ".join(PRESETS), pointer="/preset"
        )
    return _overlay(PRESETS[name], document)


def _overlay(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _overlay(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged
