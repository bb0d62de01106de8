"""Settings of a training run; every part owns its section."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from preprocessing.settings import DegreeWeightSettings, Settings

__all__ = [
    "AnchorSettings",
    "AugmentSettings",
    "BatchSettings",
    "EncoderSettings",
    "FeatureSettings",
    "LossSettings",
    "OptimizerSettings",
    "RunSettings",
    "StopSettings",
    "TrainSettings",
]


class FeatureSettings(Settings):
    """What is done to the features before the first layer."""

    transform: Literal["none", "binarize", "standardize"] = Field(
        "none", description="`binarize`: x>0 becomes 1. `standardize`: each column to mean 0, deviation 1 (dense)."
    )
    zeroed: float = Field(
        0.0, ge=0, lt=1, description="Share of the entries that are zero, at random and for good, for every reader."
    )
    zeroed_seed: int = Field(0, ge=0, lt=2**31, description="Which entries those are.")


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
    """Temperatures, the weights of the global and the local loss, and which way the divergence points."""

    tau_online: float = Field(0.1, gt=0)
    tau_target_global: float = Field(0.01, gt=0)
    tau_target_local: float = Field(1.0, gt=0)
    global_weight: float = Field(1.0, ge=0)
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


class StopSettings(Settings):
    """Whether a run may end before its last epoch: once its loss, averaged over windows of epochs, stays flat."""

    rule: Literal["none", "plateau"] = "none"
    window: int = Field(20, ge=1, description="Epochs that a loss is averaged over.")
    tolerance: float = Field(
        0.02,
        gt=0,
        le=1,
        description="A window is flat when its mean moved by at most this share of the range of all means so far.",
    )
    patience: int = Field(2, ge=1, description="Flat windows in a row that end the run.")


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
    stop: StopSettings = StopSettings()


class TrainSettings(Settings):
    """One training run. ``preset`` records where the values came from; see ``resolve_preset``."""

    preset: str | None = None
    objective: Literal["rgrl"] = Field("rgrl", description="What the networks are trained towards.")
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
