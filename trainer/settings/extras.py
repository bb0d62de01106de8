"""Packages that a setting needs and a plain install lacks, told before anything is started."""

from __future__ import annotations

from importlib.util import find_spec

from preprocessing.errors import ResourceError
from trainer.settings.running import RunSettings

__all__ = ["check_extras"]

PACKAGES = {"tensorboard": "tensorboardX", "mlflow": "mlflow"}
"""By setting of ``run``, which is the extra's name too: what it imports."""


def check_extras(run: RunSettings, pointer: str) -> None:
    """``ResourceError`` for a package that is missing; ``pointer`` is that of the run's settings."""
    for name, package in PACKAGES.items():
        if getattr(run, name) and find_spec(package) is None:
            raise ResourceError(
                f"run.{name} needs the package {package}, which is not installed",
                given=f"run.{name} = true",
                expected=f"an install with the extra {name}",
                remedy=f"pip install 'rgrl[{name}]', or run.{name} = false",
                pointer=f"{pointer}/{name}",
            )
