"""Multiplex graphs: every relation a view, and embeddings their mean."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from training_bundles import Recorder, csr, every_row, make_bundle, settings_document, write_ppr, write_weights

from preprocessing.bundle import Bundle
from preprocessing.errors import InputError
from preprocessing.ingest import ingest
from preprocessing.stage import Emitter
from trainer import checkpoint, loop
from trainer.adjacency import GraphAdjacency
from trainer.embedding_set import EmbeddingSet
from trainer.features import load_features
from trainer.full_batch import FullBatch
from trainer.launch import InProcess
from trainer.mini_batch import MiniBatch
from trainer.objectives import new_objective
from trainer.objectives.rgrl import RgrlObjective
from trainer.settings import TrainSettings
from trainer.train import train

CPU = torch.device("cpu")
NODES = 30


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Three relations among 30 nodes; no relation reaches them all."""
    folder, rng = tmp_path_factory.mktemp("multiplex"), np.random.default_rng(5)
    arrays = {f"attr_{key}": value for key, value in csr(NODES, rng.integers(0, NODES, (90, 2))).items()}
    for name in ("cites", "likes", "knows"):
        arrays |= {f"adj_{name}_{key}": value for key, value in csr(NODES, rng.integers(0, NODES, (25, 2))).items()}
    np.savez(folder / "graph.npz", **arrays)
    source = {"kind": "npz", "path": str(folder / "graph.npz")}
    ingest({"out": folder / "bundle", "settings": {"source": source}}, Emitter("ingest"))
    made = Bundle(folder / "bundle")
    write_ppr(made, 4)
    write_weights(made)
    return made


def settings(encoder: dict | None = None, **parts: dict) -> TrainSettings:
    layers = {"layers": [16, 8], "predictor_hidden": 16}
    return TrainSettings.model_validate(
        settings_document(encoder=layers | (encoder or {}), **parts) | {"views": "relations"}
    )


def objective(bundle: Bundle, chosen: TrainSettings) -> RgrlObjective:
    return new_objective(load_features(bundle, chosen.features).num_columns, chosen, len(bundle.relations))


@pytest.mark.parametrize("per_relation", [False, True])
def test_the_loss_is_the_sum_over_all_ordered_pairs_of_relations(bundle: Bundle, per_relation: bool) -> None:
    chosen = settings({"per_relation": per_relation})
    store, model = load_features(bundle, chosen.features), objective(bundle, chosen)
    steps = FullBatch(bundle, store, chosen, device=CPU)
    step = steps.step(0, 0)
    with torch.no_grad():
        got = float(model.train()(step)[0])

        fresh = objective(bundle, chosen)
        graphs = [GraphAdjacency(bundle.relation(name)).normalized() for name in bundle.relations]
        online = [fresh.online.relation(i) for i in range(3)]
        target = [fresh.target.relation(i) for i in range(3)]
        assert len({id(encoder) for encoder in online}) == (3 if per_relation else 1)
        x = every_row(store)
        z = [fresh.predictor(encoder(x, [graph] * 2)) for encoder, graph in zip(online, graphs, strict=True)]
        h = [encoder(x, [graph] * 2) for encoder, graph in zip(target, graphs, strict=True)]
        z, h = ([torch.nn.functional.normalize(part)[steps.order] for part in parts] for parts in (z, h))
        expected, anchors = 0.0, step.anchors
        for a, b in permutations(range(3), 2):
            teacher = (h[b] @ h[b][anchors.anchors_G].T / 0.01).log_softmax(1)
            student = (z[a] @ h[b][anchors.anchors_G].T / 0.1).log_softmax(1)
            expected += float((teacher.exp() * (teacher - student)).sum(1).mean())
            local = 0.0
            for i in range(NODES):
                near = anchors.locals_QK[i][anchors.valid_QK[i]]
                if len(near):
                    teacher, student = (
                        (h[b][near] @ h[b][i]).log_softmax(0),
                        (h[b][near] @ z[a][i] / 0.1).log_softmax(0),
                    )
                    local += float((teacher.exp() * (teacher - student)).sum())
            expected += local / anchors.num_local
    assert got == pytest.approx(expected, rel=1e-4)


def test_mini_batches_of_full_fan_out_see_the_same_relations(bundle: Bundle) -> None:
    chosen = settings(batch={"mode": "mini", "size": 7, "fan_out": [-1, -1]})
    store, model = load_features(bundle, chosen.features), objective(bundle, chosen).eval()
    source = MiniBatch(bundle, store, chosen, device=CPU)
    with torch.no_grad():
        for number in range(source.num_steps):
            step, queries = source.step(1, number), source.queries(1, number)[0]
            for view, name in zip(step.views, bundle.relations, strict=True):
                adjacency = GraphAdjacency(bundle.relation(name)).normalized()
                whole = model.online(every_row(store), [adjacency, adjacency])
                got = model.online(view.features, view.adjacencies)[step.queries]
                torch.testing.assert_close(got, whole[queries], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("encoder", [{}, {"per_relation": True}, {"kind": "sage_skip"}], ids=str)
def test_embeddings_are_means_over_relations(bundle: Bundle, tmp_path: Path, encoder: dict) -> None:
    chosen = settings(encoder, run={"epochs": 2, "snapshot_every": 1})
    spec = {"bundle": bundle.path, "out": tmp_path / "emb", "work": tmp_path / "work"}
    train({**spec, "settings": chosen.model_dump()}, Recorder())
    written = EmbeddingSet(tmp_path / "emb")
    store, trained = load_features(bundle, chosen.features), written.model.encoder
    parts = []
    with torch.no_grad():
        for number, name in enumerate(bundle.relations):
            one = trained.relation(number)
            adjacency = one.aggregator.whole(bundle.relation(name)).normalized()
            parts.append(one(every_row(store), [adjacency] * 2).numpy())
    np.testing.assert_allclose(written.vectors, np.mean(parts, axis=0), atol=1e-5)
    assert np.abs(parts[0] - parts[1]).max() > 0.01
    assert (written.model.views, [snapshot.epoch for snapshot in written.snapshots]) == ("relations", [1, 2])


def test_a_graph_of_one_kind_of_edges_is_refused(tmp_path: Path) -> None:
    spec = {"bundle": make_bundle(tmp_path).path, "out": tmp_path / "emb", "work": tmp_path / "work"}
    with pytest.raises(InputError, match="no relations to make views of"):
        train({**spec, "settings": settings().model_dump()}, Recorder())


def test_encoders_of_relations_need_relations_as_views() -> None:
    with pytest.raises(ValueError, match="needs views = relations"):
        TrainSettings.model_validate({"encoder": {"per_relation": True}})


def test_a_bank_has_a_row_a_relation(bundle: Bundle, tmp_path: Path) -> None:
    batch = {"mode": "mini", "size": 10, "fan_out": [3, 3]}
    chosen = settings(batch=batch, anchors={"bank": "disk"}, run={"epochs": 2})
    recorder = Recorder()
    loop.run(loop.Job(bundle.path, tmp_path, chosen, "print"), InProcess(CPU, recorder))
    last = checkpoint.newest(tmp_path, "print")
    assert last is not None
    rows = np.load(last / "bank.npy").astype(np.float64)
    assert rows.shape == (NODES, 3, 8)
    assert np.linalg.norm(rows, axis=2) == pytest.approx(1, abs=2e-3)
    assert not np.allclose(rows[:, 0], rows[:, 1], atol=1e-2)
    assert all(np.isfinite(line["values"]["loss"]) for line in recorder.of("metrics"))
