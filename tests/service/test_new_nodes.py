"""Vectors of nodes never seen, over HTTP: against append and embed, where refused, and how far one call may look."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from embedding_fixtures import add_set, settings, write_bundle, write_set
from fastapi.testclient import TestClient
from new_node_fixtures import COLUMNS, KNOWN, NEW, Case, World

from preprocessing.bundle import Bundle, DenseFeatures, SparseFeatures
from service.api.app import create_app
from service.search.turns import Turns

ARROW = "application/vnd.apache.arrow.stream"
SAGE = {"kind": "sage_residual", "layers": [6, 6, 6]}
SKIP = {"kind": "sage_skip", "layers": [6, 6, 4]}
TWO = ("likes", "knows")

CASES = {
    "gcn": Case(),
    "gcn, one layer": Case({"layers": [4]}),
    "gcn, four layers": Case({"layers": [8, 3, 8, 4]}),
    "gcn, self-loops": Case({"layers": [9, 5], "self_loop_weight": 2.0}),
    "gcn, other self-loops of embeddings": Case({"layers": [9, 5], "embedding_self_loop_weight": 0.3}),
    "sage_residual": Case(SAGE),
    "sage_residual, one layer": Case({"kind": "sage_residual", "layers": [6]}),
    "sage_skip": Case(SKIP),
    "sage_skip, one layer": Case({"kind": "sage_skip", "layers": [4]}),
    "directed": Case(direction="directed", seed=1),
    "reverse": Case(SAGE, direction="reverse", seed=2),
    "float16": Case(feature_dtype="float16"),
    "sparse": Case(density=0.15),
    "sparse float16, skip": Case(SKIP, density=0.15, feature_dtype="float16"),
    "binarize": Case(density=0.5, features={"transform": "binarize"}),
    "binarize, sparse": Case(SKIP, density=0.15, features={"transform": "binarize"}),
    "standardize": Case(SKIP, features={"transform": "standardize"}),
    "standardize, sparse": Case(density=0.15, features={"transform": "standardize"}),
    "relations": Case(relations=TWO, views="relations"),
    "relations, each its own": Case({"layers": [6, 5], "per_relation": True}, relations=TWO, views="relations"),
    "relations, each its own, directed": Case(
        SAGE | {"per_relation": True}, relations=TWO, views="relations", direction="directed"
    ),
    "relations as one graph": Case(relations=TWO),
    "weights": Case(weighted=True),
    "text ids": Case(ids="string", seed=3),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def client(home: Path) -> Iterator[TestClient]:
    with TestClient(create_app(settings(home, max_embed_nodes=NEW, max_embed_edges=2000))) as client:
        yield client


@pytest.fixture(scope="module")
def world(home: Path) -> World:
    return World(home / "world", Case())


@pytest.fixture(scope="module")
def ref(client: TestClient, world: World) -> str:
    return added(client, world)


def added(client: TestClient, world: World) -> str:
    return add_set(client.app.state.store, world.set.path, world.bundle.path)


def vectors(client: TestClient, ref: str, body: dict[str, Any]) -> np.ndarray:
    response = client.post(f"/v1/embeddings/{ref}/embed", json=body)
    assert response.status_code == 200, response.text
    answer = response.json()
    assert answer["embedding"] == ref
    assert [item["id"] for item in answer["items"]] == [str(node["id"]) for node in body["nodes"]]
    found = np.array([item["vector"] for item in answer["items"]])
    assert found.shape[1] == answer["dim"]
    return found


def problem(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    return response.json()


@pytest.mark.parametrize("name", CASES)
def test_new_nodes_get_the_vectors_of_append_and_embed(client: TestClient, tmp_path: Path, name: str) -> None:
    world = World(tmp_path / "world", CASES[name])
    layout = SparseFeatures if world.case.density < 0.25 else DenseFeatures
    assert isinstance(world.bundle.features, layout)
    before = {file: file.stat().st_mtime_ns for file in world.folder.rglob("*")}
    found, expected = vectors(client, added(client, world), world.request()), world.oracle()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert expected.std(axis=0).min() > 1e-3
    assert all(file.stat().st_mtime_ns == stamp for file, stamp in before.items() if file.is_file())


def test_known_nodes_hear_of_the_new_ones(client: TestClient, world: World, ref: str) -> None:
    """One edge to a known node: its degree, and what it passes on, are those of the grown graph."""
    body = world.request()
    with_edges = vectors(client, ref, body)
    alone = vectors(client, ref, body | {"edges": []})
    assert np.abs(with_edges[-1] - alone[-1]).max() == 0  # the last has no edges
    assert (np.abs(with_edges[:-1] - alone[:-1]).max(axis=1) > 1e-4).all()
    one, other = body["nodes"][0], body["nodes"][1]
    edge = {"source": one["id"], "target": world.known[0]}
    pair = {"source": other["id"], "target": world.known[0]}
    first = vectors(client, ref, {"nodes": [one, other], "edges": [edge]})[0]
    heard = vectors(client, ref, {"nodes": [one, other], "edges": [edge, pair]})[0]
    assert np.abs(first - heard).max() > 1e-4


def test_base64_and_arrow_hold_the_same(client: TestClient, world: World, ref: str) -> None:
    body = world.request()
    expected = vectors(client, ref, body).astype(np.float32)
    items = client.post(f"/v1/embeddings/{ref}/embed", json=body | {"encoding": "base64"}).json()["items"]
    decoded = [np.frombuffer(base64.b64decode(item["vector"]), "<f4") for item in items]
    np.testing.assert_array_equal(decoded, expected)
    response = client.post(f"/v1/embeddings/{ref}/embed", json=body, headers={"Accept": ARROW})
    assert response.headers["content-type"] == ARROW
    table = pa.ipc.open_stream(response.content).read_all()
    assert table.schema.metadata == {b"embedding": ref.encode()}
    assert table["id"].to_pylist() == [str(node) for node in world.new]
    np.testing.assert_array_equal(table["vector"].to_pylist(), expected)


NEW_NODE = {"id": "new", "features": [1.0] * COLUMNS}


@pytest.mark.parametrize(
    ("body", "pointer", "word"),
    [
        ({"nodes": []}, "/nodes", "at least 1"),
        ({"nodes": [{"id": "new"}]}, "/nodes/0/features", "no features"),
        ({"nodes": [{"id": "new", "features": [1.0]}]}, "/nodes/0/features", "another number"),
        ({"nodes": [{"id": "new", "features": [1e39] * COLUMNS}]}, "/nodes/0/features", "larger than"),
        ({"nodes": [{"id": "new", "features": [3e38] * COLUMNS}]}, "/nodes/0/features", "not finite"),
        (
            {"nodes": [{"id": "new", "features": {"columns": [COLUMNS], "values": [1.0]}}]},
            "/nodes/0/features/columns",
            "no such feature column",
        ),
        (
            {"nodes": [{"id": "new", "features": {"columns": [1], "values": []}}]},
            "/nodes/0/features",
            "1 columns have 0",
        ),
        ({"nodes": [{"id": "new", "features": {"columns": [1, 1], "values": [1, 2]}}]}, "/nodes/0/features", "twice"),
        ({"nodes": [NEW_NODE, NEW_NODE]}, "/nodes/1/id", "comes twice"),
        ({"nodes": [NEW_NODE, NEW_NODE | {"id": "KNOWN"}]}, "/nodes/1/id", "already"),
        ({"edges": [{"source": "new", "target": "nobody"}]}, "/edges/0/target", "no node"),
        ({"edges": [{"source": "new", "target": "new"}, {"source": "nobody", "target": "new"}]}, "/edges/1/source", ""),
        ({"edges": [{"source": "KNOWN", "target": "KNOWN"}]}, "/edges/0", "both ends"),
        ({"edges": [{"source": "new", "target": "KNOWN", "relation": "likes"}]}, "/edges/0/relation", "no such"),
        ({"edges": [{"source": "new", "target": "KNOWN", "weight": 1.0}]}, "/edges/0/weight", "has a weight"),
        ({"edges": [{"source": "new", "target": "KNOWN", "weight": 0}]}, "/edges/0/weight", "greater than 0"),
        ({"edges": [{"source": "new"}]}, "/edges/0/target", "required"),
        ({"nodes": {}}, "/nodes", "an array"),
        ({"nodes": ["new"]}, "/nodes/0", "an object"),
        ({"nodes": [{"id": 1.5}]}, "/nodes/0/id", "a text, or a whole number"),
        ({"nodes": [{"id": "new", "features": "1"}]}, "/nodes/0/features", "an array of numbers, or an object"),
        ({"nodes": [{"id": "new", "features": [1, "x"]}]}, "/nodes/0/features/1", "a number"),
        ({"nodes": [{"id": "new", "features": {"columns": [1]}}]}, "/nodes/0/features/values", "required"),
        ({"edges": [["new", "new"]]}, "/edges/0", "an object"),
        ({"edges": [], "unknown": 1}, "/unknown", "no such field"),
    ],
)
def test_what_append_would_refuse_is_pointed_at(
    client: TestClient, world: World, ref: str, body: dict[str, Any], pointer: str, word: str
) -> None:
    text = json.dumps({"nodes": [NEW_NODE], **body}).replace('"KNOWN"', str(world.known[0]))
    response = client.post(f"/v1/embeddings/{ref}/embed", content=text, headers={"Content-Type": "application/json"})
    faults = problem(response, 422)["errors"]
    assert [fault["pointer"] for fault in faults] == [pointer], faults
    assert word in faults[0]["detail"], faults
    assert not re.search("Value error|dictionary|valid list|instance|Python", faults[0]["detail"])


def test_relations_are_named_where_there_are_several(client: TestClient, tmp_path: Path) -> None:
    ref = added(client, World(tmp_path / "world", Case(relations=TWO, views="relations")))
    for relation in ({}, {"relation": "hates"}):
        body = {"nodes": [NEW_NODE], "edges": [{"source": "new", "target": "new", **relation}]}
        told = problem(client.post(f"/v1/embeddings/{ref}/embed", json=body), 422)
        assert told["errors"][0]["pointer"] == "/edges/0/relation"
        assert "likes, knows" in told["detail"]


def test_limits_are_named(client: TestClient, world: World, ref: str, home: Path) -> None:
    url = f"/v1/embeddings/{ref}/embed"
    nodes = [NEW_NODE | {"id": f"new-{number}"} for number in range(NEW + 1)]
    edge = {"source": "new-0", "target": "new-0"}
    for body, pointer, limit in [
        ({"nodes": nodes}, "/nodes", f"at most {NEW} new nodes a call (setting max_embed_nodes)"),
        ({"nodes": nodes[:1], "edges": [edge] * 2001}, "/edges", "at most 2000 edges a call (setting max_embed_edges)"),
    ]:
        told = problem(client.post(url, json=body), 422)
        assert (told["code"], told["errors"][0]["pointer"]) == ("limit_exceeded", pointer)
        assert limit in told["detail"]
        assert "rgrl append" in told["remedy"]


def test_a_call_reads_no_more_edges_than_the_limit(world: World, tmp_path: Path) -> None:
    """One hub: at the limit it is answered, one below it is refused before a vector is made."""
    degrees = world.bundle.topology.degrees()
    hub = int(np.argmax(degrees))
    body = {"nodes": [NEW_NODE], "edges": [{"source": "new", "target": world.bundle.ids.external([hub])[0]}]}
    # Layer 1 reads the hub's edges and the new one both ways, layer 2 nothing else than those.
    needed = int(degrees[hub]) + 2
    for limit, status in ((needed, 200), (needed - 1, 422)):
        home = tmp_path / str(limit)
        with TestClient(create_app(settings(home, max_embed_edges=limit))) as client:
            response = client.post(f"/v1/embeddings/{added(client, world)}/embed", json=body)
            assert response.status_code == status
            if status == 422:
                told = problem(response, 422)
                assert (told["code"], told["errors"][0]["pointer"]) == ("limit_exceeded", "/nodes")
                assert f"at most {limit} edges" in told["detail"]
                assert "max_embed_edges" in told["detail"]
                assert "rgrl append" in told["remedy"]


def test_it_takes_a_turn_of_the_searches(world: World, tmp_path: Path) -> None:
    with TestClient(create_app(settings(tmp_path))) as client:
        ref = added(client, world)
        turns = client.app.state.searches = Turns(1, 0.0)
        with turns.turn():
            told = problem(client.post(f"/v1/embeddings/{ref}/embed", json={"nodes": [NEW_NODE]}), 429)
        assert told["retryable"]
        assert vectors(client, ref, {"nodes": [NEW_NODE]}).shape == (1, 5)


def test_sets_that_cannot_embed_say_why(client: TestClient, home: Path, tmp_path: Path) -> None:
    def told(ref: str, status: int) -> str:
        return problem(client.post(f"/v1/embeddings/{ref}/embed", json={"nodes": [NEW_NODE]}), status)["detail"]

    zeroed = World(tmp_path / "zeroed", Case(features={"zeroed": 0.5}))
    assert "features.zeroed" in told(added(client, zeroed), 422)
    content = write_bundle(tmp_path / "bare", KNOWN, [(0, 1)])
    bare = write_set(tmp_path / "bare-set", np.ones((KNOWN, 3), np.float32), content=content)
    shutil.copytree(zeroed.set.path / "model", bare / "model")
    assert "hashed from the graph" in told(add_set(client.app.state.store, bare, tmp_path / "bare"), 422)
    gone = World(tmp_path / "gone", Case())
    shutil.rmtree(gone.bundle.path)
    assert "no artefact" in told(added(client, gone), 409)
    changed, other = World(tmp_path / "changed", Case()), World(tmp_path / "other", Case(seed=9))
    told_of = add_set(client.app.state.store, changed.set.path, other.bundle.path)
    assert "changed since" in told(told_of, 409)
    assert told("emb_none", 404)


def test_a_damaged_encoder_is_not_trusted(client: TestClient, tmp_path: Path) -> None:
    world = World(tmp_path / "world", Case(features={"transform": "standardize"}))
    model = world.set.path / "model"
    config = json.loads((model / "config.json").read_text())

    def rewritten(**changes: Any) -> Callable[[Path], object]:
        return lambda folder: (folder / "config.json").write_text(json.dumps(config | changes))

    faults: list[Callable[[Path], object]] = [
        shutil.rmtree,
        lambda folder: (folder / "config.json").unlink(),
        lambda folder: (folder / "config.json").write_text("[]"),
        lambda folder: (folder / "encoder.safetensors").unlink(),
        lambda folder: (folder / "encoder.safetensors").write_bytes(b"no weights"),
        lambda folder: (folder / "standardization.safetensors").unlink(),
        lambda folder: shutil.copy(folder / "encoder.safetensors", folder / "standardization.safetensors"),
        rewritten(encoder={"kind": "gat"}),
        rewritten(encoder=config["encoder"] | {"layers": [9, 6]}),
        rewritten(encoder=config["encoder"] | {"kind": "sage_skip"}),
        rewritten(in_dim=COLUMNS + 1),
        rewritten(features={"transform": "sorted"}),
        rewritten(views="relations"),
    ]
    for number, damage in enumerate(faults):
        path = shutil.copytree(world.set.path, tmp_path / f"set-{number}")
        damage(path / "model")
        ref = add_set(client.app.state.store, path, world.bundle.path)
        told = problem(client.post(f"/v1/embeddings/{ref}/embed", json={"nodes": [NEW_NODE]}), 409)
        assert told["code"] == "artifact_invalid", number


def test_the_process_that_answers_loads_no_torch(world: World, tmp_path: Path) -> None:
    """What the routes call, in a process of its own."""
    program = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "from service.search.embedding_set import EmbeddingSet\n"
        "from service.search.new_node_schemas import EmbedIn\n"
        "body = EmbedIn.model_validate_json(sys.stdin.read())\n"
        "made = EmbeddingSet(Path(sys.argv[1]), Path(sys.argv[2])).new_nodes().embed(body.nodes, body.edges, 10**6)\n"
        "print(json.dumps({'shape': made.shape, 'loaded': sorted({'torch', 'numba', 'ray'} & set(sys.modules))}))\n"
    )
    command = [sys.executable, "-c", program, str(world.set.path), str(Bundle(world.bundle.path).path)]
    ended = subprocess.run(command, input=json.dumps(world.request()), capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout) == {"shape": [NEW, 5], "loaded": []}
