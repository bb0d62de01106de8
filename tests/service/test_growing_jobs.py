"""Jobs on graphs that grow, ``append``, ``embed`` and ``preprocess`` with a graph before: what may be asked, and what
comes of it in the store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from embedding_fixtures import write_set
from fastapi.testclient import TestClient
from service_harness import job_of, running_app, settings_in, tiny_bundle, wait_end, wait_for

from preprocessing.artifact import build, read_manifest
from preprocessing.bundle import BUNDLE
from preprocessing.settings import PprSettings
from service.jobs.plan import plan_job
from service.settings import ServiceSettings


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("growing")


@pytest.fixture(scope="module")
def settings(folder: Path) -> ServiceSettings:
    return settings_in(folder)


@pytest.fixture(scope="module")
def client(settings: ServiceSettings, folder: Path) -> Iterator[TestClient]:
    with running_app(settings) as client:
        pq.write_table(pa.table({"source": [10], "target": [40]}), folder / "data" / "new.parquet")
        yield client


def graph(client: TestClient, folder: Path, name: str, *, columns: int = 0, **options: Any) -> tuple[str, str]:
    """Id and content hash of a tiny graph; with ``columns`` of features, as far as its manifest is asked."""
    path = folder / "data" / name
    tiny_bundle(path, **options)
    if columns:
        manifest = read_manifest(path, BUNDLE)
        manifest["features"] = {"layout": "dense", "columns": columns, "dtype": "float32", "density": 1.0}
        (path / "manifest.json").write_text(json.dumps(manifest | {"content_hash": name}))
    answer = client.post("/v1/graphs", json={"bundle": name})
    assert answer.status_code == 201, answer.text
    return answer.json()["id"], read_manifest(path, BUNDLE)["content_hash"]


def encoder(client: TestClient, folder: Path, graph_id: str, content: str, **config: Any) -> str:
    """A registered set on a graph, with an encoder of two layers."""
    path = folder / "data" / f"set of {graph_id}"
    with build(path, "embedding_set", "test") as making:
        write_set(path.with_name(f"plain {graph_id}"), np.ones((4, 2), np.float32), [10, 20, 30, 40], content)
        for file in ("vectors.npy", "ids.npy"):
            (making.path / file).write_bytes((path.with_name(f"plain {graph_id}") / file).read_bytes())
        (making.path / "model").mkdir()
        told = {"in_dim": 7, "hashed": False, "relations": [], "encoder": {"layers": [8, 2]}} | config
        (making.path / "model" / "config.json").write_text(json.dumps(told))
        bundle = {"path": "", "content_hash": content}
        making.publish({"counts": {"nodes": 4, "dim": 2}, "bundle": bundle, "training": {"bundle": bundle}})
    answer = client.post("/v1/embeddings", json={"path": str(path), "graph": graph_id})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def submit(client: TestClient, body: dict[str, Any], *stages: tuple[str, dict[str, Any]], status: int = 201) -> Any:
    answer = client.post("/v1/jobs", json=body | {"labels": {"fake": json.dumps(stages)}})
    assert answer.status_code == status, answer.text
    return answer.json()


def test_append_makes_a_graph_of_its_own(client: TestClient, settings: ServiceSettings, folder: Path) -> None:
    old, _ = graph(client, folder, "old")
    before = client.get(f"/v1/graphs/{old}").json()
    body = {"kind": "append", "graph": old, "name": "grown", "append": {"source": {"edges": "new.parquet"}}}
    job = submit(client, body, ("append", {"make": "bundle"}))
    assert job["new_graph"] is None
    assert job["spec"]["append"]["source"]["edges"] == str(folder / "data" / "new.parquet")
    ended = wait_end(client, job["id"])
    assert (ended["status"], ended["graph"]) == ("succeeded", old)
    new = client.get(f"/v1/graphs/{ended['new_graph']}").json()
    assert new["id"] == job["id"].replace("job_", "graph_")
    assert (new["name"], new["state"], new["counts"]) == ("grown", "ready", {"nodes": 4, "arcs": 6})
    assert (new["direction"], new["feature_dtype"], new["source"]) == ("reverse", "float16", {"kind": "x"})
    assert new["bundle"] == str(settings.graphs / new["id"] / "bundle")
    assert client.get(f"/v1/graphs/{old}").json() == before
    # It is the server's own: deleting it takes its files.
    assert client.delete(f"/v1/graphs/{new['id']}").status_code == 204
    assert not Path(new["bundle"]).exists()
    assert (folder / "data" / "old" / "manifest.json").exists()


def test_a_failed_append_leaves_no_graph(client: TestClient, folder: Path) -> None:
    old, _ = graph(client, folder, "unlucky")
    graphs = client.get("/v1/graphs").json()
    body = {"kind": "append", "graph": old, "append": {"source": {"edges": "new.parquet"}}}
    ended = wait_end(client, submit(client, body, ("append", {"exit": 3}))["id"])
    assert (ended["status"], ended["new_graph"]) == ("failed", None)
    assert client.get("/v1/graphs").json() == graphs


@pytest.mark.parametrize(
    ("append", "status", "pointer"),
    [
        ({}, 422, "/append/source"),
        ({"source": {"edges": "absent.parquet"}}, 422, "/append/source/edges"),
        ({"source": {"edges": "../secret.parquet"}}, 403, "/append/source/edges"),
        ({"source": {"relations": {"likes": "../x"}}}, 403, "/append/source/relations/likes"),
        ({"source": {"edges": "new.parquet", "nodes": "/etc/passwd"}}, 403, "/append/source/nodes"),
        ({"source": {"kind": "npz", "path": "x.npz"}}, 422, "/append/source/kind"),
        ({"source": {"edges": "new.parquet"}, "memory": 1}, 422, "/append/memory"),
    ],
)
def test_tables_to_append_are_held_as_those_of_a_graph(
    client: TestClient, folder: Path, append: dict[str, Any], status: int, pointer: str
) -> None:
    old = client.post("/v1/graphs", json={"bundle": str(held_bundle(folder))}).json()["id"]
    answer = client.post("/v1/jobs", json={"kind": "append", "graph": old, "append": append})
    assert answer.status_code == status, answer.text
    assert answer.json()["errors"][0]["pointer"] == pointer


def held_bundle(folder: Path) -> Path:
    path = folder / "data" / "held"
    return path if path.exists() else tiny_bundle(path)


def test_embed_makes_a_set_on_the_other_graph_and_switches_the_alias_last(
    client: TestClient, settings: ServiceSettings, folder: Path
) -> None:
    one, content = graph(client, folder, "one", columns=7)
    other, _ = graph(client, folder, "other", columns=7)
    source = encoder(client, folder, one, content)
    assert client.put("/v1/aliases/live", json={"embedding": source}).status_code == 200
    gate = folder / "embed-gate"
    body = {"kind": "embed", "embedding": "live", "graph": other, "alias": "live", "index": {"kind": "exact"}}
    job = submit(client, body, ("embed", {"make": "embeddings"}), ("index", {"gate": str(gate), "summary": {"n": 1}}))
    assert (job["encoder"], job["embedding"], job["alias"], set(job["spec"])) == (
        source,
        None,
        "live",
        {"embed", "index"},
    )
    made = wait_for(lambda: job_of(client, job["id"])["embedding"])
    assert client.get("/v1/aliases/live").json()["embedding"] == source, "not before the job has succeeded"
    assert client.delete(f"/v1/embeddings/{source}").status_code == 409
    gate.touch()
    assert wait_end(client, job["id"])["status"] == "succeeded"
    found = client.get("/v1/embeddings/live").json()
    assert (found["id"], found["graph"], found["job"], found["index"]) == (made, other, job["id"], {"n": 1})
    assert found["path"] == str(settings.embeddings / made)
    assert client.delete(f"/v1/embeddings/{source}").status_code == 204


def test_an_encoder_in_use_cannot_be_deleted(client: TestClient, folder: Path) -> None:
    one, content = graph(client, folder, "used", columns=7)
    source = encoder(client, folder, one, content)
    gate = folder / "use-gate"
    job = submit(client, {"kind": "embed", "embedding": source, "graph": one}, ("embed", {"gate": str(gate)}))["id"]
    answer = client.delete(f"/v1/embeddings/{source}")
    assert (answer.status_code, job in answer.json()["detail"]) == (409, True)
    client.post(f"/v1/jobs/{job}/cancel")
    assert wait_end(client, job)["embedding"] is None
    assert client.delete(f"/v1/embeddings/{source}").status_code == 204


def test_an_encoder_that_does_not_fit_the_graph_is_refused(client: TestClient, folder: Path) -> None:
    seven, content = graph(client, folder, "seven", columns=7)
    eight, _ = graph(client, folder, "eight", columns=8)
    bare, bare_content = graph(client, folder, "bare")
    fits = encoder(client, folder, seven, content)
    hashed = encoder(client, folder, bare, bare_content, hashed=True, in_dim=64)
    for embedding, target, told in (
        (fits, eight, "8 feature columns"),
        (fits, bare, "hashed from one graph"),
        (hashed, seven, "hashed from one graph"),
    ):
        answer = client.post("/v1/jobs", json={"kind": "embed", "embedding": embedding, "graph": target})
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/graph"), answer.text
        assert told in answer.json()["detail"]
    assert client.post("/v1/jobs", json={"kind": "embed", "embedding": hashed, "graph": bare}).status_code == 201
    no_rows, rowless = graph(client, folder, "rowless", top_k=None)
    of_no_rows = encoder(client, folder, no_rows, rowless, hashed=True)
    assert client.post("/v1/jobs", json={"kind": "embed", "embedding": of_no_rows, "graph": no_rows}).status_code == 409
    relations = encoder(client, folder, graph(client, folder, "plain", columns=7)[0], "plain", relations=["a"])
    answer = client.post("/v1/jobs", json={"kind": "embed", "embedding": relations, "graph": seven})
    assert (answer.status_code, "['a']" in answer.json()["detail"]) == (422, True)
    for body in ({"embedding": "emb_0", "graph": seven}, {"embedding": fits, "graph": "graph_0"}):
        assert client.post("/v1/jobs", json={"kind": "embed", **body}).status_code == 404


def test_a_graph_before_a_change_is_held_while_it_is_needed(
    client: TestClient, settings: ServiceSettings, folder: Path
) -> None:
    before, content = graph(client, folder, "before")
    after, _ = graph(client, folder, "after", ids=[10, 20, 30, 50])
    bare, _ = graph(client, folder, "no rows", top_k=None)
    fits = {"ppr": {"top_k": 3}}
    # As if preprocess had made the rows.
    rows = folder / "data" / "before" / "ppr" / "manifest.json"
    made_of = {"bundle": content, "settings": PprSettings(top_k=3).model_dump()}
    rows.write_text(json.dumps(json.loads(rows.read_text()) | made_of))
    for previous, preprocess, status in (
        ({"graph": bare}, fits, 409),
        ({"graph": after}, fits, 422),
        ({"graph": before}, {"ppr": {"top_k": 4}}, 422),
        ({"graph": "graph_0"}, fits, 404),
        ({"graph": before, "tolerance": 2}, fits, 422),
    ):
        body = {"kind": "preprocess", "graph": after, "preprocess": preprocess, "previous": previous}
        answer = client.post("/v1/jobs", json=body)
        assert answer.status_code == status, answer.text
        assert str(folder) not in answer.text
    body = {"kind": "preprocess", "graph": after, "preprocess": fits, "previous": {"graph": before}}
    gate = folder / "previous-gate"
    job = submit(client, body, ("preprocess", {"gate": str(gate)}))["id"]
    store = client.app.state.store
    [plan] = plan_job(store.job(job), store, settings)
    assert plan.spec["previous"] == {"bundle": str(folder / "data" / "before"), "tolerance": 1e-4}
    answer = client.delete(f"/v1/graphs/{before}")
    assert (answer.status_code, job in answer.json()["detail"]) == (409, True)
    gate.touch()
    wait_end(client, job)
    assert client.delete(f"/v1/graphs/{before}").status_code == 204


def test_dry_runs_tell_more_for_more(client: TestClient, folder: Path) -> None:
    one, content = graph(client, folder, "dry", columns=7)
    source = encoder(client, folder, one, content)
    pq.write_table(pa.table({"source": [10] * 9000, "target": list(range(9000))}), folder / "data" / "large.parquet")
    for bodies in (
        [{"kind": "append", "append": {"source": {"edges": f"{name}.parquet"}}} for name in ("new", "large")],
        [{"kind": "embed", "embedding": source}, {"kind": "embed", "embedding": source, "index": {"kind": "hnsw"}}],
    ):
        plans = [
            client.post("/v1/jobs", params={"dry_run": True}, json={"graph": one, **body}).json() for body in bodies
        ]
        disks = [plan["estimate"]["disk_bytes"] for plan in plans]
        assert 0 < disks[0] < disks[1]
        assert all(plan["estimate"]["memory_bytes"] > 0 for plan in plans)
    assert [plan["stages"] for plan in plans] == [["embed"], ["embed", "index"]]


def test_the_stages_are_given_what_the_commands_give_them(
    client: TestClient, settings: ServiceSettings, folder: Path
) -> None:
    one, content = graph(client, folder, "planned", columns=7)
    source = encoder(client, folder, one, content)
    store = client.app.state.store
    bundle, sets = str(folder / "data" / "planned"), settings.embeddings

    def specs(body: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        job = store.job(submit(client, {"graph": one, **body})["id"])
        return [(plan.name, plan.spec) for plan in plan_job(job, store, settings)]

    [(name, spec)] = specs({"kind": "append", "append": {"source": {"edges": "new.parquet"}}})
    assert (name, spec["bundle"], spec["settings"]["source"]["edges"]) == (
        "append",
        bundle,
        str(folder / "data" / "new.parquet"),
    )
    [(name, spec), (index, indexed)] = specs({"kind": "embed", "embedding": source, "index": {}})
    made = spec["out"]
    assert (name, index, indexed["embeddings"]) == ("embed", "index", made)
    assert spec == {
        "embeddings": store.embedding(source).path,
        "bundle": bundle,
        "out": made,
        "settings": {"device": "auto"},
    }
    assert Path(made).parent == sets
