"""Alerts and dashboard ask for what a server really tells, and Prometheus takes and tests them.

Grafana itself is not run: there is no package of it. What its files must agree on with each other is checked.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_file import ROOT, services
from prometheus_client.parser import text_string_to_metric_families
from service_harness import running_app, settings_in

from service.api.openapi import document as openapi
from service.metrics import Metrics

PROMETHEUS, GRAFANA = ROOT / "deploy" / "prometheus", ROOT / "deploy" / "grafana"
RULES = yaml.safe_load((PROMETHEUS / "rules.yml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((GRAFANA / "dashboards" / "rgrl.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
EXPRESSIONS = {f"alert {rule['alert']}": rule["expr"] for rule in RULES} | {
    f"query {number}": text for number, text in enumerate(QUERIES)
}
OF_PROMETHEUS = {"up", "ALERTS"}


@pytest.fixture(scope="module")
def told() -> dict[str, set[str]]:
    """Every sample's name that a server may tell, and its labels."""
    registry = Metrics().registry
    collectors = registry._names_to_collectors
    # Without those that stand for a family alone; the process's own are of a collector that names none before.
    found: dict[str, set[str]] = {sample.name: set(sample.labels) for m in registry.collect() for sample in m.samples}
    for name, metric in collectors.items():
        if not {f"{name}_total", f"{name}_bucket"} & set(collectors):
            found[name] = set(getattr(metric, "_labelnames", ())) | ({"le"} if name.endswith("_bucket") else set())
    return found


def promtool(*arguments: str, cwd: Path = PROMETHEUS) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    done = subprocess.run(["promtool", *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def selectors(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Each metric of an expression with the labels it is chosen by."""
    for name, labels in re.findall(r'\b(rgrl_\w+|up|ALERTS)\b((?:\{(?:[^"{}]|"[^"]*")*\})?)', expression):
        yield name, set(re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', labels))


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_every_expression_asks_for_metrics_and_labels_that_there_are(name: str, told: dict[str, set[str]]) -> None:
    asked = list(selectors(EXPRESSIONS[name]))
    assert asked
    for metric, labels in asked:
        if metric not in OF_PROMETHEUS:
            assert metric in told
            assert labels <= told[metric]
    known = set().union(*(told.get(metric, {"alertname", "alertstate"}) for metric, _ in asked)) | {"instance", "job"}
    grouped = re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", EXPRESSIONS[name])
    assert {label.strip() for labels in grouped for label in labels.split(",")} - {""} <= known


def test_what_is_told_is_told_by_a_server_as_well(told: dict[str, set[str]], tmp_path: Path) -> None:
    """Those without labels are there from the start; the disk's are the home's."""
    with running_app(settings_in(tmp_path)) as client:
        families = text_string_to_metric_families(client.get("/metrics").text)
        samples = {sample.name: sample.value for family in families for sample in family.samples}
    for metric, labels in told.items():
        if metric.startswith("rgrl_") and not labels - {"le"} and not metric.endswith(("_created", "_info")):
            assert metric in samples
    disk = shutil.disk_usage(tmp_path)
    assert samples["rgrl_home_size_bytes"] == disk.total
    assert 0 <= samples["rgrl_home_free_bytes"] <= disk.total


def test_a_home_that_is_gone_does_not_end_the_scrape(tmp_path: Path) -> None:
    text = Metrics().exposition({}, None, tmp_path / "gone").decode()
    assert "rgrl_home_free_bytes NaN" in text


def test_routes_that_alerts_and_panels_choose_are_routes() -> None:
    routes = list(json.loads(openapi())["paths"])
    for expression in EXPRESSIONS.values():
        for pattern in re.findall(r'route=~"([^"]+)"', expression):
            chosen = [route for route in routes if re.fullmatch(pattern.replace("{", r"\{").replace("}", r"\}"), route)]
            assert len(chosen) == 3


def test_prometheus_takes_the_files() -> None:
    promtool("check", "config", "prometheus.yml")


def test_every_alert_comes_when_it_should_and_not_else() -> None:
    promtool("test", "rules", "tests.yml")
    cases = [
        case
        for part in yaml.safe_load((PROMETHEUS / "tests.yml").read_text())["tests"]
        for case in part["alert_rule_test"]
    ]
    names = {rule["alert"] for rule in RULES}
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == names
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == names


def test_the_dashboards_queries_are_promql(tmp_path: Path) -> None:
    rules = [{"record": f"q{n}", "expr": text.replace("$__rate_interval", "1m")} for n, text in enumerate(QUERIES)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    promtool("check", "rules", "rules.yml", cwd=tmp_path)


def test_every_alert_says_what_and_what_to_do() -> None:
    for rule in RULES:
        assert set(rule["annotations"]) == {"summary", "remedy"}
        assert rule["labels"]["severity"] in {"critical", "warning"}


def test_the_scrape_and_grafana_ask_services_of_the_box_by_their_names_and_ports() -> None:
    known = services()
    (job,) = [job for job in _yaml(PROMETHEUS / "prometheus.yml")["scrape_configs"] if job["job_name"] == "rgrl"]
    assert job["static_configs"] == [{"targets": [f"rgrl:{known['rgrl'].environment['RGRL_PORT']}"]}]
    source = _yaml(GRAFANA / "provisioning" / "datasources" / "prometheus.yml")["datasources"][0]
    assert source["url"] == "http://prometheus:9090"
    assert set(known["prometheus"].networks) & set(known["grafana"].networks) & set(known["rgrl"].networks)
    (provider,) = _yaml(GRAFANA / "provisioning" / "dashboards" / "rgrl.yml")["providers"]
    mounted = {mount.target: ROOT / mount.source for mount in known["grafana"].mounts if mount.source.startswith("./")}
    assert list(mounted[provider["options"]["path"]].glob("*.json")) == [GRAFANA / "dashboards" / "rgrl.json"]
    assert mounted["/etc/grafana/provisioning"] == GRAFANA / "provisioning"
    used = {panel["datasource"]["uid"] for panel in PANELS} | {
        t["datasource"]["uid"] for p in PANELS for t in p["targets"]
    }
    assert used == {source["uid"]}


def test_the_dashboard_is_laid_out_without_overlap() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert DASHBOARD["uid"]
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in DASHBOARD["panels"]):
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken
        taken |= cells


def _yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text())
