"""Settings of a training run; every part owns its section."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from preprocessing.settings import DegreeWeightSettings, Settings
from trainer.settings.inputs import AugmentSettings, EncoderSettings, FeatureSettings
from trainer.settings.running import BatchSettings, RunSettings

__all__ = ["AnchorSettings", "LossSettings", "OptimizerSettings", "TrainSettings", "ViewKind"]

ViewKind = Literal["augmented", "relations"]

DEFAULT_STEPS = 400
"""Of the optimizer, at least: an epoch is never cut."""


class AnchorSettings(Settings):
    """G global anchors a step, drawn without replacement by degree weight, and K local ones a query, by PPR."""

    num_global: int = Field(
        512, ge=1, description="G, nodes that all queries of a step are compared with; at most every node."
    )
    num_local: int = Field(
        4, ge=1, description="K, nodes of its own PPR row that a query is compared with; at most ppr.top_k."
    )
    weights: DegreeWeightSettings = DegreeWeightSettings()
    bank: Literal["none", "disk", "device"] = Field(
        "none",
        description=(
            "Keep the target embeddings that nodes had when they last were queries, and compare with those of anchors "
            "in place of computing them: a mini-batch is its queries alone then, and anchors are up to two epochs old. "
            "`disk`: memory-mapped in the work folder, by every worker; `device`: where training computes. 2 bytes × "
            "nodes × views × the embedding's width, and twice that on disk in the checkpoints."
        ),
    )


class LossSettings(Settings):
    """Temperatures, the weights of a loss's parts, and which way a divergence points.

    The first six are read by rgrl.
    """

    tau_online: float = Field(0.1, gt=0, description="Temperature of the online network's similarities to anchors.")
    tau_target_global: float = Field(
        0.01, gt=0, description="Temperature of the target network's similarities to global anchors."
    )
    tau_target_local: float = Field(
        1.0, gt=0, description="Temperature of the target network's similarities to local anchors."
    )
    global_weight: float = Field(1.0, ge=0, description="Weight of the loss over global anchors.")
    local_weight: float = Field(1.0, ge=0, description="λ, weight of the loss over local anchors.")
    divergence: Literal["teacher_student", "student_teacher"] = Field(
        "teacher_student", description="KL(target‖online), as the authors' code, or KL(online‖target), as Eqn. 3."
    )
    tau_contrast: float = Field(0.4, gt=0, description="Temperature of the contrast (grace, gca).")
    decorrelation: float = Field(1e-3, ge=0, description="Weight λ of the decorrelation loss (cca_ssg).")


class OptimizerSettings(Settings):
    """AdamW on the online network; the target (rgrl, bgrl) follows by exponential moving average."""

    lr: float = Field(1e-3, gt=0, description="The highest learning rate.")
    schedule: Literal["constant", "cosine"] = Field(
        "constant", description="The learning rate after the warm-up. `cosine`: down to 0 at the last epoch."
    )
    warmup_epochs: int = Field(0, ge=0, description="Epochs in which the learning rate grows linearly up to lr.")
    weight_decay: float = Field(1e-5, ge=0, description="AdamW's, of all parameters of the online network.")
    ema_decay: float = Field(0.99, ge=0, lt=1, description="γ in target ← γ target + (1−γ) online.")
    ema_schedule: Literal["constant", "cosine"] = Field(
        "constant", description="`cosine`: γ grows from ema_decay to 1 at the last epoch, as BGRL's does."
    )
    accumulate: int = Field(
        1,
        ge=1,
        le=10_000,
        description="Mini-batches whose gradients are averaged for one step of the optimizer.",
    )
    lr_scaling: Literal["none", "sqrt", "linear"] = Field(
        "none",
        description=(
            "How lr grows with the batches a step of the optimizer is made of, workers × accumulate: by nothing, their "
            "root, or their number."
        ),
    )


class TrainSettings(Settings):
    """One training run. ``preset`` records where the values came from; see ``resolve_preset``."""

    preset: str | None = Field(None, description="Published settings, under those that are given besides.")
    objective: Literal["rgrl", "bgrl", "grace", "gca", "cca_ssg", "dgi"] = Field(
        "rgrl", description="What the networks are trained towards: RGRL, or one of the methods it is compared with."
    )
    views: ViewKind = Field(
        "augmented",
        description=(
            "What the loss compares, all pairs of them. `augmented`: two views of the graph with edges and feature "
            "columns dropped. `relations`: the relations of a multiplex graph as they are, without `augment`; an "
            "embedding is the mean over them."
        ),
    )
    features: FeatureSettings = FeatureSettings()
    encoder: EncoderSettings = EncoderSettings()
    augment: AugmentSettings = AugmentSettings()
    anchors: AnchorSettings = AnchorSettings()
    loss: LossSettings = LossSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    batch: BatchSettings = BatchSettings()
    run: RunSettings = RunSettings()

    def for_graph(self, num_nodes: int) -> TrainSettings:
        """The same for a graph of so many nodes: ``batch.mode`` and ``run.epochs`` are decided.

        ``ValidationError`` where ``check_fits`` would have refused.
        """
        decided = {
            "batch": {**self.batch.model_dump(), "mode": self.batch.mode_for(num_nodes)},
            "run": {**self.run.model_dump(), "epochs": self.epochs_for(num_nodes)},
        }
        return TrainSettings.model_validate({**self.model_dump(), **decided})

    def epochs_for(self, num_nodes: int) -> int:
        """The epochs for a graph of so many nodes."""
        if self.run.epochs is not None:
            return self.run.epochs
        batches = 1 if self.batch.mode_for(num_nodes) == "full" else -(-num_nodes // self.batch.size)
        return -(-DEFAULT_STEPS * self.optimizer.accumulate // batches)

    @property
    def epochs(self) -> int:
        """Those of settings ``for_graph``."""
        assert self.run.epochs is not None
        return self.run.epochs

    @property
    def uses_anchors(self) -> bool:
        """Whether the objective compares queries with anchors, and so reads PPR rows and degree weights."""
        return self.objective == "rgrl"

    @property
    def has_bank(self) -> bool:
        """Whether anchors' target embeddings are read from a bank."""
        return self.anchors.bank != "none"

    @property
    def augments_adaptively(self) -> bool:
        """Whether unimportant edges and columns are likelier to be dropped."""
        return self.augment.scheme == "adaptive" or (self.augment.scheme == "auto" and self.objective == "gca")

    @model_validator(mode="after")
    def _relations_for_their_encoders(self) -> TrainSettings:
        if self.encoder.per_relation and self.views != "relations":
            raise ValueError("encoder.per_relation needs views = relations")
        return self

    @model_validator(mode="after")
    def _one_fan_out_a_layer(self) -> TrainSettings:
        fan_out = self.batch.fan_out
        if fan_out is not None and len(fan_out) != len(self.encoder.layers):
            raise ValueError(f"batch.fan_out has {len(fan_out)} entries for {len(self.encoder.layers)} layers")
        if fan_out is not None and any(n == 0 or n < -1 for n in fan_out):
            raise ValueError("batch.fan_out entries are positive, or -1 for all")
        return self

    @model_validator(mode="after")
    def _mini_batches_where_they_are_meant(self) -> TrainSettings:
        for name, unusual in (("batch.order", self.batch.order == "near"), ("anchors.bank", self.has_bank)):
            if unusual and self.batch.mode == "full":
                raise ValueError(f"{name} is for mini-batches: set batch.mode to mini, or leave {name} out")
        if self.has_bank and not self.uses_anchors:
            raise ValueError(f"anchors.bank is for objective = rgrl: {self.objective} has no anchors")
        return self

    @model_validator(mode="after")
    def _schedules_fit(self) -> TrainSettings:
        if self.run.epochs is not None and self.optimizer.warmup_epochs >= self.run.epochs:
            raise ValueError(
                f"optimizer.warmup_epochs is {self.optimizer.warmup_epochs}, and run.epochs {self.run.epochs}: "
                "the warm-up is shorter than the run"
            )
        return self

    @model_validator(mode="after")
    def _half_hop_fits(self) -> TrainSettings:
        if self.augment.half_hop > 0 and self.batch.mode == "mini":
            raise ValueError("augment.half_hop needs the whole graph: set batch.mode to full, or augment.half_hop to 0")
        if self.augment.half_hop > 0 and self.encoder.kind != "gcn":
            raise ValueError("augment.half_hop is for encoder.kind = gcn")
        if self.augment.half_hop > 0 and self.encoder.self_loop_weight != 1:
            raise ValueError("augment.half_hop is for encoder.self_loop_weight = 1: slow nodes have self-loops of 1")
        return self
