"""``/v1/info``: versions, the machine, and the limits."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from fastapi import APIRouter

from preprocessing.artifact import code_version
from service.api.dependencies import SettingsDep
from service.machine import machine
from service.schemas import Answer
from trainer.settings import PRESETS

__all__ = ["router"]

router = APIRouter(prefix="/v1/info", tags=["info"])

_PACKAGES = ("torch", "torch-geometric", "ray", "numba", "faiss-cpu", "faiss-gpu-cu12", "pyarrow", "fastapi")
_SAMPLERS = {"pyg-lib": "pyg-lib", "torch-sparse": "torch-sparse", "numba": "numba"}


class MachineAnswer(Answer):
    """The server's own. Jobs use it, unless they run on a cluster; what that has, a dry run tells."""

    cores: int
    memory: int
    gpus: int


class LimitsAnswer(Answer):
    """What one request may hold, and how many jobs may run and wait."""

    max_body_bytes: int
    max_lookup_ids: int
    max_lookup_ids_arrow: int
    max_k: int
    max_queries: int
    max_embed_nodes: int
    max_embed_edges: int
    max_running: int
    max_queued: int


class PresetAnswer(Answer):
    """What a preset of training costs: so many times it goes over the graph."""

    epochs: int


class InfoAnswer(Answer):
    """The server: null for a package that is not installed. ``presets`` are those of ``train.preset``, by name."""

    version: str
    python: str
    packages: dict[str, str | None]
    machine: MachineAnswer
    limits: LimitsAnswer
    samplers: list[str]
    presets: dict[str, PresetAnswer]


@router.get("")
def get_info(settings: SettingsDep) -> InfoAnswer:
    """What this server is and takes."""
    return InfoAnswer(
        version=code_version(),
        python=platform.python_version(),
        packages={name: _version(name) for name in _PACKAGES},
        machine=MachineAnswer.model_validate(machine()),
        limits=LimitsAnswer.model_validate(settings),
        samplers=[name for name, package in _SAMPLERS.items() if _version(package) is not None],
        presets={name: PresetAnswer(epochs=preset["run"]["epochs"]) for name, preset in PRESETS.items()},
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
