"""Settings of how a run goes: its batches, its end, where it computes and what it keeps."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from preprocessing.settings import Settings
from trainer.settings.samplers import SamplerKind

__all__ = ["BatchSettings", "RunSettings", "StopSettings"]

FULL_BATCH_NODES = 5_000
"""Graphs of up to so many nodes are one batch, unless told otherwise."""


class BatchSettings(Settings):
    """Full batch, or mini-batches of query nodes with sampled neighbourhoods."""

    mode: Literal["auto", "full", "mini"] = Field("auto", description="`auto`: full up to 5,000 nodes.")
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

    rule: Literal["none", "plateau"] = Field(
        "none", description="`plateau`: end once the loss stays flat. `none`: go on to the last epoch."
    )
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
    seed: int = Field(
        0, ge=0, lt=2**31, description="Of all that a run draws: parameters, batches, neighbours, views, anchors."
    )
    num_workers: int = Field(0, ge=0, le=4096, description="0: in this process. 1 or more: Ray Train workers.")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="`auto`: a GPU where there is one.")
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
