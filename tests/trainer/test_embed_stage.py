"""A finished encoder on the nodes of another graph: against one forward over that graph, killed, and where refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from training_bundles import every_row, make_bundle, settings_document, write_ppr, write_weights

from preprocessing.artifact import verify
from preprocessing.bundle import Bundle
from preprocessing.errors import ArtifactError, InputError, ResourceError, UsageError
from preprocessing.ingest import ingest
from preprocessing.stage import Emitter
from trainer.embed import embed
from trainer.embedding_set import EmbeddingSet
from trainer.evaluation.evaluate import evaluate
from trainer.features import Features, load_features
from trainer.settings import FeatureSettings
from trainer.train import train

ENCODERS: dict[str, dict[str, Any]] = {
    "gcn": {"kind": "gcn", "layers": [9, 5]},
    "sage_residual": {"kind": "sage_residual", "layers": [8, 8, 8]},
    "sage_skip": {"kind": "sage_skip", "layers": [8, 8, 5]},
}


def multiplex(folder: Path, nodes: int, seed: int) -> Bundle:
    """Two kinds of edges and features of 6 columns."""
    rng = np.random.default_rng(seed)
    folder.mkdir()
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(nodes * 6, dtype=np.float32)), 6)
    pq.write_table(pa.table({"id": np.arange(nodes), "x": vectors}), folder / "nodes.parquet")
    relations = {}
    for name in ("likes", "knows"):
        source, target = rng.integers(0, nodes, (2, 3 * nodes))
        pq.write_table(pa.table({"source": source, "target": target}), folder / f"{name}.parquet")
        relations[name] = str(folder / f"{name}.parquet")
    source = {"kind": "tables", "relations": relations, "nodes": str(folder / "nodes.parquet")}
    ingest({"out": folder / "bundle", "settings": {"source": source}}, Emitter("ingest"))
    bundle = Bundle(folder / "bundle")
    write_ppr(bundle, 4)
    write_weights(bundle)
    return bundle


def trained(bundle: Bundle, out: Path, views: str = "augmented", **parts: Any) -> EmbeddingSet:
    spec = {"bundle": bundle.path, "out": out, "work": out.parent / "work"}
    train({**spec, "settings": settings_document(**parts) | {"views": views}}, Emitter("train"))
    shutil.rmtree(out.parent / "work")
    return EmbeddingSet(out)


def embedded(model: EmbeddingSet, bundle: Bundle, out: Path, **settings: Any) -> EmbeddingSet:
    spec = {"embeddings": model.path, "bundle": bundle.path, "out": out, "settings": settings}
    summary = embed(spec, Emitter("embed"))
    found = EmbeddingSet(out)
    assert (summary["embeddings"], summary["counts"]["nodes"]) == (str(out), bundle.num_nodes)
    assert summary["model"] == {"path": str(model.path), "content_hash": model.content_hash}
    return found


def full_batch(model: EmbeddingSet, bundle: Bundle) -> np.ndarray:
    """The mean over relations of one forward each, or one forward."""
    x = every_row(model.model.features(bundle))
    parts = []
    with torch.no_grad():
        for number, topology in enumerate([bundle.relation(name) for name in bundle.relations] or [bundle.topology]):
            encoder = model.model.encoder.relation(number)
            adjacency = encoder.aggregator.whole(topology).normalized()
            parts.append(encoder(x, [adjacency] * encoder.num_layers).numpy())
    return np.mean(parts, axis=0)


@pytest.mark.parametrize("kind", ENCODERS)
def test_another_graphs_nodes_are_embedded_as_by_one_forward(tmp_path: Path, kind: str) -> None:
    bundle, other = make_bundle(tmp_path / "a"), make_bundle(tmp_path / "b", nodes=55, edges=90, seed=8)
    model = trained(bundle, tmp_path / "emb", encoder=ENCODERS[kind] | {"predictor_hidden": 8})
    found = embedded(model, other, tmp_path / "out")
    verify(found.path, "embedding_set")
    assert found.vectors.shape == (55, model.vectors.shape[1])
    np.testing.assert_allclose(found.vectors, full_batch(model, other), atol=1e-5)
    assert found.vectors.std() > 0.01
    assert found.ids.external(range(3)) == ["0", "1", "2"]
    for file in ("encoder.safetensors", "config.json"):
        assert (found.path / "model" / file).read_bytes() == (model.path / "model" / file).read_bytes()
    assert found.manifest["bundle"]["content_hash"] == other.content_hash
    assert found.manifest["training"]["bundle"]["content_hash"] == bundle.content_hash

    # The graph that it was trained on, and whatever an embedding set is good for.
    again = embedded(model, bundle, tmp_path / "again")
    np.testing.assert_array_equal(again.vectors, model.vectors)
    spec = {"bundle": other.path, "embeddings": found.path, "settings": {"splits": 2, "steps": 5}}
    assert evaluate(spec, Emitter("evaluate"))["test_accuracy"]["rgrl"] > 0
    chained = embedded(found, bundle, tmp_path / "chained")
    np.testing.assert_array_equal(chained.vectors, model.vectors)


@pytest.mark.parametrize("per_relation", [False, True])
def test_multiplex(tmp_path: Path, per_relation: bool) -> None:
    bundle, other = multiplex(tmp_path / "a", 40, seed=1), multiplex(tmp_path / "b", 50, seed=2)
    parts = {"encoder": ENCODERS["gcn"] | {"per_relation": per_relation}}
    model = trained(bundle, tmp_path / "emb", views="relations", **parts)
    found = embedded(model, other, tmp_path / "out")
    np.testing.assert_allclose(found.vectors, full_batch(model, other), atol=1e-5)
    assert sorted(path.name for path in found.path.iterdir() if path.is_dir()) == ["model"]


def test_features_are_standardised_by_the_columns_of_the_training_graph(tmp_path: Path) -> None:
    values = np.random.default_rng(3).normal(2, 3, (55, 12)).astype(np.float32)
    bundle, other = make_bundle(tmp_path / "a"), make_bundle(tmp_path / "b", nodes=55, features=values)
    model = trained(bundle, tmp_path / "emb", features={"transform": "standardize"})
    found = embedded(model, other, tmp_path / "out")
    raw = load_features(bundle, FeatureSettings()).rows(np.arange(40)).matrix.double()
    scaled = (torch.from_numpy(values) - raw.mean(dim=0)) / raw.std(dim=0, correction=0)
    encoder = found.model.encoder
    adjacency = encoder.aggregator.whole(other.topology).normalized()
    with torch.no_grad():
        expected = encoder(Features(scaled.float()), [adjacency] * 2)
    np.testing.assert_allclose(found.vectors, expected, atol=1e-5)

    spec = {"bundle": bundle.path, "embed": other.path, "out": tmp_path / "at-once", "work": tmp_path / "work"}
    train({**spec, "settings": settings_document(features={"transform": "standardize"})}, Emitter("train"))
    np.testing.assert_array_equal(EmbeddingSet(tmp_path / "at-once").vectors, found.vectors)

    # As an earlier version left it.
    (model.path / "model" / "standardization.safetensors").unlink()
    with pytest.raises(InputError, match="by which means and deviations"):
        embedded(EmbeddingSet(model.path), other, tmp_path / "old")


def test_the_same_command_again_and_another_under_the_same_name(tmp_path: Path) -> None:
    bundle, other = make_bundle(tmp_path / "a"), make_bundle(tmp_path / "b", nodes=55, seed=8)
    model = trained(bundle, tmp_path / "emb")
    second = trained(bundle, tmp_path / "emb2", run={"epochs": 5})
    first = embedded(model, other, tmp_path / "out")
    inode = (first.path / "vectors.npy").stat().st_ino
    assert embedded(model, other, tmp_path / "out").manifest == first.manifest
    assert (first.path / "vectors.npy").stat().st_ino == inode
    for encoder, graph in ((model, bundle), (second, other)):
        with pytest.raises(UsageError, match=r"exists already\n  given: .*made with other settings"):
            embedded(encoder, graph, tmp_path / "out")
    with pytest.raises(UsageError, match="exists already"):
        embedded(model, other, model.path)
    # A training does not take it for its own either.
    spec = {"bundle": bundle.path, "out": tmp_path / "out", "work": tmp_path / "work"}
    with pytest.raises(UsageError, match="exists already"):
        train({**spec, "settings": settings_document()}, Emitter("train"))


def test_features_hashed_from_other_ppr_rows_are_others(tmp_path: Path) -> None:
    bare = make_bundle(tmp_path / "a", features=np.zeros((40, 0), dtype=np.float32))
    model = trained(bare, tmp_path / "emb")
    np.testing.assert_array_equal(embedded(model, bare, tmp_path / "out").vectors, model.vectors)
    shutil.rmtree(bare.path / "ppr")
    write_ppr(bare, 2)
    with pytest.raises(UsageError, match="exists already"):
        embedded(model, bare, tmp_path / "out")
    assert not np.array_equal(embedded(model, bare, tmp_path / "other").vectors, model.vectors)


def test_what_an_encoder_cannot_embed_is_refused(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "a")
    model = trained(bundle, tmp_path / "emb")
    narrow = make_bundle(tmp_path / "b", features=np.ones((40, 5), dtype=np.float32))
    with pytest.raises(InputError, match=r"given: 5 feature columns and relations \[\]\n  expected: 12 "):
        embedded(model, narrow, tmp_path / "out")
    bare = make_bundle(tmp_path / "c", features=np.zeros((40, 0), dtype=np.float32))
    with pytest.raises(InputError, match=r"bundle: features that are hashed"):
        embedded(model, bare, tmp_path / "out")
    hashed = trained(bare, tmp_path / "hashed")
    words = make_bundle(tmp_path / "d", features=np.eye(40, 128, dtype=np.float32))
    with pytest.raises(InputError, match="features that are hashed"):
        embedded(hashed, words, tmp_path / "out")
    relations = multiplex(tmp_path / "e", 40, seed=1)
    plain = make_bundle(tmp_path / "f", features=np.ones((40, 6), dtype=np.float32))
    with pytest.raises(InputError, match=r"relations \['likes', 'knows'\]"):
        embedded(trained(plain, tmp_path / "plain"), relations, tmp_path / "out")
    with pytest.raises(ArtifactError, match="another kind of artefact"):
        embed({"embeddings": bundle.path, "bundle": bundle.path, "out": tmp_path / "out"}, Emitter("embed"))
    if not torch.cuda.is_available():
        with pytest.raises(ResourceError, match="no CUDA device") as refused:
            embedded(model, bundle, tmp_path / "out", device="cuda")
        assert refused.value.pointer == "/settings/device"
    assert not (tmp_path / "out").exists()


# Children of one process that has the libraries: killed by SIGKILL when the journal has moved on by a random number
# of chunks, and in the end left alone.
KILLED = """
import os, random, signal, sys, json, time
from pathlib import Path
import torch
from preprocessing.stage import Emitter
from trainer import inference
from trainer.embed import embed
spec, kills = json.loads(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
inference.CHUNK_ENTRIES = 100
out = Path(spec["out"])
journal = out.parent / f".{out.name}.partial" / "inference" / "done.json"
chance = random.Random(int(sys.argv[3]))

def told():
    try:
        return json.loads(journal.read_text())
    except FileNotFoundError:
        return None

places = []
for attempt in range(kills + 1):
    before = told()
    child = os.fork()
    if child == 0:
        embed(spec, Emitter("embed"))
        os._exit(0)
    changes = chance.randrange(1, 60) if attempt < kills else -1
    while changes != 0 and os.waitpid(child, os.WNOHANG) == (0, 0):
        now = told()
        changes, before = changes - (now != before), now
        time.sleep(0.0002)
    if changes != 0:
        break
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    places.append(told())
print(json.dumps(places))
"""


@pytest.mark.parametrize("graph", ["single", "multiplex"])
def test_killed_at_any_moment_the_same_command_makes_the_same_bytes(tmp_path: Path, graph: str) -> None:
    if graph == "single":
        bundle = make_bundle(tmp_path / "a", nodes=300, edges=900)
        model = trained(bundle, tmp_path / "emb", encoder=ENCODERS["sage_skip"])
    else:
        bundle = multiplex(tmp_path / "a", 200, seed=1)
        model = trained(bundle, tmp_path / "emb", encoder=ENCODERS["gcn"], views="relations")
    spec = {"embeddings": str(model.path), "bundle": str(bundle.path)}
    found = []
    for name, kills in (("whole", 0), ("killed", 12)):
        arguments = [json.dumps({**spec, "out": str(tmp_path / name)}), str(kills), "5"]
        told = subprocess.run([sys.executable, "-c", KILLED, *arguments], capture_output=True, text=True, check=True)
        places = json.loads(told.stdout)
        assert len(places) >= min(kills, 4), "the stage ended before it could be killed"
        # Each process went on from where the one before it was.
        reached = [(place["step"], place["rows"]) for place in places]
        assert reached == sorted(set(reached))
        assert not list(tmp_path.glob(".*.partial"))
        verify(tmp_path / name, "embedding_set")
        found.append(EmbeddingSet(tmp_path / name))
    assert found[0].manifest["files"] == found[1].manifest["files"]
    np.testing.assert_allclose(found[1].vectors, full_batch(model, bundle), atol=1e-5)
