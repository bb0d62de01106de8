"""The services of the box without GPUs start by their own commands, are healthy by their own checks, and are killed and
started again; the twins with GPUs are compared with them (``tests/deploy``).

Real are PostgreSQL, Ray, our server, Prometheus and all that docker-compose.yml says of them (``box.py``). There is no
package of Grafana: what its panels ask is asked of Prometheus, and its files are checked for what can be known without
it (``test_monitoring.py``).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.csv
import pytest
import yaml
from box import Box, why_not

import preprocessing  # noqa: F401 (it names the folder of compiled kernels)
from service.client import Client

# Compiling alone may take minutes where other work is done.
pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[2]
NODES = 60
API, RAY = "rgrl-cpu", "ray-head-cpu"
PROMETHEUS = "http://127.0.0.1:9090/api/v1"
SMALL: dict[str, Any] = {
    "preprocess": {"ppr": {"top_k": 4}},
    "train": {
        "encoder": {"layers": [8, 8]},
        "anchors": {"num_global": 16},
        "run": {"epochs": 2, "checkpoint_minutes": 0.0001},
    },
    "index": {"kind": "exact", "projection": {"method": "pca"}},
}
T = TypeVar("T")


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"no box is started, and nothing of it tested: {reason}")
    folder = Path(tempfile.mkdtemp(prefix="rgrl-box-", dir="/tmp"))
    box = Box(folder, [API, "prometheus"])
    try:
        _tables(box.data)
        _warm(box)
        box.up()
        yield box
    finally:
        box.close()
        shutil.rmtree(folder)


KILLED = """
import json, sys
from pathlib import Path
from box import Box
box = Box(Path(sys.argv[1]), ["prometheus"])
box.start("prometheus")
box.wait_healthy("prometheus")
print("up", flush=True)
sys.stdin.read()
"""


def test_the_containers_of_a_killed_test_die_with_it(tmp_path: Path) -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"no container is started: {reason}")
    folder = Path(tempfile.mkdtemp(prefix="rgrl-box-", dir="/tmp"))
    try:
        test = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        with test:
            assert test.stdout is not None
            assert test.stdout.readline() == b"up\n"
            begun = psutil.Process(test.pid).children(recursive=True)
            assert 65534 in {process.uids().real for process in begun}, "one is the container's user"
            test.kill()
        assert psutil.wait_procs(begun, timeout=30)[1] == []
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def client(box: Box) -> Iterator[Client]:
    """With the key that the box made for its owner."""
    key = box.execute(API, ["cat", "/run/rgrl/first-key"]).stdout.strip()
    with box.inside(), Client("http://127.0.0.1:8000", key) as client:
        yield client


@pytest.fixture(scope="module")
def made(client: Client) -> str:
    """The graph of a job that ran on Ray; its embeddings are called ``first``."""
    graph = client.register_graph({"kind": "tables", "nodes": "nodes.csv", "edges": "edges.csv"}).id
    job = client.wait(client.submit("pipeline", graph=graph, alias="first", **SMALL).id, progress=False)
    assert job.status == "succeeded", job.error
    return graph


def _tables(folder: Path) -> None:
    rng = np.random.default_rng(7)
    ids = np.arange(NODES)
    columns = {f"x{i}": rng.standard_normal(NODES).round(4) for i in range(4)}
    pa.csv.write_csv(pa.table({"id": ids, **columns}), folder / "nodes.csv")
    ends = {"source": ids, "target": (ids * 7 + 1) % NODES}
    pa.csv.write_csv(pa.table(ends), folder / "edges.csv")


def _warm(box: Box) -> None:
    """Kernels that the tests have compiled already."""
    compiled = Path(os.environ["NUMBA_CACHE_DIR"])
    home = box.volume("rgrl-home")
    if compiled.is_dir():
        shutil.copytree(compiled, home / "numba-cache" / compiled.name)
    home.mkdir(parents=True, exist_ok=True)
    for path in (home, *home.rglob("*")):
        os.chown(path, 10001, 10001)


def until(found: Callable[[], T], what: str, seconds: float = 60.0) -> T:
    """What ``found`` answers once it is true; what it raises counts as not yet."""
    end = time.monotonic() + seconds
    while True:
        try:
            if answer := found():
                return answer
        except httpx2.TransportError:
            pass
        assert time.monotonic() < end, f"waited {seconds:g} s for {what}"
        time.sleep(0.1)


def readiness() -> dict[str, Any]:
    answer: dict[str, Any] = httpx2.get("http://127.0.0.1:8000/readyz").json()
    return answer


def vectors(client: Client) -> list[Any]:
    return client.lookup("first", list(range(NODES))).vectors.tolist()


def test_nobody_is_root_or_writes_where_nothing_is_kept(box: Box) -> None:
    script = "id -u; grep -E 'CapEff|NoNewPrivs' /proc/self/status; touch /etc/x /opt/x 2>&1; echo > /tmp/x && echo tmp"
    for name in (API, RAY, "postgres"):
        said = box.execute(name, ["sh", "-c", script]).stdout.split("\n")
        assert said[0] in {"10001", "999"}
        assert said[1].split() == ["CapEff:", "0000000000000000"]
        assert said[2].split() == ["NoNewPrivs:", "1"]
        assert [line.rpartition(": ")[2] for line in said[3:5]] == ["Read-only file system"] * 2
        assert said[5] == "tmp"
    assert box.execute("prometheus", ["touch", "/etc/x"]).returncode != 0


def test_secrets_are_read_by_those_they_are_for(box: Box) -> None:
    def reads(name: str) -> set[str]:
        listed = box.execute(name, ["ls", "/run/rgrl"]).stdout.split()
        return {file for file in listed if box.execute(name, ["cat", f"/run/rgrl/{file}"]).returncode == 0}

    assert reads("postgres") == {"database-password"}
    assert reads(API) == {"database-password", "grafana-password", "pgpass", "ray-token", "first-key"}, "its owner"
    assert reads("prometheus") == set()


def test_names_lead_to_peers_of_the_same_network_alone(box: Box) -> None:
    known = {
        name: {peer for peer in box.services if box.execute(name, ["getent", "hosts", peer]).returncode == 0} - {name}
        for name in (API, RAY, "postgres", "prometheus")
    }
    assert known == {API: {RAY, "postgres", "prometheus"}, RAY: {API}, "postgres": {API}, "prometheus": {API}}


def test_ray_takes_no_job_without_the_token(box: Box) -> None:
    with box.inside():
        body = {"entrypoint": "true"}
        assert httpx2.post("http://127.0.0.1:8265/api/jobs/", json=body, timeout=20).status_code == 401


def test_a_job_runs_on_ray_and_its_embeddings_are_served(box: Box, client: Client, made: str) -> None:
    assert httpx2.get("http://127.0.0.1:8000/v1/jobs").status_code == 401
    (job,) = client.jobs()
    listed = httpx2.get("http://127.0.0.1:8265/api/jobs/", headers={"Authorization": f"Bearer {_ray_token(box)}"})
    (submitted,) = listed.json()
    assert (submitted["status"], submitted["metadata"]["RGRL_JOB"]) == ("SUCCEEDED", job.id)
    assert len(vectors(client)) == NODES
    assert client.neighbors("first", [{"id": 3}], k=4)[0].returned == 4


def _ray_token(box: Box) -> str:
    return box.execute(RAY, ["cat", "/run/rgrl/ray-token"]).stdout


def test_prometheus_scrapes_the_server_and_has_the_rules(box: Box, client: Client) -> None:
    def scraped() -> bool:
        answer = httpx2.get(
            f"{PROMETHEUS}/query", params={"query": "up{job='rgrl'} == 1 and on () rgrl_cluster_up == 1"}
        )
        return bool(answer.json()["data"]["result"])

    until(scraped, "Prometheus to scrape the server")
    groups = httpx2.get(f"{PROMETHEUS}/rules").json()["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
    assert "RgrlDown" in {rule["name"] for rule in rules}


def test_the_dashboards_panels_have_something_to_show(box: Box, client: Client, made: str) -> None:
    """Each asks what Grafana would, by its data source's address, of a peer of Grafana's network. While nothing trains
    and nothing is amiss, the last round's figures and the alerts are empty.
    """
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "dashboards" / "rgrl.json").read_text())
    source = yaml.safe_load(
        (ROOT / "deploy" / "grafana" / "provisioning" / "datasources" / "prometheus.yml").read_text()
    )
    address = source["datasources"][0]["url"]
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]

    def silent() -> set[str]:
        vectors(client)
        client.neighbors("first", [{"id": 3}], k=4)
        empty = set()
        for query in queries:
            asked = "query=" + query.replace("$__rate_interval", "1m")
            done = box.execute(API, ["curl", "-sS", "-G", f"{address}/api/v1/query", "--data-urlencode", asked])
            answer = json.loads(done.stdout)
            assert answer["status"] == "success", (query, answer)
            if not answer["data"]["result"]:
                empty.add(query.split("{")[0])
        return empty

    expected = {"rgrl_stage_figure", "rgrl_stage_step", "rgrl_stage_done", "ALERTS"}
    until(lambda: silent() <= expected, "something in every panel")


def test_the_database_killed_is_waited_for(box: Box, client: Client, made: str) -> None:
    before = vectors(client)
    box.kill("postgres")
    until(lambda: not box.healthy(API), "the server to say that its store is away")
    until(lambda: httpx2.get("http://127.0.0.1:8000/v1/jobs").status_code == 503, "it to say so to all")
    box.start("postgres")
    box.wait_healthy("postgres")
    box.wait_healthy(API)
    assert [job.status for job in client.jobs()] == ["succeeded"]
    assert vectors(client) == before


def test_prometheus_killed_has_its_data(box: Box, client: Client) -> None:
    box.kill("prometheus")
    box.start("prometheus")
    box.wait_healthy("prometheus")
    query = {"query": "count_over_time(up{job='rgrl'}[10m]) > 0"}
    until(lambda: httpx2.get(f"{PROMETHEUS}/query", params=query).json()["data"]["result"], "samples of before")


def test_server_and_ray_killed_lose_no_job(box: Box, client: Client, made: str) -> None:
    before = vectors(client)
    endless = SMALL["train"] | {"run": {"epochs": 10**6, "checkpoint_minutes": 0.0001}}
    job = client.submit("train", graph=made, train=endless).id
    until(lambda: client.job(job).progress, "training")
    box.kill(API)
    box.start(API)
    box.wait_healthy(API)
    assert client.job(job).status == "running"
    assert vectors(client) == before
    box.kill(RAY)
    until(lambda: readiness()["cluster"] is False, "the server to notice")
    assert box.healthy(API), "look-ups outlive the trainer"
    assert vectors(client) == before
    box.start(RAY)
    box.wait_healthy(RAY)
    until(lambda: readiness()["status"] == "ok", "the server to find the cluster")
    until(lambda: client.job(job).attempt == 2 and client.job(job).status == "running", "the job to go on")
    client.cancel(job)
    assert client.wait(job, progress=False).status == "cancelled"


def test_all_stop_within_their_grace(box: Box, client: Client, made: str) -> None:
    for name in ("prometheus", API, "postgres", RAY):
        box.stop(name)
    for name in ("postgres", API):
        box.start(name)
        box.wait_healthy(name)
    assert sorted(job.status for job in client.jobs()) == ["cancelled", "succeeded"]
    assert len(vectors(client)) == NODES
    assert readiness()["status"] == "degraded", "no cluster, and all the same it serves"
