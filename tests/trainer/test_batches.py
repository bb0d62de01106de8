from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from training_bundles import every_row, make_bundle, settings_document

from trainer.anchors import Anchors
from trainer.batches import prefetched
from trainer.features import load_features
from trainer.full_batch import FullBatch
from trainer.mini_batch import MiniBatch
from trainer.objectives import Step
from trainer.query_order import queries_of
from trainer.randomness import Draw
from trainer.settings import BatchSettings, TrainSettings

CPU = torch.device("cpu")


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 7))
def test_every_node_is_a_query_once_an_epoch_over_all_workers(nodes: int, size: int, workers: int) -> None:
    order = np.random.default_rng(nodes).permutation(nodes)
    steps = -(-nodes // (size * workers))
    shares = [queries_of(order, number, steps, workers) for number in range(steps)]
    assert all(len(parts) == workers for parts in shares)
    assert sorted(np.concatenate([part for parts in shares for part in parts])) == list(range(nodes))
    assert all(len(part) <= size for parts in shares for part in parts)
    sizes = {len(part) for parts in shares for part in parts}
    assert max(sizes) - min(sizes) <= 1
    # No step is without a query, and none is left over.
    assert all(any(map(len, parts)) for parts in shares)


def test_auto_is_full_batch_up_to_the_limit() -> None:
    assert BatchSettings().mode_for(5_000) == "full"
    assert BatchSettings().mode_for(5_001) == "mini"
    assert BatchSettings(mode="mini").mode_for(5) == "mini"


@pytest.mark.parametrize(
    ("nodes", "document", "epochs"),
    [
        (5_000, {}, 400),
        (5_001, {}, 80),
        (100_000, {}, 5),
        (150_000, {}, 3),
        (1_000_000, {}, 1),
        (1_000_000, {"optimizer": {"accumulate": 8}}, 4),
        (1_000_000, {"run": {"epochs": 7}}, 7),
        (1_000_000, {"batch": {"mode": "full"}}, 400),
        (30, {"batch": {"mode": "mini", "size": 16}}, 200),
    ],
)
def test_default_epochs_make_400_steps_of_the_optimizer(nodes: int, document: dict, epochs: int) -> None:
    settings = TrainSettings.model_validate(document)
    decided = settings.for_graph(nodes)
    assert decided.epochs == epochs
    assert decided.batch.mode == settings.batch.mode_for(nodes)
    assert decided.for_graph(5) == decided


def test_a_warm_up_that_default_epochs_end_before_is_refused() -> None:
    settings = TrainSettings.model_validate({"optimizer": {"warmup_epochs": 3}})
    assert settings.for_graph(1000).epochs == 400
    with pytest.raises(ValidationError, match=r"warmup_epochs is 3, and run.epochs 1"):
        settings.for_graph(1_000_000)


def source(tmp_path: Path, mode: str, rank: int = 0, workers: int = 1) -> FullBatch | MiniBatch:
    chosen = TrainSettings.model_validate(settings_document(batch={"mode": mode, "size": 8, "fan_out": [3, 3]}))
    bundle = make_bundle(tmp_path / f"{mode}{rank}{workers}")
    made = FullBatch if mode == "full" else MiniBatch
    return made(bundle, load_features(bundle, chosen.features), chosen, rank=rank, world_size=workers, device=CPU)


def flat(step: Step) -> list[torch.Tensor]:
    views = [part for view in step.views for part in (view.features.scale_F, *(a.values for a in view.adjacencies))]
    return [*views, step.anchors.anchors_G, step.anchors.locals_QK, step.anchors.valid_QK]


def test_a_step_depends_on_its_place_alone(tmp_path: Path) -> None:
    for mode in ("full", "mini"):
        steps = source(tmp_path, mode)
        again = source(tmp_path / "again", mode)
        last = steps.num_steps - 1
        for epoch, number in [(3, last), (0, 0), (3, last)]:
            for one, other in zip(flat(steps.step(epoch, number)), flat(again.step(epoch, number)), strict=True):
                assert torch.equal(one, other)
        first, other = flat(steps.step(0, 0)), flat(steps.step(1, 0))
        assert not all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_rows_of_a_full_batch_are_nodes_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features, edges, and anchors of every worker's queries, back in the bundle's numbers."""
    bundle = make_bundle(tmp_path / "plain")
    shuffled = np.random.default_rng(0).permutation(bundle.num_nodes)
    monkeypatch.setattr("trainer.full_batch.near_order", lambda _: shuffled)
    anchors = Anchors(bundle, TrainSettings.model_validate(settings_document()).anchors)
    x = every_row(load_features(bundle, TrainSettings().features)).matrix
    arcs = {(node, heard) for node in range(bundle.num_nodes) for heard in [node, *bundle.topology.neighbors(node)]}
    for rank in (0, 1):
        steps = source(tmp_path, "full", rank, 2)
        order, step = torch.from_numpy(steps.order), steps.step(2, 0)
        assert torch.equal(step.views[0].features.matrix, x[order])
        pattern = step.views[0].adjacencies[0].pattern
        nodes, heard = order[pattern.rows.long()].tolist(), order[pattern.indices.long()].tolist()
        assert pattern.num_entries == len(arcs)
        assert set(zip(nodes, heard, strict=True)) == arcs
        queries, valid = order[step.queries].numpy(), step.anchors.valid_QK
        assert torch.equal(valid, torch.from_numpy(anchors.locals_of(queries)[1]))
        expected = torch.from_numpy(anchors.locals_of(queries)[0])
        assert torch.equal(order[step.anchors.locals_QK][valid], expected[valid])
        assert order[step.anchors.anchors_G].tolist() == anchors.draw_global(Draw(0, 2, 0)).tolist()


def test_workers_of_a_full_batch_share_views_and_anchors(tmp_path: Path) -> None:
    one, two = (source(tmp_path, "full", rank, 2).step(1, 0) for rank in (0, 1))
    for a, b in zip(one.views, two.views, strict=True):
        assert torch.equal(a.features.scale_F, b.features.scale_F)
        assert torch.equal(a.adjacencies[0].values, b.adjacencies[0].values)
    assert torch.equal(one.anchors.anchors_G, two.anchors.anchors_G)
    assert (one.queries, two.queries) == (slice(0, 20), slice(20, 40))


def test_a_mini_batch_finds_its_anchors_among_its_seeds(tmp_path: Path) -> None:
    steps = source(tmp_path, "mini")
    bundle = make_bundle(tmp_path / "plain")
    anchors = Anchors(bundle, TrainSettings.model_validate(settings_document()).anchors)
    x = every_row(load_features(bundle, TrainSettings().features)).matrix
    for number in range(steps.num_steps):
        step, queries = steps.step(2, number), steps.queries(2, number)[0]
        rows = step.views[0].features.matrix
        assert torch.equal(rows[step.queries], x[queries])
        assert torch.equal(rows[step.anchors.anchors_G], x[anchors.draw_global(Draw(0, 2, number))])
        assert torch.equal(step.anchors.valid_QK, torch.from_numpy(anchors.locals_of(queries)[1]))
        wanted = x[anchors.locals_of(queries)[0]]
        assert torch.equal(rows[step.anchors.locals_QK][step.anchors.valid_QK], wanted[step.anchors.valid_QK])


def test_prefetching_yields_every_step_in_order(tmp_path: Path) -> None:
    steps = source(tmp_path, "mini")
    first, end = steps.num_steps + 1, 3 * steps.num_steps
    got = list(prefetched(steps, first, end))
    assert [number for number, _ in got] == list(range(first, end))
    for number, step in got:
        assert step.draw == steps.step(*divmod(number, steps.num_steps)).draw
    assert list(prefetched(steps, end, end)) == []


def test_anchors_are_distinct_and_follow_the_degree_weights(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)
    document = settings_document()["anchors"]
    counts = np.zeros(bundle.num_nodes)
    chosen = TrainSettings.model_validate({"anchors": document | {"num_global": 1}}).anchors
    single = Anchors(bundle, chosen)
    for epoch in range(4000):
        counts[single.draw_global(Draw(0, epoch))] += 1
    expected = bundle.degree_weights().probability
    assert np.abs(counts / 4000 - expected).max() < 5 * np.sqrt(expected.max() / 4000)
    many = Anchors(bundle, chosen.model_copy(update={"num_global": 25})).draw_global(Draw(0))
    assert len(set(many.tolist())) == 25


def test_with_as_many_anchors_as_nodes_every_node_is_one(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)
    chosen = TrainSettings.model_validate({"anchors": {"num_global": 500}}).anchors
    assert Anchors(bundle, chosen).draw_global(Draw(0)).tolist() == list(range(bundle.num_nodes))


def test_weights_of_other_alpha_and_beta_are_computed(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)
    document = settings_document()["anchors"] | {"num_global": 1, "weights": {"alpha": 0.01, "beta": 0.0}}
    anchors = Anchors(bundle, TrainSettings.model_validate({"anchors": document}).anchors)
    degree = bundle.symmetric.degrees()
    drawn = [int(anchors.draw_global(Draw(0, epoch))[0]) for epoch in range(300)]
    weight = 0.01 ** np.log(degree + 1)
    isolated = weight[degree == 0].sum() / weight.sum()
    assert isolated > 0.5
    assert np.isin(drawn, np.flatnonzero(degree == 0)).mean() > 0.8 * isolated


def test_nodes_without_neighbours_have_no_local_anchor(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path, nodes=12, edges=0, top_k=12)
    chosen = TrainSettings.model_validate({"anchors": {"num_local": 12}}).anchors
    anchors = Anchors(bundle, chosen)
    _, valid_NK = anchors.locals_of(np.arange(12))
    assert not valid_NK[-1].any()
    assert valid_NK[:-1].sum(axis=1).tolist() == [11] * 11


@pytest.mark.parametrize("mode", ["full", "mini"])
def test_steps_made_in_several_threads_are_those_of_one(tmp_path: Path, mode: str) -> None:
    """Across the ends of epochs too, where the order of the queries changes."""
    epoch = source(tmp_path / "again", mode).num_steps
    alone = list(prefetched(source(tmp_path / "alone", mode), 1, 3 * epoch))
    together = list(prefetched(source(tmp_path / "together", mode), 1, 3 * epoch, threads=4))
    assert [number for number, _ in alone] == [number for number, _ in together] == list(range(1, 3 * epoch))
    for (_, one), (_, other) in zip(alone, together, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(flat(one), flat(other), strict=True))


def test_settings_choose_the_sampler_of_a_mini_batch(tmp_path: Path) -> None:
    """With replacement every row that has a neighbour has as many entries as the fan-out, and its self-loop."""
    chosen = TrainSettings.model_validate(
        settings_document(batch={"mode": "mini", "size": 8, "fan_out": [5, 5], "replace": True})
    )
    bundle = make_bundle(tmp_path)
    steps = MiniBatch(bundle, load_features(bundle, chosen.features), chosen, device=CPU)
    lengths = steps.step(0, 0).views[0].adjacencies[0].pattern.indptr.diff()
    assert set(lengths.tolist()) <= {1, 6}
    assert 6 in lengths
