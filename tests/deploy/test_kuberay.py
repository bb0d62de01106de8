"""The manifests: by Kubernetes' schemas, against docker-compose.yml, and against each other.

There is no cluster here. Of the RayCluster, whose schema is KubeRay's, the pods are checked, and the names that KubeRay
makes of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import kubernetes_validate
import pytest
import yaml
from compose_file import ROOT, image_of, services

from service.settings import ServiceSettings

FOLDER = ROOT / "deploy" / "kuberay"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
DOCUMENTS = [
    document for name in KUSTOMIZATION["resources"] for document in yaml.safe_load_all((FOLDER / name).read_text())
]
DEPLOY_DOCS = (ROOT / "docs" / "deploy.md").read_text()
KUBERNETES = "1.35"
OTHERS = {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "PGPASSWORD", "PGDATA"}


def of(kind: str, name: str) -> dict[str, Any]:
    (found,) = [d for d in DOCUMENTS if (d["kind"], d["metadata"]["name"]) == (kind, name)]
    return dict(found)


def templates() -> dict[str, dict[str, Any]]:
    """Pod templates by whose they are."""
    ray = of("RayCluster", "rgrl-ray")["spec"]
    workers = {f"ray-{group['groupName']}": group["template"] for group in ray["workerGroupSpecs"]}
    return {
        "server": of("Deployment", "rgrl")["spec"]["template"],
        "postgres": of("StatefulSet", "rgrl-postgres")["spec"]["template"],
        "ray-head": ray["headGroupSpec"]["template"],
        **workers,
    }


TEMPLATES = templates()
RAY = {name: template for name, template in TEMPLATES.items() if name.startswith("ray-")}


def container(name: str) -> dict[str, Any]:
    (found,) = TEMPLATES[name]["spec"]["containers"]
    return dict(found)


def environment(name: str) -> dict[str, str | None]:
    """Variables, those from secrets as None."""
    found: dict[str, str | None] = {}
    for source in container(name).get("envFrom", []):
        if "configMapRef" in source:
            found |= of("ConfigMap", source["configMapRef"]["name"])["data"]
    return found | {variable["name"]: variable.get("value") for variable in container(name).get("env", [])}


def test_every_file_is_listed_and_plain() -> None:
    """Anchors and merges are not understood by all that read manifests."""
    files = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert files == set(KUSTOMIZATION["resources"])
    for name in files:
        assert not re.search(r"(?m)^[^#]*(: &\w|: \*\w|<<:)", (FOLDER / name).read_text())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: f"{d['kind']} {d['metadata']['name']}")
def test_kubernetes_takes_it(document: dict[str, Any]) -> None:
    if document["kind"] != "RayCluster":
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


@pytest.mark.parametrize("name", TEMPLATES)
def test_kubernetes_takes_the_pod_and_holds_it_small(name: str) -> None:
    template = TEMPLATES[name]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x"} | template["metadata"],
        "spec": template["spec"],
    }
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)
    held = container(name)
    assert template["spec"]["securityContext"]["runAsNonRoot"] is True
    assert template["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert template["spec"]["automountServiceAccountToken"] is False
    assert held["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert held["resources"]["limits"]["memory"] == held["resources"]["requests"]["memory"]
    assert {"readinessProbe", "livenessProbe"} <= held.keys()
    assert {mount["name"] for mount in held["volumeMounts"]} == _volumes(name)


def _volumes(name: str) -> set[str]:
    claims = of("StatefulSet", "rgrl-postgres")["spec"]["volumeClaimTemplates"] if name == "postgres" else []
    return {volume["name"] for volume in TEMPLATES[name]["spec"]["volumes"]} | {c["metadata"]["name"] for c in claims}


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_variable_is_known_to_who_gets_it(name: str) -> None:
    for variable in environment(name):
        if variable.startswith("RGRL_"):
            assert variable.removeprefix("RGRL_").lower() in ServiceSettings.model_fields
        else:
            assert variable in OTHERS or (name == "postgres" and variable.startswith("POSTGRES_"))


def test_the_server_takes_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (image_of("cpu").environment | environment("server")).items():
        if name.startswith("RGRL_"):
            monkeypatch.setenv(name, "secret" if value is None else value)
    settings = ServiceSettings()
    cluster = of("RayCluster", "rgrl-ray")["metadata"]["name"]
    assert settings.ray_address == f"http://{cluster}-head-svc:{_port('ray-head', 'dashboard')}", "KubeRay's service"
    service = of("Service", "rgrl-postgres")["metadata"]["name"]
    assert f"@{service}/" in settings.database
    assert settings.first_key_file is not None
    assert settings.first_key_file.parent == settings.home, "what outlives the pod"


def _port(name: str, called: str) -> int:
    (found,) = [port["containerPort"] for port in container(name)["ports"] if port["name"] == called]
    return int(found)


def test_images_users_and_ports_are_those_of_the_box() -> None:
    box = services()
    pairs = {"server": "rgrl-cpu", "postgres": "postgres", **dict.fromkeys(RAY, "ray-head")}
    for name, same in pairs.items():
        assert container(name)["image"] == box[same].image
        context = TEMPLATES[name]["spec"]["securityContext"]
        assert f"{context['runAsUser']}:{context['runAsGroup']}" == box[same].user
        grace = box[same].raw["stop_grace_period"]
        assert grace == f"{TEMPLATES[name]['spec']['terminationGracePeriodSeconds']}s"
    port = _port("server", "http")
    assert box["rgrl"].raw["ports"][0].endswith(f":{port}")
    assert of("Service", "rgrl")["spec"]["ports"][0]["port"] == port == int(box["rgrl"].environment["RGRL_PORT"])
    for variable in ("POSTGRES_USER", "POSTGRES_DB", "PGDATA"):
        assert environment("postgres")[variable] == box["postgres"].environment[variable]
    assert environment("ray-head")["RAY_AUTH_MODE"] == box["ray-head"].environment["RAY_AUTH_MODE"]
    assert environment("server")["RGRL_DATABASE_URL"] == box["rgrl"].environment["RGRL_DATABASE_URL"].replace(
        "@postgres", "@rgrl-postgres"
    )


def test_probes_are_the_health_checks_of_the_box() -> None:
    box = services()
    for name, same in {"postgres": "postgres", "ray-head": "ray-head"}.items():
        for probe in ("readinessProbe", "livenessProbe"):
            assert ["CMD", *container(name)[probe]["exec"]["command"]] == box[same].health
    assert container("server")["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container("server")["livenessProbe"]["httpGet"]["path"] == "/livez", "a database that is away ends no server"


def test_ray_is_of_the_images_version() -> None:
    (locked,) = re.findall(r"^ray==(\S+)$", (ROOT / "deploy" / "requirements.txt").read_text(), re.MULTILINE)
    assert of("RayCluster", "rgrl-ray")["spec"]["rayVersion"] == locked


def test_all_see_one_home_where_the_image_has_it() -> None:
    for name in ("server", *RAY):
        volumes = {volume["name"]: volume for volume in TEMPLATES[name]["spec"]["volumes"]}
        mounts = {mount["name"]: mount["mountPath"] for mount in container(name)["volumeMounts"]}
        assert mounts["home"] == image_of("cpu").environment["RGRL_HOME"]
        claim = volumes["home"]["persistentVolumeClaim"]["claimName"]
        assert of("PersistentVolumeClaim", claim)["spec"]["accessModes"] == ["ReadWriteMany"]
    assert of("Deployment", "rgrl")["spec"]["replicas"] == 1
    assert of("Deployment", "rgrl")["spec"]["strategy"] == {"type": "Recreate"}, "the home has one server"


def secrets(value: Any) -> Iterator[tuple[str, str]]:
    """Secret and key of every reference that must be there."""
    if isinstance(value, dict):
        if "secretKeyRef" in value:
            yield value["secretKeyRef"]["name"], value["secretKeyRef"]["key"]
        for item in value.values():
            yield from secrets(item)
    elif isinstance(value, list):
        for item in value:
            yield from secrets(item)


def test_secrets_are_made_by_the_commands_of_the_docs() -> None:
    wanted = set(secrets(DOCUMENTS))
    commands = re.findall(
        r"kubectl -n rgrl create secret generic (\S+)((?:\s+\\?\n?\s*--from-literal=(?:\$\([^)]*\)|\S)+)+)", DEPLOY_DOCS
    )
    made = {(name, key) for name, rest in commands for key in re.findall(r"--from-literal=([\w-]+)=", rest)}
    assert wanted <= made
    optional = {
        ref["secretRef"]["name"]
        for name in TEMPLATES
        for ref in container(name).get("envFrom", [])
        if "secretRef" in ref
    }
    assert optional <= {name for name, _ in made}


def test_selectors_find_their_pods() -> None:
    labels = {name: template["metadata"]["labels"] for name, template in TEMPLATES.items()}
    assert of("Deployment", "rgrl")["spec"]["selector"]["matchLabels"] == labels["server"]
    assert of("Service", "rgrl")["spec"]["selector"] == labels["server"]
    assert of("StatefulSet", "rgrl-postgres")["spec"]["selector"]["matchLabels"] == labels["postgres"]
    policies = [d["spec"] for d in DOCUMENTS if d["kind"] == "NetworkPolicy"]
    assert [policy["podSelector"]["matchLabels"] for policy in policies] == [labels["ray-head"], labels["postgres"]]
    for policy in policies:
        for rule in policy["ingress"]:
            assert rule["from"][0]["podSelector"]["matchLabels"] in labels.values()


def test_a_login_shell_finds_ray_in_the_image() -> None:
    """KubeRay starts Ray from one, and /etc/profile sets the path anew; the probes use no program that lacks there."""
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    (line,) = re.findall(r'echo "(PATH=\S+)" > /etc/profile\.d/\w+\.sh', text)
    assert line.replace("\\$", "$") == "PATH=/opt/rgrl/bin:$PATH"
    for name in RAY:
        for probe in ("readinessProbe", "livenessProbe"):
            assert container(name)[probe]["exec"]["command"][:3] == ["python", "-m", "service.health"]
