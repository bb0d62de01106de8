"""docker-compose.yml: by the schema, against the images and the server's settings, and against itself."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
from compose_file import COMPOSE, Service, document, in_order, services

from service.box_secrets import GRAFANA_GROUP, GRAFANA_PASSWORD
from service.health import READY
from service.settings import ServiceSettings

SERVICES = services()
OURS = {name: service for name, service in SERVICES.items() if service.image.startswith("rgrl:")}
# Of other programs: Ray, libpq, numba, the XDG base directories, AWS, NVIDIA's container toolkit, Python.
OTHERS = r"RAY_\w+|PGPASSFILE|NUMBA_CACHE_DIR|XDG_CACHE_HOME|AWS_\w+|NVIDIA_\w+|PATH|PYTHONDONTWRITEBYTECODE"


def test_the_schema_of_compose_takes_it() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_pages_name_services_and_profiles_that_there_are() -> None:
    pages = [COMPOSE, COMPOSE.parent / "README.md", *(COMPOSE.parent / "docs").rglob("*.md")]
    lines = [line for page in pages for line in re.findall(r"docker compose( [^`\n#)]*)", page.read_text("utf-8"))]
    named = [re.match(r"(?P<profiles>(?: --profile \w+)*) (?P<verb>\w+)(?P<rest>.*)", line) for line in lines]
    done = [found for found in named if found is not None]
    assert {found["verb"] for found in done} >= {"up", "exec"}
    profiles = {name for service in SERVICES.values() for name in service.raw.get("profiles", [])}
    assert {word for found in done for word in re.findall(r"--profile (\w+)", found["profiles"])} == profiles
    for found in done:
        words = [word for word in found["rest"].split() if not word.startswith("-")]
        for word in words[:1] if found["verb"] == "exec" else words:
            assert word in SERVICES, found[0]


@pytest.mark.parametrize("service", OURS.values(), ids=lambda service: service.name)
def test_every_variable_is_known_to_who_gets_it(service: Service) -> None:
    for name in service.environment:
        if name.startswith("RGRL_"):
            assert name.removeprefix("RGRL_").lower() in ServiceSettings.model_fields
        else:
            assert re.fullmatch(OTHERS, name)


def test_the_server_takes_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RGRL_RAY_AUTH_TOKEN", raising=False)
    given = services({"RGRL_DATA_URIS": "s3://bucket/graphs gs://other", "AWS_REGION": "eu-north-1"})[
        "rgrl"
    ].environment
    assert given["AWS_REGION"] == "eu-north-1"
    assert "AWS_ACCESS_KEY_ID" not in given, "passed on where it is set"
    for name, value in given.items():
        if name.startswith("RGRL_"):
            monkeypatch.setenv(name, value)
    settings = ServiceSettings()
    assert settings.data_uris == ["s3://bucket/graphs", "gs://other"]
    assert f"http://{settings.host}:{settings.port}".replace("0.0.0.0", "127.0.0.1") in READY


@pytest.mark.parametrize("service", SERVICES.values(), ids=lambda service: service.name)
def test_every_container_is_held_small(service: Service) -> None:
    raw = service.raw
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", service.user), "not root"
    assert raw["read_only"] is True
    assert raw["cap_drop"] == ["ALL"]
    assert raw["security_opt"] == ["no-new-privileges:true"]
    assert raw["logging"]["options"].keys() == {"max-size", "max-file"}
    assert "privileged" not in raw
    assert re.fullmatch(r"\S+:[\w.-]+", service.image)
    assert not service.image.endswith(":latest")
    if service.name == "secrets":
        assert raw["restart"] == "no"
        assert service.health is None
    else:
        assert raw["restart"] == "unless-stopped"
        assert service.health is not None


def test_nothing_listens_beyond_this_machine_unless_told() -> None:
    published = {name: service.raw["ports"] for name, service in SERVICES.items() if "ports" in service.raw}
    assert published.keys() == {"rgrl", "rgrl-cpu", "grafana"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)
    (port,) = document({"RGRL_PUBLISH": "0.0.0.0:80"})["services"]["rgrl"]["ports"]
    assert port == "0.0.0.0:80:8000"


def test_no_secret_stands_in_the_file() -> None:
    for service in SERVICES.values():
        for name, value in service.environment.items():
            if re.search("PASS|TOKEN|SECRET|KEY", name) and not name.startswith("AWS_"):
                assert value.startswith("/run/rgrl/"), "a file, which the service called secrets makes"
        for part in [*service.argv, service.environment.get("RGRL_DATABASE_URL", "")]:
            assert not re.search(r"://[^/@]*:[^/@]*@", part)


def test_what_is_secret_is_made_before_anybody_reads_it() -> None:
    for service in SERVICES.values():
        if any(mount.source == "rgrl-secrets" for mount in service.mounts) and service.name != "secrets":
            assert service.after["secrets"] == "service_completed_successfully"
            writes = [mount for mount in service.mounts if mount.source == "rgrl-secrets" and not mount.read_only]
            assert bool(writes) == (service.name in {"rgrl", "rgrl-cpu"}), "the server alone writes: its first key"


def test_without_gpus_the_box_is_the_same() -> None:
    for name in ("rgrl", "ray-head"):
        gpu, cpu = SERVICES[name], SERVICES[f"{name}-cpu"]
        apart = {"image", "build", "profiles", "networks", "depends_on", "deploy"}
        assert _without(gpu.raw, apart) == _without(cpu.raw, apart)
        assert (gpu.image, cpu.image) == ("rgrl:gpu", "rgrl:cpu")
        assert gpu.networks.keys() == cpu.networks.keys()
        assert name in {alias for names in cpu.networks.values() for alias in names}, "peers call it by one name"
        assert _normal(gpu) == _normal(cpu)
    devices = SERVICES["ray-head"].raw["deploy"]["resources"]["reservations"]["devices"]
    assert devices == [{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}]


def test_what_grafanas_image_is_given_is_what_it_looks_for() -> None:
    """It is in no package that could be started here: by its documentation (Configure a Docker image; HTTP API)."""
    grafana = SERVICES["grafana"]
    raw = grafana.raw
    assert raw["healthcheck"]["test"][-1] == "http://127.0.0.1:3000/api/health"
    assert raw["ports"] == ["127.0.0.1:3000:3000"]
    assert grafana.environment["GF_SECURITY_ADMIN_PASSWORD__FILE"] == f"/run/rgrl/{GRAFANA_PASSWORD}"
    assert str(GRAFANA_GROUP) in SERVICES["secrets"].raw["group_add"]
    assert {mount.target for mount in grafana.mounts} == {
        *("/etc/grafana/provisioning", "/etc/grafana/dashboards", "/var/lib/grafana", "/run/rgrl")
    }
    assert raw["tmpfs"] == ["/tmp"]


@pytest.mark.parametrize("service", SERVICES.values(), ids=lambda service: service.name)
def test_health_is_looked_at_often_and_given_time_to_come(service: Service) -> None:
    health = service.raw.get("healthcheck")
    if health is None:
        assert service.name == "secrets", "it ends at once"
        return
    seconds = {key: int(health[key].removesuffix("s")) for key in ("interval", "timeout", "start_period")}
    assert seconds["timeout"] <= seconds["interval"] <= 10 <= seconds["start_period"]
    assert 3 <= health["retries"] <= 5
    assert "deploy" not in SERVICES["rgrl"].raw, "the API needs none"


def _without(raw: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in raw.items() if name not in names}


def _normal(service: Service) -> dict[str, str]:
    return {needed.removesuffix("-cpu"): condition for needed, condition in service.after.items()}


@pytest.mark.parametrize(("chosen", "built"), [("rgrl", "gpu"), ("rgrl-cpu", "cpu"), ("grafana", None)])
def test_a_profile_brings_its_own_images_and_no_other(chosen: str, built: str | None) -> None:
    images = {service.image for service in in_order([chosen], SERVICES) if service.image.startswith("rgrl:")}
    assert images - {"rgrl:secrets"} == ({f"rgrl:{built}"} if built else set())


def test_volumes_and_networks_are_those_declared() -> None:
    whole = document()
    mounts = {mount.source for service in SERVICES.values() for mount in service.mounts if "/" not in mount.source}
    assert mounts == set(whole["volumes"])
    assert {name for service in SERVICES.values() for name in service.networks} == set(whole["networks"])


def test_server_and_jobs_see_the_same_folders() -> None:
    def folders(name: str) -> dict[str, str]:
        return {mount.target: mount.source for mount in SERVICES[name].mounts}

    assert folders("rgrl") == folders("ray-head")
    home = SERVICES["rgrl"].environment["RGRL_HOME"]
    assert folders("rgrl")[home] == "rgrl-home"
    assert SERVICES["ray-head"].environment["NUMBA_CACHE_DIR"].startswith(home), "kernels are compiled once"


def test_the_variables_that_may_be_set_are_those_that_the_head_of_the_file_lists() -> None:
    text = COMPOSE.read_text()
    head = text[: text.index("\nname:")]
    used = set(re.findall(r"\$\{(\w+):-([^}]*)\}", text))
    assert {name for name, _ in used} == set(re.findall(r"\b(?:RGRL|GRAFANA)_[A-Z_]+\b", head))
    for name, default in used:
        assert not default or f"{name} ({default})" in head
