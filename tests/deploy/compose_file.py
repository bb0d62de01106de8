"""docker-compose.yml as compose reads it (anchors, interpolation), laid over what the images' Dockerfile says."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "deploy" / "Dockerfile"


@dataclass(frozen=True)
class Image:
    """What an image says of the containers that are made of it."""

    environment: dict[str, str]
    entrypoint: list[str]
    command: list[str]
    user: str
    health: list[str] | None = None


OTHERS = {
    "postgres": Image({"LANG": "C.UTF-8"}, ["docker-entrypoint.sh"], ["postgres"], ""),
    "prom/prometheus": Image({}, ["/bin/prometheus"], [], "nobody"),
    "grafana/grafana": Image({}, ["/run.sh"], [], "grafana"),
}
"""Images that are not ours, as their Dockerfiles have it."""


@dataclass(frozen=True)
class Mount:
    """A named volume, or a folder of the machine, in a container."""

    source: str
    target: str
    read_only: bool


@dataclass(frozen=True)
class Service:
    """A container of the box: image and compose file together."""

    name: str
    image: str
    argv: list[str]
    environment: dict[str, str]
    user: str
    groups: list[str]
    health: list[str] | None
    mounts: list[Mount]
    tmpfs: list[str]
    after: dict[str, str]
    networks: dict[str, list[str]]
    raw: dict[str, Any] = field(repr=False)


def document(variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The compose file with ``variables`` as the environment that it is read in."""
    found: dict[str, Any] = _interpolated(yaml.safe_load(COMPOSE.read_text(encoding="utf-8")), variables or {})
    return found


def services(variables: Mapping[str, str] | None = None) -> dict[str, Service]:
    """Every service, of all profiles."""
    variables = variables or {}
    return {name: _service(name, raw, variables) for name, raw in document(variables)["services"].items()}


def in_order(chosen: Iterable[str], of: Mapping[str, Service]) -> list[Service]:
    """``chosen`` and what they depend on, as compose starts them."""
    ordered: list[Service] = []

    def add(name: str) -> None:
        for needed in of[name].after:
            add(needed)
        if of[name] not in ordered:
            ordered.append(of[name])

    for name in chosen:
        add(name)
    return ordered


def image_of(target: str) -> Image:
    """What deploy/Dockerfile says of a target, with what it is built on."""
    environment: dict[str, str] = {}
    entrypoint: list[str] = []
    command: list[str] = []
    user, health = "", None
    for word, rest in _instructions(target):
        match word:
            case "ENV":
                for pair in shlex.split(rest):
                    name, _, value = pair.partition("=")
                    environment[name] = value.replace("$PATH", environment.get("PATH", "/usr/local/bin:/usr/bin:/bin"))
            case "ENTRYPOINT":
                entrypoint, command = json.loads(rest), []
            case "CMD":
                command = json.loads(rest)
            case "USER":
                user = rest
            case "HEALTHCHECK":
                health = ["CMD", *json.loads(rest.partition("CMD")[2])] if "CMD" in rest else None
    return Image(environment, entrypoint, command, user, health)


def _instructions(target: str) -> Iterator[tuple[str, str]]:
    """Those of the stage and of the stages it comes from, in order."""
    text = re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*\n", "", DOCKERFILE.read_text(encoding="utf-8")))
    stages: dict[str, list[tuple[str, str]]] = {}
    stage: list[tuple[str, str]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stages[name] = stage = list(stages.get(base, []))
        else:
            stage.append((word, rest.strip()))
    yield from stages[target]


def _service(name: str, raw: dict[str, Any], variables: Mapping[str, str]) -> Service:
    target = raw["build"]["target"] if "build" in raw else None
    image = image_of(target) if target else OTHERS[raw["image"].partition(":")[0]]
    given = {key: variables.get(key) if value is None else str(value) for key, value in _of(raw, "environment").items()}
    environment = image.environment | {key: value for key, value in given.items() if value is not None}
    # An entry point of the compose file drops the image's command.
    command = raw.get("command", [] if "entrypoint" in raw else image.command)
    networks = raw.get("networks", [])
    networks = dict.fromkeys(networks) if isinstance(networks, list) else networks
    health = raw["healthcheck"]["test"] if "healthcheck" in raw else image.health
    mounts = [Mount(*part[:2], read_only=part[2:] == ["ro"]) for part in (v.split(":") for v in raw.get("volumes", []))]
    return Service(
        name=name,
        image=raw["image"],
        argv=[*raw.get("entrypoint", image.entrypoint), *command],
        environment=environment,
        user=raw.get("user", image.user),
        groups=raw.get("group_add", []),
        health=health,
        mounts=mounts,
        tmpfs=raw.get("tmpfs", []),
        after={needed: how["condition"] for needed, how in _of(raw, "depends_on").items()},
        networks={network: [name, *(more or {}).get("aliases", [])] for network, more in networks.items()},
        raw=raw,
    )


def _of(raw: dict[str, Any], key: str) -> dict[str, Any]:
    found: dict[str, Any] = raw.get(key, {})
    return found


def _interpolated(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _interpolated(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [_interpolated(item, variables) for item in value]
    if isinstance(value, str):
        return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: variables.get(found[1]) or found[2], value)
    return value
