"""The trainer's public face: settings of training, embedding and evaluation, and the published ones as presets.

It imports neither torch nor ray, so the service can check a job with it.
"""

from __future__ import annotations

from trainer.settings.embed import EmbedSettings
from trainer.settings.evaluation import EvaluateSettings, LinkSettings
from trainer.settings.extras import check_extras
from trainer.settings.fitting import check_fits
from trainer.settings.inputs import AugmentSettings, EncoderSettings, FeatureSettings
from trainer.settings.presets import PRESETS, overlay, resolve_preset
from trainer.settings.running import BatchSettings, RunSettings, StopSettings
from trainer.settings.samplers import SAMPLER_SOURCES, SamplerKind
from trainer.settings.training import AnchorSettings, LossSettings, OptimizerSettings, TrainSettings, ViewKind

__all__ = [
    "PRESETS",
    "SAMPLER_SOURCES",
    "AnchorSettings",
    "AugmentSettings",
    "BatchSettings",
    "EmbedSettings",
    "EncoderSettings",
    "EvaluateSettings",
    "FeatureSettings",
    "LinkSettings",
    "LossSettings",
    "OptimizerSettings",
    "RunSettings",
    "SamplerKind",
    "StopSettings",
    "TrainSettings",
    "ViewKind",
    "check_extras",
    "check_fits",
    "overlay",
    "resolve_preset",
]
