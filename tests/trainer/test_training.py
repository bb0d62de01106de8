import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from training_bundles import Recorder, make_bundle, settings_document

from preprocessing.bundle import Bundle
from preprocessing.errors import RgrlError
from trainer import checkpoint, curve, loop
from trainer.features import load_features
from trainer.launch import InProcess
from trainer.mini_batch import MiniBatch
from trainer.objectives import new_objective
from trainer.plateau import Plateau
from trainer.settings import TrainSettings


def checkpoint_of(work: Path, epoch: int) -> Path:
    """That of so many whole epochs."""
    [found] = [path for path in (work / "checkpoints").iterdir() if checkpoint.progress_of(path).epoch == epoch]
    return found


AHEAD_OF_BATCH_NORM = ("layers.0.bias", "layers.1.bias", "running_mean")
"""BatchNorm takes a bias away again: its gradient is rounding noise, of which AdamW makes whole steps."""

MINI = {"mode": "mini", "size": 16, "fan_out": [3, 3]}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return make_bundle(tmp_path_factory.mktemp("training"))


def train(
    bundle: Bundle,
    work: Path,
    resume: Path | None = None,
    recorder: Recorder | None = None,
    objective: str = "rgrl",
    **parts: dict,
) -> dict[str, torch.Tensor]:
    """Run a job; the answer is its last checkpoint's model, optimizer and, if it has one, bank."""
    work.mkdir(exist_ok=True)
    chosen = TrainSettings.model_validate(settings_document(**parts) | {"objective": objective})
    context = InProcess(torch.device("cpu"), recorder or Recorder())
    loop.run(loop.Job(bundle.path, work, chosen, "print", resume), context)
    last = checkpoint.newest(work, "print")
    assert last is not None
    banks = {path.name: torch.from_numpy(np.load(path)) for path in last.glob("bank*.npy")}
    return load_file(last / "model.safetensors") | load_file(last / "optimizer.safetensors") | banks


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("batch", [{"mode": "full"}, MINI])
def test_a_run_repeats_and_resumes_bit_for_bit(bundle: Bundle, tmp_path: Path, batch: dict) -> None:
    whole = train(bundle, tmp_path / "whole", batch=batch)
    assert equal(train(bundle, tmp_path / "again", batch=batch), whole)
    resumed = train(bundle, tmp_path / "resumed", resume=checkpoint_of(tmp_path / "whole", 2), batch=batch)
    assert equal(resumed, whole)
    assert not equal(train(bundle, tmp_path / "other", batch=batch, run={"epochs": 4, "seed": 1}), whole)


@pytest.mark.parametrize(
    ("accumulate", "order", "bank"),
    [(1, "random", "none"), (2, "random", "none"), (1, "near", "disk"), (2, "random", "device")],
)
@pytest.mark.parametrize("died_at", [1, 2, 5, 6, 7, 11])
def test_a_run_killed_at_any_batch_resumes_bit_for_bit(
    bundle: Bundle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    died_at: int,
    accumulate: int,
    order: str,
    bank: str,
) -> None:
    """Every checkpoint inside an epoch of six batches, too: its losses and the curve are the undisturbed run's. The
    batches since the checkpoint, which the broken run did and wrote to its bank, leave nothing behind.
    """
    monkeypatch.setattr(loop, "REPORT_STEPS", 1)
    stop = {"rule": "plateau", "window": 1, "tolerance": 1e-6, "patience": 9}
    parts = {
        "batch": {"mode": "mini", "size": 7, "fan_out": [3, 3], "order": order, "chunk": 3},
        "anchors": {"bank": bank},
        "optimizer": {"accumulate": accumulate, "schedule": "cosine"},
        "run": {"epochs": 3, "checkpoint_minutes": 0, "stop": stop},
    }
    whole = train(bundle, tmp_path / "whole", **parts)
    ended = checkpoint.progress_of(checkpoint.newest(tmp_path / "whole", "print"))
    assert (ended.epoch, ended.batch, ended.steps) == (3, 0, 18)
    saved = checkpoint.save

    def die(work: Path, model: Any, optimizer: Any, progress: checkpoint.Progress, *rest: Any) -> Path:
        if progress.steps > died_at:
            raise KeyboardInterrupt
        return saved(work, model, optimizer, progress, *rest)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(checkpoint, "save", die)
        train(bundle, tmp_path / "broken", **parts)
    newest = checkpoint.newest(tmp_path / "broken", "print")
    if newest is not None:
        assert checkpoint.progress_of(newest).steps == died_at // accumulate * accumulate
    resumed = train(bundle, tmp_path / "broken", resume=newest, **parts)
    assert equal(resumed, whole)
    again = checkpoint.progress_of(checkpoint.newest(tmp_path / "broken", "print"))
    assert (again.plateau, again.steps) == (ended.plateau, ended.steps)
    curves = [[point["loss"] for point in curve.read(tmp_path / name)] for name in ("whole", "broken")]
    assert curves[0] == curves[1]
    assert len(curves[0]) == 18 // accumulate


