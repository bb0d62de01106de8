from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from test_training import MINI, equal, train
from training_bundles import Recorder, make_bundle

from preprocessing.bundle import Bundle
from trainer import checkpoint, curve, loop
from trainer.evaluation.model_selection import label_free_epoch
from trainer.look import FEWEST_ROWS, MOST_ROWS, Look, looks_at

OBJECTIVES = ["rgrl", "bgrl", "grace", "cca_ssg", "dgi"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return make_bundle(tmp_path_factory.mktemp("look"))


@pytest.mark.parametrize("batch", [{"mode": "full"}, MINI])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_run_that_is_looked_at_is_the_same_run_bit_for_bit(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, objective: str, batch: dict
) -> None:
    monkeypatch.setattr(loop, "REPORT_STEPS", 1)
    run = {"epochs": 3, "checkpoint_every": 1}
    steps: dict[bool, list[int]] = {}
    ends = {}
    for looks in (True, False):
        look: Callable[..., bool] = lambda *_, looks=looks: looks  # noqa: E731
        monkeypatch.setattr(loop, "looks_at", look)
        recorder = Recorder()
        ends[looks] = train(bundle, tmp_path / str(looks), None, recorder, objective, batch=batch, run=run)
        looked = [line["step"] for line in recorder.of("metrics") if "online_target_cosine" in line["values"]]
        steps[looks] = looked
    assert equal(ends[True], ends[False])
    losses = [[point["loss"] for point in curve.read(tmp_path / str(looks))] for looks in (True, False)]
    assert losses[0] == losses[1]
    assert steps[False] == []
    assert bool(steps[True]) == (objective in {"rgrl", "bgrl"})


def test_the_cosine_is_what_bgrls_loss_says(bundle: Bundle, tmp_path: Path) -> None:
    """The loss is 2 − 2 cos of each of two ordered pairs of views."""
    recorder = Recorder()
    train(bundle, tmp_path, None, recorder, "bgrl", run={"epochs": 4, "checkpoint_every": 1})
    lines = recorder.of("metrics")
    assert len(lines) == 4
    for line in lines:
        assert line["values"]["online_target_cosine"] == pytest.approx(1 - line["values"]["loss"] / 4, abs=1e-6)


def test_figures_are_of_evenly_spaced_queries() -> None:
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.normal(size=(3 * MOST_ROWS + 10, 5)).astype(np.float32))
    look = Look()
    look.embedded(rows, slice(10, len(rows)))
    values = np.linalg.svd(rows[10::3].double().numpy(), compute_uv=False)
    share = values / values.sum()
    assert look.collapse is not None
    assert look.collapse.effective_rank == pytest.approx(np.exp(-(share * np.log(share)).sum()), rel=1e-6)
    assert look.cosine is None


def test_of_few_queries_no_figure_is_made() -> None:
    look = Look()
    look.embedded(torch.ones(FEWEST_ROWS - 1, 4), slice(0, FEWEST_ROWS - 1))
    assert look.collapse is None
    look.embedded(torch.ones(FEWEST_ROWS, 4), slice(0, FEWEST_ROWS))
    assert look.collapse is not None
    assert look.collapse.collapsed


def test_what_is_looked_at_cannot_change_afterwards() -> None:
    rows = torch.eye(FEWEST_ROWS, dtype=torch.float64)
    look = Look()
    look.embedded(rows, slice(0, FEWEST_ROWS))
    rows.zero_()
    assert look.collapse is not None
    assert look.collapse.effective_rank == pytest.approx(FEWEST_ROWS)


@pytest.mark.parametrize(
    ("num_steps", "every", "total"), [(1, 100, 120), (3, 100, 360), (7, 2, 840), (100, 100, 12_000), (250, 100, 299)]
)
def test_looks_are_at_reports_the_first_the_50th_at_checkpoints_and_the_last(
    num_steps: int, every: int, total: int
) -> None:
    expected, reports = [], 0
    for done in range(total):
        epoch, batch = done // num_steps, done % num_steps + 1
        if batch < num_steps and batch % every != 0 and done + 1 < total:
            continue
        reports += 1
        kept = batch == num_steps and epoch + 1 in (40, 80, 120)
        if reports == 1 or reports % 50 == 0 or kept or done + 1 == total:
            expected.append(done)
    assert [done for done in range(total) if looks_at(done, total, num_steps, every, 40)] == expected


def test_a_collapsed_run_says_so_in_its_events_and_checkpoint(tmp_path: Path) -> None:
    """Nodes of one and the same features cannot be told apart, whatever mean-pooling layers learn."""
    alike = make_bundle(tmp_path, nodes=300, edges=600, features=np.ones((300, 12), np.float32))
    recorder = Recorder()
    augment = {"drop_edge_1": 0, "drop_edge_2": 0}
    encoder = {"kind": "sage_residual", "layers": [8, 8]}
    run = {"epochs": 3, "checkpoint_every": 1}
    train(alike, tmp_path / "work", None, recorder, "bgrl", augment=augment, encoder=encoder, run=run)
    told = recorder.of("health")
    assert [line["state"] for line in told] == ["healthy", "collapsed"], "after two looks"
    assert "carry no information" in told[-1]["reason"]
    last = checkpoint.newest(tmp_path / "work", "print")
    assert last is not None
    assert checkpoint.progress_of(last).health.state(3).state == "collapsed"


def test_the_last_checkpoints_are_kept_and_the_best(bundle: Bundle, tmp_path: Path) -> None:
    recorder = Recorder()
    train(bundle, tmp_path, None, recorder, run={"epochs": 30, "checkpoint_every": 1, "keep_checkpoints": 3})
    ranks = [(line["step"], line["values"]["effective_rank"]) for line in recorder.of("metrics")]
    chosen = label_free_epoch(curve.read(tmp_path), ranks, 30)
    kept = {int(path.name.removeprefix("step-")) for path in (tmp_path / "checkpoints").iterdir()}
    assert kept == {28, 29, 30, chosen}
    last = checkpoint.newest(tmp_path, "print")
    assert last is not None
    assert checkpoint.progress_of(last).best.step == chosen
