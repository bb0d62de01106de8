import math
from pathlib import Path

import numpy as np
import pytest
import torch
from training_bundles import dense, every_row, make_bundle, settings_document

from preprocessing.bundle import Bundle
from trainer.centrality import drop_factors
from trainer.features import load_features
from trainer.full_batch import FullBatch
from trainer.mini_batch import MiniBatch
from trainer.settings import FeatureSettings, TrainSettings

CPU = torch.device("cpu")


def sparse_features() -> np.ndarray:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(40, 12)).astype(np.float32)
    features[rng.random(features.shape) < 0.8] = 0
    features[:, 5] = 0
    return features


def gca(scores: list[float], mean_over: list[float], probability: float) -> list[float]:
    """min(p (s_max − s) / (s_max − s_mean), 0.7), the paper's Eqn. 2 and 4."""
    top, mean = max(scores), sum(mean_over) / len(mean_over)
    return [min(probability * (top - score) / (top - mean), 0.7) for score in scores]


def test_edges_are_dropped_by_the_degree_of_the_node_that_hears(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path, direction="directed")
    factors = drop_factors(bundle.topology, load_features(bundle, FeatureSettings()))
    adjacency = dense(bundle.topology)
    hearing = [i for i in range(40) for j in range(40) if adjacency[i, j]]
    degree = [int(adjacency[i].sum()) for i in range(40)]
    assert min(degree) == 0
    scores = [math.log(degree[i]) for i in hearing]
    for probability in (0.2, 0.5):
        expected = torch.tensor(gca(scores, scores, probability))
        torch.testing.assert_close(factors.edges(probability)[hearing], expected, rtol=1e-4, atol=1e-6)
    assert expected.max() == pytest.approx(0.7)
    assert expected.min() == 0
    assert not factors.edges(0.0).any()


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("transform", ["none", "binarize", "standardize"])
def test_columns_are_dropped_by_their_mass_on_central_nodes(tmp_path: Path, kind: str, transform: str) -> None:
    bundle = make_bundle(tmp_path, features=sparse_features() if kind == "sparse" else None)
    store = load_features(bundle, FeatureSettings(transform=transform))
    x = (every_row(store) @ torch.eye(12)).tolist()
    degree = bundle.topology.degrees().tolist()
    masses = [sum(degree[i] * abs(x[i][c]) for i in range(40)) for c in range(12)]
    least = min(mass for mass in masses if mass > 1e-6)
    scores = [math.log(max(mass, least)) for mass in masses]
    got = drop_factors(bundle.topology, store).columns(0.3)
    torch.testing.assert_close(got, torch.tensor(gca(scores, scores, 0.3)), rtol=1e-3, atol=1e-5)


def test_equals_are_dropped_alike(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path, nodes=3, edges=0, features=np.ones((3, 12), np.float32), top_k=3)
    factors = drop_factors(bundle.topology, load_features(bundle, FeatureSettings()))
    assert factors.edges(0.4).tolist() == pytest.approx([0.4] * 3)
    assert factors.columns(0.4).tolist() == pytest.approx([0.4] * 12)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return make_bundle(tmp_path_factory.mktemp("centrality"))


@pytest.mark.parametrize("batch", [{"mode": "full"}, {"mode": "mini", "size": 40, "fan_out": [-1, -1]}])
def test_views_drop_edges_and_columns_with_those_probabilities(bundle: Bundle, batch: dict) -> None:
    drops = {"drop_feature_1": 0.4, "drop_feature_2": 0.0, "drop_edge_1": 0.3, "drop_edge_2": 0.0}
    chosen = TrainSettings.model_validate(settings_document(augment=drops, batch=batch) | {"objective": "gca"})
    store = load_features(bundle, chosen.features)
    source = (FullBatch if batch["mode"] == "full" else MiniBatch)(bundle, store, chosen, device=CPU)
    factors = drop_factors(bundle.topology, store)
    degree = torch.from_numpy(bundle.topology.degrees())
    epochs = 500
    kept_columns, kept_arcs = torch.zeros(12), torch.zeros(40)
    for epoch in range(epochs):
        step = source.step(epoch, 0)
        first, second = step.views
        nodes = torch.arange(40) if batch["mode"] == "full" else torch.from_numpy(source.queries(epoch, 0)[0])
        kept_columns += first.features.scale_F / epochs
        adjacency = first.adjacencies[-1]
        arcs = torch.bincount(adjacency.pattern.rows[adjacency.values != 0], minlength=40) - 1
        kept_arcs[nodes] += arcs / epochs
        assert second.features.scale_F.all()
        assert second.adjacencies[-1].values.all()
    five_deviations = 5 * 0.5 / epochs**0.5
    torch.testing.assert_close(kept_columns, 1 - factors.columns(0.4), rtol=0, atol=five_deviations)
    connected = degree > 0
    share = kept_arcs[connected] / degree[connected]
    torch.testing.assert_close(share, 1 - factors.edges(0.3)[connected], rtol=0, atol=five_deviations)


def test_the_scheme_follows_the_objective_unless_it_is_told() -> None:
    def adaptive(**document: object) -> bool:
        return TrainSettings.model_validate(document).augments_adaptively

    assert adaptive(objective="gca")
    assert not adaptive(objective="gca", augment={"scheme": "uniform"})
    assert not adaptive(objective="grace")
    assert adaptive(objective="rgrl", augment={"scheme": "adaptive"})
