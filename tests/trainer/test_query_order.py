from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from training_bundles import make_bundle, make_ring, settings_document

from preprocessing.locality import near_order
from trainer.features import load_features
from trainer.mini_batch import MiniBatch
from trainer.query_order import QueryOrder, locality_order, queries_of
from trainer.settings import TrainSettings


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 9), st.integers(1, 5), st.integers(0, 3))
def test_every_node_is_a_query_once_an_epoch_whatever_the_chunks(
    nodes: int, chunk: int, size: int, workers: int, epoch: int
) -> None:
    near = np.random.default_rng(nodes).permutation(nodes)
    order = QueryOrder(nodes, 5, near, chunk)
    steps = -(-nodes // (size * workers))
    shares = [queries_of(order.of(epoch), number, steps, workers) for number in range(steps)]
    assert sorted(np.concatenate([part for parts in shares for part in parts])) == list(range(nodes))
    assert order.of(epoch)[order.places(epoch)].tolist() == list(range(nodes))


@pytest.mark.parametrize("near", [None, np.random.default_rng(1).permutation(500)])
def test_an_order_follows_from_seed_and_epoch_alone(near: np.ndarray | None) -> None:
    order, again = QueryOrder(500, 7, near, 8), QueryOrder(500, 7, near, 8)
    expected = [order.of(epoch).tolist() for epoch in range(4)]
    assert [again.of(epoch).tolist() for epoch in (3, 0)] == [expected[3], expected[0]]
    assert len({tuple(one) for one in expected}) == 4
    assert QueryOrder(500, 8, near, 8).of(0).tolist() != expected[0]


def test_near_nodes_stay_together_but_not_always_the_same_and_their_chunks_do_not() -> None:
    nodes, chunk = 1000, 10
    near = np.random.default_rng(0).permutation(nodes)
    rank = np.argsort(near)
    order = QueryOrder(nodes, 0, near, chunk)
    cuts = []
    for epoch in range(3):
        places = rank[order.of(epoch)]
        broken = np.flatnonzero(np.diff(places) != 1)
        assert nodes / chunk - 5 <= len(broken) <= nodes / chunk + 1
        cuts.append(set((places[broken] + 1) % chunk))
        # Of chunks in any order, those that meet are far apart.
        assert np.abs(np.diff(places)[broken]).mean() > nodes / 5
    assert len(set.union(*cuts) - {0}) > 1


def test_the_locality_order_is_made_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle, other = make_bundle(tmp_path / "one"), make_bundle(tmp_path / "other", seed=1)
    expected = near_order(bundle.topology)
    assert locality_order(bundle, tmp_path / "work").tolist() == expected.tolist()
    assert locality_order(other, tmp_path / "work").tolist() == near_order(other.topology).tolist()
    assert len(list((tmp_path / "work").iterdir())) == 2
    monkeypatch.setattr("trainer.query_order.near_order", lambda _: pytest.fail("made again"))
    assert locality_order(bundle, tmp_path / "work").tolist() == expected.tolist()


def test_near_queries_bring_fewer_others_along(tmp_path: Path) -> None:
    """On a circle, walked from one node both ways, a chunk of 8 is two arcs of it: it needs the locals at four ends
    alone, where at random a query needs two.
    """
    bundle = make_ring(tmp_path, 800)
    rows: dict[str, list[int]] = {}
    for order in ("random", "near"):
        batch = {"mode": "mini", "size": 80, "fan_out": [-1, -1], "order": order, "chunk": 8}
        chosen = TrainSettings.model_validate(settings_document(batch=batch, anchors={"num_global": 1}))
        steps = MiniBatch(bundle, load_features(bundle, chosen.features), chosen, device=torch.device("cpu"))
        rows[order] = [steps.step(0, number).views[0].adjacencies[-1].pattern.num_rows for number in range(10)]
    # 80 queries, the ends of 12 chunks at most, two of which the batch's own ends cut, and a global anchor.
    assert max(rows["near"]) <= 80 + 4 * 12 + 1
    assert min(rows["random"]) > 80 + 100
