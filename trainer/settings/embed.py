"""Settings of embedding another bundle by a finished encoder."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from preprocessing.settings import Settings

__all__ = ["EmbedSettings"]


class EmbedSettings(Settings):
    """Where it is computed."""

    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="`auto`: a GPU where there is one.")
