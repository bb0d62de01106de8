"""Settings of an evaluation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from preprocessing.settings import Settings

__all__ = ["EvaluateSettings", "LinkSettings"]


class LinkSettings(Settings):
    """What the classifier of pairs sees of two vectors z_u, z_v."""

    features: Literal["hadamard", "concat", "l1", "l2", "hadamard_l1"] = Field(
        "hadamard",
        description=(
            "z_u ⊙ z_v, both one after the other, |z_u − z_v|, or (z_u − z_v)², as node2vec compares them; or the "
            "first and the third together."
        ),
    )
    normalize: bool = Field(True, description="Scale vectors to length 1 first.")
    iterations: int = Field(200, ge=1, description="Of L-BFGS, at most.")


class EvaluateSettings(Settings):
    """The linear classifiers of the paper on frozen embeddings, and their baselines.

    Task `nodes`: a class for every node, over several splits. Task `links`: edges against pairs that no edge connects,
    on a bundle of split-edges.
    """

    task: Literal["nodes", "links"] = Field(
        "nodes", description="`nodes`: tell classes of nodes. `links`: tell held-out edges from unconnected pairs."
    )
    protocol: Literal["auto", "random", "fixed"] = Field(
        "auto",
        description=(
            "`random`: random splits by the shares. `fixed`: the split that the graph was published with, `splits` "
            "classifiers on it. `auto`: fixed where the graph has one."
        ),
    )
    splits: int = Field(20, ge=1, le=1000, description="Of labelled nodes.")
    train_share: float = Field(0.1, gt=0, lt=1, description="Of labelled nodes.")
    validation_share: float = Field(0.1, gt=0, lt=1, description="Of labelled nodes.")
    links: LinkSettings = LinkSettings()
    steps: int = Field(100, ge=1, description="Of Adam, by which task `nodes` trains its classifiers.")
    lr: float = Field(0.01, gt=0, description="Adam's.")
    seed: int = Field(
        0, ge=0, lt=2**31, description="Of random splits and of the first weights of classifiers (task `nodes`)."
    )
    baselines: bool = Field(True, description="Measure beside the embeddings what costs no training.")
    snapshots: bool = Field(True, description="Measure the run's snapshots too, and report the best-validation epoch.")

    @model_validator(mode="after")
    def _some_left_for_test(self) -> EvaluateSettings:
        if self.train_share + self.validation_share >= 1:
            raise ValueError("train_share and validation_share leave nothing to test on")
        return self
