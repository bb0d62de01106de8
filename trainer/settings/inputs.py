"""Settings of what a network sees and is: features, encoder, views."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from preprocessing.settings import Settings

__all__ = ["AugmentSettings", "EncoderSettings", "FeatureSettings"]


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
    layers: list[Annotated[int, Field(ge=1, le=65_536)]] = Field(
        [256, 128], min_length=1, max_length=8, description="Width of each layer; the last is the embedding's."
    )
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

    drop_feature_1: float = Field(
        0.2, ge=0, lt=1, description="Probability that view 1 of a step lacks a feature column, in all nodes."
    )
    drop_feature_2: float = Field(
        0.3, ge=0, lt=1, description="Probability that view 2 of a step lacks a feature column, in all nodes."
    )
    drop_edge_1: float = Field(0.3, ge=0, lt=1, description="Probability that view 1 of a step lacks an edge.")
    drop_edge_2: float = Field(0.3, ge=0, lt=1, description="Probability that view 2 of a step lacks an edge.")
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
