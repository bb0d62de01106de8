"""Answers as tables: Arrow always, pandas and polars where they are installed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from preprocessing.errors import ResourceError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

__all__ = ["Frames"]


class Frames(ABC):
    """What has ``to_arrow``, as the frames of others."""

    @abstractmethod
    def to_arrow(self) -> Any:
        """A ``pyarrow.Table``."""

    def to_pandas(self) -> pd.DataFrame:
        """A pandas frame; ``ResourceError`` that names the package where it is not installed."""
        _require("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """A polars frame; ``ResourceError`` that names the package where it is not installed."""
        frame: Any = _require("polars").from_arrow(self.to_arrow())
        return frame


def _require(package: str) -> Any:
    from importlib import import_module

    try:
        return import_module(package)
    except ImportError as error:
        raise ResourceError(
            f"{package} is not installed", expected=package, remedy=f"pip install {package}, or use to_arrow()"
        ) from error
