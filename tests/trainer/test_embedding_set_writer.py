"""The embedding set: what is in its files, and that vectors follow external ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from labelled_bundles import make_labelled_bundle, new_encoder, write_embeddings
from safetensors.torch import save_file
from training_bundles import every_row, settings_document

from preprocessing.artifact import verify
from preprocessing.errors import ArtifactError, DivergedError
from preprocessing.ids import IdMap
from preprocessing.stage import Emitter
from trainer import embedding_set
from trainer.adjacency import GraphAdjacency
from trainer.embedding_set import EmbeddingSet
from trainer.encoders import new_encoder as build_encoder
from trainer.features import load_features
from trainer.layer_arrays import LayerArrays
from trainer.model import Model
from trainer.relations import embed_bundle
from trainer.settings import FeatureSettings, TrainSettings


def test_every_file_holds_the_encoders_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding_set, "PART_ROWS", 13)
    bundle = make_labelled_bundle(tmp_path, [f"user-{(7 * i) % 40:02d}" for i in range(40)])
    encoder = new_encoder(bundle)
    snapshots = tmp_path / "snapshots"
    snapshots.mkdir()
    for epoch in (12, 2):
        save_file(new_encoder(bundle, seed=epoch).state_dict(), snapshots / f"epoch-{epoch:05d}.safetensors")
    manifest = write_embeddings(
        tmp_path / "out", bundle, encoder, snapshots_dir=snapshots, training_info={"seconds": 1.5}
    )

    verify(tmp_path / "out", "embedding_set")
    assert manifest["counts"] == {"nodes": 40, "dim": 8}
    assert (manifest["dtype"], manifest["id_type"]) == ("float32", "string")
    assert manifest["bundle"] == {"path": str(bundle.path), "content_hash": bundle.content_hash}
    assert manifest["training"] == {"epochs": 4, "seconds": 1.5}
    assert manifest["settings"]["encoder"]["layers"] == [16, 8]

    adjacency = GraphAdjacency(bundle.topology).normalized()
    with torch.no_grad():
        expected = encoder.eval()(every_row(load_features(bundle, FeatureSettings())), [adjacency] * 2).numpy()
    written = EmbeddingSet(tmp_path / "out")
    np.testing.assert_allclose(written.vectors, expected, atol=1e-5)
    names = sorted(f"user-{i:02d}" for i in range(40))
    assert IdMap.open(tmp_path / "out").external(np.arange(40)) == names
    assert pq.read_table(tmp_path / "out" / "ids.parquet")["id"].to_pylist() == names

    parts = sorted((tmp_path / "out").glob("part-*.parquet"))
    assert [part.name for part in parts] == [f"part-0000{i}.parquet" for i in range(4)]
    table = pq.read_table(parts)
    assert table["id"].to_pylist() == names
    np.testing.assert_array_equal(np.array(table["vector"].to_pylist(), dtype=np.float32), written.vectors)
    assert table.schema.field("vector").type.list_size == 8

    assert [snapshot.epoch for snapshot in written.snapshots] == [2, 12]
    again = written.model.encoder.state_dict()
    assert all(torch.equal(tensor, again[name]) for name, tensor in encoder.state_dict().items())
    early = written.model_at(written.snapshots[0]).encoder
    assert torch.equal(
        early.state_dict()["layers.0.weight"], new_encoder(bundle, seed=2).state_dict()["layers.0.weight"]
    )


@pytest.mark.parametrize(
    "encoder",
    [
        {"kind": "gcn", "layers": [16, 8]},
        {"kind": "gcn", "layers": [8], "self_loop_weight": 4.0},
        {"kind": "gcn", "layers": [16, 8], "self_loop_weight": 4.0, "embedding_self_loop_weight": 32.0},
        {"kind": "gcn", "layers": [16, 8], "embedding_self_loop_weight": 0.25, "batch_norm_momentum": 0.3},
        {"kind": "sage_residual", "layers": [8, 8]},
        {"kind": "sage_skip", "layers": [16, 8]},
    ],
    ids=str,
)
def test_the_model_of_a_set_makes_its_vectors_again(tmp_path: Path, encoder: dict[str, Any]) -> None:
    bundle = make_labelled_bundle(tmp_path, range(40))
    settings = TrainSettings.model_validate(settings_document(encoder=encoder))
    features = load_features(bundle, settings.features)
    made = build_encoder(features.num_columns, settings.encoder)
    model = Model.trained(made, settings, bundle, features)
    told = {"settings": settings.model_dump(), "training": {"epochs": 1}}
    embedding_set.write(tmp_path / "out", bundle, model, told, "identity", Emitter("train"))

    written = EmbeddingSet(tmp_path / "out")
    arrays = LayerArrays(bundle.num_nodes, tmp_path)
    step = embed_bundle(written.model.encoder, features, bundle, written.model.views, arrays)
    np.testing.assert_array_equal(arrays.of(step)[0], written.vectors)
    loops = encoder.get("embedding_self_loop_weight", encoder.get("self_loop_weight", 1.0))
    if encoder["kind"] == "gcn":
        adjacency = GraphAdjacency(bundle.topology, self_loop_weight=loops).normalized()
        with torch.no_grad():
            expected = made.eval()(every_row(features), [adjacency] * made.num_layers).numpy()
        np.testing.assert_allclose(written.vectors, expected, atol=1e-5)


def test_vectors_follow_ids_whatever_a_node_is_called(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    numbers = [int(i) for i in rng.permutation(1000)[:40]]
    words = [f"n{i}" for i in rng.permutation(1000)[:40]]
    found = []
    for name, ids in (("numbers", numbers), ("words", words)):
        bundle = make_labelled_bundle(tmp_path / name, ids)
        write_embeddings(tmp_path / name / "out", bundle)
        written = EmbeddingSet(tmp_path / name / "out")
        found.append(written.vectors[written.ids.rows(ids)])
    assert np.abs(found[0][0] - found[0][1]).max() > 1e-3
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)


def test_vectors_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    bundle = make_labelled_bundle(tmp_path, list(range(100, 140)))
    encoder = new_encoder(bundle)
    with torch.no_grad():
        encoder.state_dict()["layers.1.bias"].fill_(float("nan"))
    with pytest.raises(DivergedError, match=r"not finite\n  given: the vector of node 100") as error:
        write_embeddings(tmp_path / "out", bundle, encoder)
    assert error.value.code == "diverged"
    assert not (tmp_path / "out").exists()
    # What the failed attempt left behind does not get into the next one's way.
    write_embeddings(tmp_path / "out", bundle)
    verify(tmp_path / "out", "embedding_set")


def test_no_set_and_damaged_vectors(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no artefact here"):
        EmbeddingSet(tmp_path)
    bundle = make_labelled_bundle(tmp_path, list(range(40)))
    write_embeddings(tmp_path / "out", bundle)
    (tmp_path / "out" / "vectors.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(ArtifactError, match=r"vectors\.npy: the vectors cannot be read"):
        _ = EmbeddingSet(tmp_path / "out").vectors
