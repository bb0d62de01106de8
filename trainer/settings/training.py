"""Settings of a training run; every part owns its section."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from preprocessing.settings import DegreeWeightSettings, Settings
from trainer.settings.samplers import SamplerKind

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
    "ViewKind",
]

ViewKind = Literal["augmented", "relations"]

FULL_BATCH_NODES = 100_000
"""Graphs of up to so many nodes are one batch, unless told otherwise."""
DEFAULT_STEPS = 400
"""Of the optimizer, at least: an epoch is never cut."""


class FeatureSettings(Settings):
    """What is done to the features before the first layer."""

    transform: Literal["none", "binarize", "standardize"] = Field(
        "none", description="`binarize`: x>0 becomes 1. `standardize`: each column to mean 0, deviation 1 (dense)."
    )
    zeroed: float = Field(
        0.0, ge=0, lt=1, description="Share of the entries that are zero, at random and for good, for every reader."
    )
    zeroed_seed: int = Field(0, ge=0, lt=2**31, description="Which entries those are.")
    read_threads: int = Field(
        8,
        ge=1,
        le=1024,
        description="Threads that read rows from disk: where the file is not in memory, reads at once.",
    )


class EncoderSettings(Settings):
    """Widths of the encoder's layers, the last the embedding's, and what a layer is."""

    kind: Literal["gcn", "sage_residual", "sage_skip"] = Field(
        "gcn",
        description=(
            "`gcn`: GCN → BatchNorm → PReLU a layer. `sage_*`: mean-pooling GraphSAGE → LayerNorm → PReLU, with "
            "residual sums between layers (for one large graph, new nodes to come) or skip connections from the input "
            "(for many graphs)."
        ),
    )
    layers: list[Annotated[int, Field(ge=1, le=65_536)]] = Field([256, 128], min_length=1, max_length=8)
    self_loop_weight: float = Field(
        1.0,
        ge=1e-6,
        le=1e6,
        description=(
            "Of a `gcn`: how much a node hears of itself beside each neighbour in training; 2 is PyG's `improved`."
        ),
    )
    embedding_self_loop_weight: float | None = Field(
        None,
        ge=1e-6,
        le=1e6,
        description=(
            "The same when embeddings are made; default: as in training. More keeps what tells neighbours apart, less "
            "smooths it away."
        ),
    )
    per_relation: bool = Field(False, description="With `views` = `relations`: an encoder of its own for each.")
    predictor_hidden: int = Field(
        512, ge=1, description="Hidden width of the predictor (rgrl, bgrl) or of the projector (grace, gca)."
    )
    batch_norm_momentum: float = Field(0.01, gt=0, le=1, description="Of a `gcn`, as is `batch_norm_statistics`.")
    batch_norm_statistics: Literal["batch", "running"] = Field(
        "batch",
        description=(
            "What BatchNorm normalises by while training, in the online and the target encoder alike. `batch`: each "
            "view's own statistics; every forward of a network moves its running ones, which embeddings are made with. "
            "`running`: after the first step, the running ones, which then stay as that step left them."
        ),
    )

    @model_validator(mode="after")
    def _widths_that_add_up(self) -> EncoderSettings:
        summed = {"gcn": [], "sage_residual": self.layers, "sage_skip": self.layers[:-1]}[self.kind]
        if len(set(summed)) > 1:
            raise ValueError(f"{self.kind} adds layers up, which must be of one width: {summed}")
        return self

    @model_validator(mode="after")
    def _self_loops_where_there_are_any(self) -> EncoderSettings:
        if self.kind != "gcn" and (self.self_loop_weight, self.embedding_self_loop_weight) != (1, None):
            raise ValueError(f"{self.kind} has no self-loops: their weights are for encoder.kind = gcn")
        return self


class AugmentSettings(Settings):
    """The two views: feature columns and edges dropped (METHOD step 1), and edges slowed down (Half-Hop)."""

    drop_feature_1: float = Field(0.2, ge=0, lt=1)
    drop_feature_2: float = Field(0.3, ge=0, lt=1)
    drop_edge_1: float = Field(0.3, ge=0, lt=1)
    drop_edge_2: float = Field(0.3, ge=0, lt=1)
    scheme: Literal["auto", "uniform", "adaptive"] = Field(
        "auto",
        description=(
            "`uniform`: every edge and column is dropped with the probability given. `adaptive`: in the mean, and "
            "unimportant ones likelier, by degree centrality (GCA). `auto`: adaptive for gca, else uniform."
        ),
    )
    half_hop: float = Field(
        0.0,
        ge=0,
        le=1,
        description=(
            "Probability that a node hears its neighbours by way of slow nodes, one an edge; 0 is off. Full batch only."
        ),
    )
    half_hop_mix: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of the heard node's features in a slow node's; the rest is of the hearing one.",
    )


class AnchorSettings(Settings):
    """G global anchors a step, drawn without replacement by degree weight, and K local ones a query, by PPR."""

    num_global: int = Field(512, ge=1)
    num_local: int = Field(4, ge=1)
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

    tau_online: float = Field(0.1, gt=0)
    tau_target_global: float = Field(0.01, gt=0)
    tau_target_local: float = Field(1.0, gt=0)
    global_weight: float = Field(1.0, ge=0)
    local_weight: float = Field(1.0, ge=0)
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
    weight_decay: float = Field(1e-5, ge=0)
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


class BatchSettings(Settings):
    """Full batch, or mini-batches of query nodes with sampled neighbourhoods."""

    mode: Literal["auto", "full", "mini"] = Field("auto", description="`auto`: full up to 100,000 nodes.")
    size: int = Field(1024, ge=1, description="Queries a step and worker, in mini-batch mode.")
    order: Literal["random", "near"] = Field(
        "random",
        description=(
            "Which queries meet in a mini-batch. `near`: chunks of nodes that are near each other in the graph, so "
            "that fewer anchors and neighbours have to come along."
        ),
    )
    chunk: int = Field(
        64, ge=1, le=2**31 - 1, description="With `order` = `near`: queries that stay together, of `size`."
    )
    fan_out: list[Annotated[int, Field(le=1_000_000)]] | None = Field(
        None, description="Neighbours a node and hop, -1 for all; default 10 a hop. One entry a layer."
    )
    sampler: SamplerKind = Field(
        "auto",
        description=(
            "What samples neighbours. `auto` is `numba`, our own. `pyg-lib`, `torch-sparse`: PyG's, where installed; "
            "they sample one batch at a time, and torch-sparse copies the graph to int64 and does not draw all "
            "neighbours of a cut row alike."
        ),
    )
    replace: bool = Field(
        False,
        description=(
            "Draw with replacement: every node with a neighbour hears as many draws as the fan-out says. An edge drawn "
            "more than once counts as often, and is dropped as one."
        ),
    )
    weighted: bool = Field(
        False,
        description=(
            "Draw neighbours in proportion to their edge weights. This is not corrected for: where the fan-out cuts a "
            "row, training hears heavier neighbours more, while embeddings are made of all neighbours alike. Costs a "
            "pass over the weights of every row cut. Not for torch-sparse."
        ),
    )

    loader_threads: int | None = Field(
        None,
        ge=1,
        le=256,
        description=(
            "Threads that make steps ahead of training, which changes none; default: 1 on a CPU, for a GPU one less "
            "than the worker has cores."
        ),
    )
    feature_cache_gib: float = Field(
        0.0,
        ge=0,
        le=1e6,
        description=(
            "In mini-batch mode: memory of the training device, a worker's, for the features of the nodes that most "
            "others hear. For a GPU, or for features that do not fit in main memory; changes no result."
        ),
    )

    def mode_for(self, num_nodes: int) -> Literal["full", "mini"]:
        """The mode for a graph of so many nodes."""
        if self.mode != "auto":
            return self.mode
        return "full" if num_nodes <= FULL_BATCH_NODES else "mini"

    @model_validator(mode="after")
    def _weights_where_they_are_followed(self) -> BatchSettings:
        if self.weighted and self.sampler == "torch-sparse":
            raise ValueError("batch.weighted is for batch.sampler = numba or pyg-lib: torch-sparse ignores weights")
        return self


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

    epochs: int | None = Field(
        None,
        ge=1,
        le=10_000_000,
        description="Default: as many as make 400 steps of the optimizer, at least one; 400 in full batch.",
    )
    max_steps: int | None = Field(
        None, ge=1, description="Steps of the optimizer after which the run ends, where that is before its last epoch."
    )
    seed: int = Field(0, ge=0, lt=2**31)
    num_workers: int = Field(0, ge=0, le=4096, description="0: in this process. 1 or more: Ray Train workers.")
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["float32", "bfloat16"] = Field(
        "float32",
        description=(
            "What the networks' dense products are of. `bfloat16`: of factors with 8 binary digits, for processors "
            "that have such products; all else stays float32: sparse products, BatchNorm, the loss, parameters and "
            "their averages, and the embeddings that are made in the end."
        ),
    )
    checkpoint_every: int = Field(50, ge=1, description="Epochs between checkpoints; a killed run continues from one.")
    checkpoint_minutes: float = Field(
        10.0, ge=0, description="Minutes after which a checkpoint is due between those, inside a long epoch too."
    )
    keep_checkpoints: int = Field(
        2, ge=1, description="The last so many checkpoints are kept, and the best by the rule that reads no label."
    )
    snapshot_every: int | None = Field(
        None, ge=1, description="Epochs between encoder snapshots, for the paper's choice of the best epoch."
    )
    stop: StopSettings = StopSettings()
    tensorboard: bool = Field(False, description="Write what is reported for TensorBoard too (extra `tensorboard`).")
    mlflow: bool = Field(
        False,
        description="Log what is reported to MLflow too (extra `mlflow`): where `MLFLOW_TRACKING_URI` says, or a file.",
    )


class TrainSettings(Settings):
    """One training run. ``preset`` records where the values came from; see ``resolve_preset``."""

    preset: str | None = None
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

        ``ValidationError`` when the warm-up is not shorter than the epochs decided on.
        """
        mode, epochs = self.batch.mode_for(num_nodes), self.run.epochs
        if epochs is None:
            batches = 1 if mode == "full" else -(-num_nodes // self.batch.size)
            epochs = -(-DEFAULT_STEPS * self.optimizer.accumulate // batches)
        decided = {
            "batch": {**self.batch.model_dump(), "mode": mode},
            "run": {**self.run.model_dump(), "epochs": epochs},
        }
        return TrainSettings.model_validate({**self.model_dump(), **decided})

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
