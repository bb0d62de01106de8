"""Training on the graph of the training nodes alone, and embedding everyone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from training_bundles import Recorder, csr, every_row, random_edges, settings_document, write_ppr, write_weights

from preprocessing.bundle import Bundle
from preprocessing.errors import InputError
from preprocessing.induced import induce
from preprocessing.ingest import ingest
from preprocessing.stage import Emitter
from trainer.embedding_set import EmbeddingSet
from trainer.evaluation.evaluate import evaluate
from trainer.train import train

NODES, TRAINING = 60, 40
SAGE = {"encoder": {"kind": "sage_residual", "layers": [8, 8, 8], "predictor_hidden": 8}}


def whole(folder: Path, *, held_out: int = 0, columns: int = 6) -> Bundle:
    """Nodes 0..39 train; ``held_out`` seeds the features and edges of the others."""
    folder.mkdir()
    edges = random_edges(NODES, 150, seed=1)
    other = np.random.default_rng(held_out).integers(TRAINING, NODES, size=edges.shape)
    edges = np.where((edges >= TRAINING).any(axis=1, keepdims=True), np.where(edges >= TRAINING, other, edges), edges)
    values = np.random.default_rng(7).normal(size=(NODES, columns)).astype(np.float32)
    values[TRAINING:] = np.random.default_rng(held_out).normal(size=(NODES - TRAINING, columns))
    places = np.nonzero(values)
    arrays = {f"adj_{name}": value for name, value in csr(NODES, edges).items()}
    if columns:
        arrays |= {"attr_data": values[places], "attr_indices": places[1], "attr_shape": np.array(values.shape)}
        arrays["attr_indptr"] = np.concatenate([[0], np.cumsum((values != 0).sum(axis=1))])
    rows = np.arange(NODES)
    masks = (rows < TRAINING, (rows >= TRAINING) & (rows % 2 == 0), (rows >= TRAINING) & (rows % 2 == 1))
    arrays |= dict(zip(("train_mask", "val_mask", "test_mask"), masks, strict=True))
    np.savez(folder / "graph.npz", **arrays, labels=rows % 3)
    source = {"kind": "npz", "path": str(folder / "graph.npz")}
    ingest({"out": folder / "bundle", "settings": {"source": source}}, Emitter("ingest"))
    return Bundle(folder / "bundle")


def seen(bundle: Bundle) -> Bundle:
    out = bundle.path.parent / "seen"
    induce({"bundle": bundle.path, "out": out}, Emitter("induce"))
    made = Bundle(out)
    write_ppr(made, 4)
    write_weights(made)
    return made


def trained(bundle: Bundle, embed: Bundle, folder: Path, **parts: dict) -> EmbeddingSet:
    spec = {"bundle": bundle.path, "embed": embed.path, "out": folder / "emb", "work": folder / "work"}
    train({**spec, "settings": settings_document(**(SAGE | parts))}, Recorder())
    return EmbeddingSet(folder / "emb")


def test_held_out_nodes_are_embedded_by_an_encoder_that_never_saw_them(tmp_path: Path) -> None:
    bundle, changed = whole(tmp_path / "a"), whole(tmp_path / "b", held_out=5)
    training, other = seen(bundle), seen(changed)
    assert bundle.content_hash != changed.content_hash
    first, second = trained(training, bundle, tmp_path / "a"), trained(other, changed, tmp_path / "b")
    weights = [load_file(written.path / "model" / "encoder.safetensors") for written in (first, second)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])

    assert first.vectors.shape == (NODES, 8)
    encoder = first.model.encoder
    adjacency = encoder.aggregator.whole(bundle.topology).normalized()
    with torch.no_grad():
        expected = encoder(every_row(first.model.features(bundle)), [adjacency] * 3)
    np.testing.assert_allclose(first.vectors, expected, atol=1e-5)
    assert first.manifest["bundle"]["content_hash"] == bundle.content_hash
    assert first.manifest["training"]["bundle"]["content_hash"] == training.content_hash

    spec = {"bundle": bundle.path, "embeddings": first.path, "settings": {"splits": 2, "steps": 5}}
    assert evaluate(spec, Emitter("evaluate"))["test_accuracy"]["random_encoder"] > 0


def test_graphs_that_an_encoder_cannot_go_between_are_refused(tmp_path: Path) -> None:
    training = seen(whole(tmp_path / "a"))
    with pytest.raises(InputError, match="of another kind than the one to train on"):
        trained(training, whole(tmp_path / "b", columns=5), tmp_path)
    bare = seen(whole(tmp_path / "c", columns=0))
    with pytest.raises(InputError, match="hashed from one graph mean nothing in another"):
        trained(bare, Bundle(tmp_path / "c" / "bundle"), tmp_path)
