"""The trainer's public face: settings of training and evaluation, and the published ones as presets.

It imports neither torch nor ray, so the service can check a job with it.
"""

from __future__ import annotations

from trainer.settings.evaluation import EvaluateSettings, LinkSettings
from trainer.settings.extras import check_extras
from trainer.settings.presets import PRESETS, overlay, resolve_preset
from trainer.settings.training import (
    AnchorSettings,
    AugmentSettings,
    BatchSettings,
    EncoderSettings,
    FeatureSettings,
    LossSettings,
    OptimizerSettings,
    RunSettings,
    StopSettings,
    TrainSettings,
    ViewKind,
)

__all__ = [
    "PRESETS",
    "AnchorSettings",
    "AugmentSettings",
    "BatchSettings",
    "EncoderSettings",
    "EvaluateSettings",
    "FeatureSettings",
    "LinkSettings",
    "LossSettings",
    "OptimizerSettings",
    "RunSettings",
    "StopSettings",
    "TrainSettings",
    "ViewKind",
    "check_extras",
    "overlay",
    "resolve_preset",
]
