"""What the encoder is trained towards; ``new_objective`` makes the one that the settings name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from trainer.encoders import Encoder, RelationEncoders, new_encoder
from trainer.objectives.base import AnchorSet, BankUse, Objective, Step
from trainer.objectives.bgrl import BgrlObjective
from trainer.objectives.cca_ssg import CcaSsgObjective
from trainer.objectives.dgi import DgiObjective
from trainer.objectives.grace import GraceObjective
from trainer.objectives.rgrl import RgrlObjective
from trainer.randomness import Draw, Purpose
from trainer.settings import TrainSettings

__all__ = ["OBJECTIVES", "AnchorSet", "BankUse", "Objective", "Step", "new_objective"]

OBJECTIVES: Mapping[str, Callable[[Encoder | RelationEncoders, TrainSettings], Objective]] = {
    "rgrl": RgrlObjective,
    "bgrl": BgrlObjective,
    "grace": GraceObjective,
    "gca": GraceObjective,
    "cca_ssg": CcaSsgObjective,
    "dgi": DgiObjective,
}


def new_objective(in_dim: int, settings: TrainSettings, num_relations: int = 1) -> Objective:
    """Networks whose first weights depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(Draw(settings.run.seed).number(Purpose.PARAMETERS))
        online = new_encoder(in_dim, settings.encoder, num_relations)
        return OBJECTIVES[settings.objective](online, settings)