def test_accumulated_batches_move_the_parameters_by_their_mean_gradient(bundle: Bundle, tmp_path: Path) -> None:
    parts = {"batch": {"mode": "mini", "size": 10, "fan_out": [3, 3]}, "run": {"epochs": 1}}
    chosen = TrainSettings.model_validate(settings_document(**parts, optimizer={"accumulate": 2}))
    model = new_objective(12, chosen)
    moved = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(moved, lr=chosen.optimizer.lr, weight_decay=chosen.optimizer.weight_decay)
    source = MiniBatch(bundle, load_features(bundle, chosen.features), chosen, device=torch.device("cpu"))
    assert source.num_steps == 4
    for first in (0, 2):
        losses = []
        for number in (first, first + 1):
            model.train()
            losses.append(model(source.step(0, number))[0])
        gradients = torch.autograd.grad(sum(losses) / 2, moved)
        for parameter, gradient in zip(moved, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
        model.update_target(chosen.optimizer.ema_decay)
    trained = train(bundle, tmp_path, **parts, optimizer={"accumulate": 2})
    for name, tensor in model.state_dict().items():
        if not name.endswith(AHEAD_OF_BATCH_NORM):
            torch.testing.assert_close(trained[name], tensor, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("rule", "factor"), [("none", 1), ("sqrt", 2), ("linear", 4)])
def test_the_learning_rate_grows_as_told_with_the_batches_of_a_step(
    bundle: Bundle, tmp_path: Path, rule: str, factor: int
) -> None:
    recorder = Recorder()
    optimizer = {"lr": 1e-3, "accumulate": 4, "lr_scaling": rule}
    train(bundle, tmp_path, recorder=recorder, batch=MINI, optimizer=optimizer, run={"epochs": 1})
    assert [line["values"]["lr"] for line in recorder.of("metrics")] == pytest.approx([factor * 1e-3])


@pytest.mark.parametrize("accumulate", [1, 2])
def test_max_steps_end_a_run_inside_an_epoch_with_what_it_had_learnt_by_then(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accumulate: int
) -> None:
    """Six batches an epoch."""
    parts = {"batch": {"mode": "mini", "size": 7, "fan_out": [3, 3]}, "optimizer": {"accumulate": accumulate}}
    cut = train(bundle, tmp_path / "cut", **parts, run={"epochs": 3, "max_steps": 8 // accumulate})
    ended = checkpoint.progress_of(checkpoint.newest(tmp_path / "cut", "print"))
    assert (ended.epoch, ended.batch, ended.steps, ended.stopped) == (1, 2, 8, True)
    assert [point["step"] for point in curve.read(tmp_path / "cut")] == [6, 8]
    seen: dict[int, dict[str, torch.Tensor]] = {}
    save = checkpoint.save

    def keep_a_copy(work: Path, model: Any, optimizer: Any, progress: checkpoint.Progress, *rest: Any) -> Path:
        made = save(work, model, optimizer, progress, *rest)
        seen[progress.steps] = load_file(made / "model.safetensors") | load_file(made / "optimizer.safetensors")
        return made

    monkeypatch.setattr(loop, "REPORT_STEPS", 2)
    monkeypatch.setattr(checkpoint, "save", keep_a_copy)
    train(bundle, tmp_path / "straight", **parts, run={"epochs": 3, "checkpoint_minutes": 0})
    assert equal(seen[8], cut)
    assert not equal(seen[10], cut)


@pytest.mark.parametrize(
    "parts", [{}, {"anchors": {"bank": "device"}}, {"batch": {**MINI, "order": "near", "chunk": 4}}]
)
def test_threads_that_make_steps_ahead_change_none(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: dict[str, dict]
) -> None:
    asked = []
    steps = loop.prefetched
    monkeypatch.setattr(loop, "prefetched", lambda *arguments: (asked.append(arguments[3]), steps(*arguments))[1])
    one = train(bundle, tmp_path / "one", **{"batch": MINI, **parts})
    batch = parts.get("batch", MINI) | {"loader_threads": 4}
    several = train(bundle, tmp_path / "several", **(parts | {"batch": batch}))
    assert asked == [1, 4]
    assert equal(several, one)


@pytest.mark.parametrize(("first", "then"), [(7, 14), (14, 7), (7, 4)])
def test_max_steps_count_what_was_done_with_other_workers(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int, then: int
) -> None:
    """Another number of workers means another number of batches an epoch, as another size does."""
    monkeypatch.setattr(loop, "REPORT_STEPS", 2)

    def batch(size: int) -> dict[str, Any]:
        return {"mode": "mini", "size": size, "fan_out": [3, 3]}

    train(bundle, tmp_path / "cut", batch=batch(first), run={"epochs": 9, "max_steps": 8})
    cut = checkpoint.newest(tmp_path / "cut", "print")
    state = json.loads((cut / "state.json").read_text())
    (cut / "state.json").write_text(json.dumps(state | {"stopped": False}))
    train(bundle, tmp_path / "on", cut, batch=batch(then), run={"epochs": 9, "max_steps": 13})
    ended = checkpoint.progress_of(checkpoint.newest(tmp_path / "on", "print"))
    assert (ended.steps, ended.stopped) == (13, True)


@pytest.mark.parametrize(("nodes", "accumulate"), [(5, 4), (5, 5), (9, 2), (40, 7)])
def test_no_batch_of_an_epoch_is_empty(tmp_path: Path, nodes: int, accumulate: int) -> None:
    small = make_bundle(tmp_path, nodes=nodes)
    recorder = Recorder()
    parts = {"batch": {"mode": "mini", "size": 1, "fan_out": [3, 3]}, "optimizer": {"accumulate": accumulate}}
    train(small, tmp_path / "work", recorder=recorder, **parts, run={"epochs": 2})
    assert all(np.isfinite(line["values"]["loss"]) for line in recorder.of("metrics"))
    ended = checkpoint.progress_of(checkpoint.newest(tmp_path / "work", "print"))
    assert (ended.epoch, ended.steps) == (2, 2 * (nodes // accumulate) * accumulate)


def test_max_steps_past_the_last_epoch_change_nothing(bundle: Bundle, tmp_path: Path) -> None:
    parts = {"batch": MINI, "optimizer": {"schedule": "cosine"}}
    whole = train(bundle, tmp_path / "whole", **parts)
    assert equal(train(bundle, tmp_path / "asked", **parts, run={"epochs": 4, "max_steps": 12}), whole)
    assert checkpoint.progress_of(checkpoint.newest(tmp_path / "asked", "print")).stopped is False


def test_another_number_of_batches_an_epoch_goes_on_from_as_far() -> None:
    """Of workers who came or went: nobody's queries are asked twice by more than a batch."""
    progress = checkpoint.Progress("cpu", epoch=2, batch=30, batches=40, steps=110)
    fewer = progress.continued(20)
    assert (fewer.epoch, fewer.batch, fewer.place) == (2, 15, 55)
    assert fewer.continued(40).place == progress.place == 110
    assert replace(fewer, batch=19).advanced() == replace(fewer, epoch=3, batch=0, steps=111)


@pytest.mark.parametrize("batch", [{"mode": "full"}, MINI])
@pytest.mark.parametrize("objective", ["bgrl", "grace", "gca", "cca_ssg", "dgi"])
def test_a_rivals_run_resumes_bit_for_bit(bundle: Bundle, tmp_path: Path, objective: str, batch: dict) -> None:
    parts = {"objective": objective, "batch": batch, "run": {"epochs": 2, "checkpoint_every": 1}}
    whole = train(bundle, tmp_path / "whole", **parts)
    first = checkpoint_of(tmp_path / "whole", 1)
    assert equal(train(bundle, tmp_path / "resumed", resume=first, **parts), whole)
    assert not equal(train(bundle, tmp_path / "other", **(parts | {"objective": "rgrl"})), whole)


SCHEDULED = {"lr": 0.004, "schedule": "cosine", "warmup_epochs": 2, "ema_schedule": "cosine"}


def test_a_scheduled_run_with_slow_nodes_resumes_and_tells_its_true_rate(bundle: Bundle, tmp_path: Path) -> None:
    recorder = Recorder()
    parts = {"optimizer": SCHEDULED, "augment": {"half_hop": 0.5}, "run": {"epochs": 6, "checkpoint_every": 3}}
    whole = train(bundle, tmp_path / "whole", recorder=recorder, **parts)
    half = 0.002 * 2**0.5
    rates = [line["values"]["lr"] for line in recorder.of("metrics")]
    assert rates == pytest.approx([0.002, 0.004, 0.004, 0.002 + half / 2, 0.002, 0.002 - half / 2])
    resumed = train(bundle, tmp_path / "resumed", resume=checkpoint_of(tmp_path / "whole", 3), **parts)
    assert equal(resumed, whole)
    for changed in ({"augment": {}}, {"optimizer": SCHEDULED | {"ema_schedule": "constant"}}):
        assert not equal(train(bundle, tmp_path / "other", **(parts | changed)), whole)


def test_training_lowers_the_loss_and_reports_every_epoch(bundle: Bundle, tmp_path: Path) -> None:
    recorder = Recorder()
    train(bundle, tmp_path, recorder=recorder, run={"epochs": 60}, optimizer={"lr": 0.01})
    metrics = recorder.of("metrics")
    assert [line["step"] for line in metrics] == list(range(1, 61))
    losses = [line["values"]["loss"] for line in metrics]
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])
    rates = {"lr", "steps_per_s", "nodes_per_s", "data_wait_s", "peak_bytes"}
    looked = {"effective_rank", "online_target_cosine"}
    assert set(metrics[0]["values"]) == {"loss", "loss_global", "loss_local"} | rates | looked
    assert set(metrics[2]["values"]) == {"loss", "loss_global", "loss_local"} | rates
    last = recorder.of("progress")[-1]
    assert (last["done"], last["total"], last["unit"]) == (60, 60, "steps")


def test_the_target_follows_the_online_network_by_ema_alone(bundle: Bundle, tmp_path: Path) -> None:
    """One epoch: ξ₁ = γ ξ₀ + (1−γ) θ₁ with ξ₀ the seed's first weights."""
    after = train(bundle, tmp_path, run={"epochs": 1}, optimizer={"ema_decay": 0.9})
    first = new_objective(12, TrainSettings.model_validate(settings_document())).target.state_dict()
    weight = "layers.0.weight"
    expected = 0.9 * first[weight] + 0.1 * after[f"online.{weight}"]
    torch.testing.assert_close(after[f"target.{weight}"], expected)
    assert int(after["target.layers.0.norm.num_batches_tracked"]) == 2


def test_running_statistics_stay_as_the_first_step_left_them(bundle: Bundle, tmp_path: Path) -> None:
    encoder = {"layers": [16, 8], "batch_norm_statistics": "running"}
    one = train(bundle, tmp_path / "one", encoder=encoder, run={"epochs": 1})
    four = train(bundle, tmp_path / "four", encoder=encoder)
    statistics = [name for name in one if "running" in name or "num_batches" in name]
    assert len(statistics) == 12
    assert all(torch.equal(one[name], four[name]) for name in statistics)
    assert int(four["online.layers.0.norm.num_batches_tracked"]) == 2
    assert not equal(four, train(bundle, tmp_path / "batch"))


def test_checkpoints_keep_the_last_and_the_best_and_snapshots_all(bundle: Bundle, tmp_path: Path) -> None:
    last = train(bundle, tmp_path, run={"epochs": 7, "checkpoint_every": 2, "snapshot_every": 3})
    newest = checkpoint.newest(tmp_path, "print")
    assert newest is not None
    best = checkpoint.progress_of(newest).best.step
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {f"step-{n:08d}" for n in (6, 7, best)}
    names = ["epoch-00003.safetensors", "epoch-00006.safetensors", "epoch-00007.safetensors"]
    assert sorted(path.name for path in checkpoint.snapshots(tmp_path).iterdir()) == names
    snapshot = load_file(checkpoint.snapshots(tmp_path) / names[-1])
    assert all(torch.equal(tensor, last[f"online.{name}"]) for name, tensor in snapshot.items())


def test_a_damaged_half_written_or_foreign_checkpoint_is_passed_over(bundle: Bundle, tmp_path: Path) -> None:
    train(bundle, tmp_path, run={"epochs": 4, "checkpoint_every": 2})
    folder = tmp_path / "checkpoints"
    good, bad = folder / "step-00000002", folder / "step-00000004"
    assert checkpoint.newest(tmp_path, "print") == bad
    assert checkpoint.progress_of(bad).steps == 4
    assert checkpoint.newest(tmp_path, "another run") is None

    content = bytearray((bad / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (bad / "model.safetensors").write_bytes(content)
    assert checkpoint.newest(tmp_path, "print") == good

    (bad / "state.json").unlink()
    assert checkpoint.newest(tmp_path, "print") == good

    shutil.copytree(good, folder / ".step-00000006.partial")
    (folder / "step-foo").mkdir()
    for text in ("[1, 2]", "7", '{"files": 3}', "{"):
        (bad / "state.json").write_text(text)
        assert checkpoint.newest(tmp_path, "print") == good


def test_an_infinite_loss_is_an_error_and_leaves_no_checkpoint_behind_it(bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(RgrlError, match="not finite") as error:
        train(bundle, tmp_path, run={"epochs": 50}, optimizer={"lr": 1e30})
    assert "epoch" in str(error.value)
    assert error.value.code == "diverged"
    assert error.value.remedy is not None
    for path in (tmp_path / "checkpoints").glob("*"):
        tensors = load_file(path / "model.safetensors").values()
        assert all(torch.isfinite(tensor).all() for tensor in tensors)


STOP = {"epochs": 200, "checkpoint_every": 3, "stop": {"rule": "plateau", "window": 2, "tolerance": 0.2, "patience": 2}}


@pytest.mark.parametrize("batch", [{"mode": "full"}, MINI])
def test_a_flat_loss_ends_a_run_where_it_ends_the_resumed_one(bundle: Bundle, tmp_path: Path, batch: dict) -> None:
    """The epoch is the one that the rule finds in the curve; what is left is whole, as after any last epoch."""
    recorder = Recorder()
    run = {**STOP, "snapshot_every": 50}
    whole = train(bundle, tmp_path / "whole", recorder=recorder, run=run, batch=batch)
    folder = tmp_path / "whole" / "checkpoints"
    before, last = sorted(folder.iterdir())
    progress = checkpoint.progress_of(last)

    points = curve.read(tmp_path / "whole")
    state, epoch = Plateau(), 0
    while state.flat < 2:
        epoch += 1
        state = state.after(float(np.mean([p["loss"] for p in points if p["epoch"] == epoch])), 2, 0.2)
    assert (progress.epoch, progress.stopped, progress.plateau.flat) == (epoch, True, 2)
    assert 6 < epoch < 200
    assert points[-1]["epoch"] == epoch
    assert [path.stem for path in checkpoint.snapshots(tmp_path / "whole").iterdir()] == [
        *(f"epoch-{done:05d}" for done in range(50, epoch, 50)),
        f"epoch-{epoch:05d}",
    ]
    line = recorder.of("progress")[-1]
    assert line["done"] == line["total"] == progress.steps
    assert equal(train(bundle, tmp_path / "resumed", resume=before, run=run, batch=batch), whole)
    # The same run without the rule passes the same point.
    assert equal(train(bundle, tmp_path / "to", run={"epochs": epoch}, batch=batch), whole)
