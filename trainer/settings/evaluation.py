"""Settings of an evaluation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from preprocessing.settings import Settings

__all__ = ["EvaluateSettings"]


class EvaluateSettings(Settings):
    """The linear probe of METHOD: logistic regression on frozen embeddings over several splits, and its baselines."""

    protocol: Literal["auto", "random", "fixed"] = Field(
        "auto",
        description=(
            "`random`: random splits by the shares. `fixed`: the split that the graph was published with, `splits` "
            "classifiers on it. `auto`: fixed where the graph has one."
        ),
    )
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
