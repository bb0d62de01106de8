import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from training_bundles import Recorder, make_bundle, settings_document

from preprocessing import stage
from preprocessing.bundle import Bundle, DenseFeatures, SparseFeatures
from preprocessing.errors import ArtifactError, InputError, Interrupted, ResourceError, UsageError
from trainer import checkpoint, feature_scale, loop
from trainer.embedding_set import EmbeddingSet
from trainer.train import train


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return make_bundle(tmp_path / "data")


def spec_for(bundle: Bundle, folder: Path, **parts: dict) -> dict[str, Any]:
    return {
        "bundle": str(bundle.path),
        "out": str(folder / "embeddings"),
        "work": str(folder / "work"),
        "settings": settings_document(**parts),
    }


def run(spec: dict[str, Any], recorder: Recorder | None = None) -> dict[str, Any]:
    return dict(train(spec, recorder or Recorder()))


def vectors(spec: dict[str, Any]) -> np.ndarray:
    return np.load(Path(spec["out"]) / "vectors.npy")


@pytest.mark.parametrize("place", ["/proc/below", "file", "file/below", "loop/below", "n" * 300])
@pytest.mark.parametrize("which", ["work", "out"])
def test_a_place_that_cannot_be_made_is_one_clear_error(bundle: Bundle, tmp_path: Path, place: str, which: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    spec = spec_for(bundle, tmp_path) | {which: str(tmp_path / place)}
    if (which, place) == ("out", "file"):
        return  # Something is there: told otherwise.
    with pytest.raises(ResourceError) as refused, stage.disk_errors(spec["out"]):
        run(spec)
    assert place.split("/")[0] in str(refused.value.where)
    assert refused.value.remedy is not None


def test_the_stage_writes_an_embedding_set_and_answers_again_with_it(bundle: Bundle, tmp_path: Path) -> None:
    spec = spec_for(bundle, tmp_path)
    summary = run(spec)
    assert summary["counts"] == {"nodes": 40, "dim": 8}
    expected = {"epochs": 4, "steps": 4, "workers": 0, "device": "cpu", "batch_mode": "full", "sampler": None}
    assert expected.items() <= summary["training"].items()
    # Two layers with bias, BatchNorm's scale and shift, and PReLU's slope each; the predictor's two layers and slope.
    encoder = (12 * 16 + 16 + 32 + 1) + (16 * 8 + 8 + 16 + 1)
    assert summary["training"]["parameters"] == encoder + (8 * 16 + 16) + 1 + (16 * 8 + 8)
    assert 50e6 < summary["training"]["peak_bytes"] < 50e9
    assert summary["training"]["stopped_early"] is False
    curve = EmbeddingSet(spec["out"]).manifest["training"]["losses"]
    assert [(point["epoch"], point["step"]) for point in curve] == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert all(point["loss"] == pytest.approx(point["loss_global"] + point["loss_local"]) for point in curve)
    assert curve[0]["seconds"] < curve[-1]["seconds"] == pytest.approx(summary["training"]["seconds"], abs=1e-3)
    before = (tmp_path / "embeddings" / "manifest.json").stat()
    assert run(spec) == summary
    assert (tmp_path / "embeddings" / "manifest.json").stat() == before


@pytest.mark.parametrize("weighted", [False, True])
def test_the_embedding_set_names_the_sampler_in_use(tmp_path: Path, weighted: bool) -> None:
    bundle = with_weights(make_bundle(tmp_path / "data"))
    recorder = Recorder()
    batch = {"mode": "mini", "size": 16, "fan_out": [2, 2], "replace": True, "weighted": weighted}
    summary = run(spec_for(bundle, tmp_path, batch=batch), recorder)
    assert summary["training"]["sampler"] == "numba"
    (warning,) = [event for event in recorder.of("warning") if event["code"] == "weights_ignored"]
    assert ("neighbours sampled" in warning["message"]) is weighted


def with_weights(bundle: Bundle) -> Bundle:
    """The same graph with edge weights."""
    weights = np.random.default_rng(0).exponential(size=bundle.topology.num_arcs).astype(np.float32)
    np.save(bundle.path / "topology" / "weights.npy", weights)
    return Bundle(bundle.path)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"weighted": True}, "no edge weights"),
        ({"sampler": "pyg-lib"}, "pyg-lib is not installed"),
        ({"sampler": "torch-sparse"}, "torch-sparse is not installed"),
    ],
)
def test_a_sampler_that_cannot_be_had_is_refused_before_training(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: dict[str, Any], message: str
) -> None:
    for module in ("pyg_lib", "torch_sparse"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr("trainer.train.launch", lambda *_: pytest.fail("trained"))
    with pytest.raises((InputError, UsageError), match=message) as error:
        run(spec_for(bundle, tmp_path, batch={"mode": "mini", **batch}))
    assert error.value.remedy
    assert error.value.pointer is not None


def test_an_output_of_other_settings_is_refused_before_training(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(spec_for(bundle, tmp_path))
    monkeypatch.setattr("trainer.train.launch", lambda *_: pytest.fail("trained"))
    with pytest.raises(UsageError, match="exists already"):
        run(spec_for(bundle, tmp_path, run={"epochs": 5}))
    assert run(spec_for(bundle, tmp_path, run={"epochs": 4, "checkpoint_every": 1}))["counts"]["nodes"] == 40


def test_an_output_that_is_something_else_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    spec = spec_for(bundle, tmp_path)
    Path(spec["out"]).mkdir()
    (Path(spec["out"]) / "mine").touch()
    with pytest.raises(UsageError, match="exists already") as error:
        run(spec)
    assert error.value.remedy
    assert [path.name for path in Path(spec["out"]).iterdir()] == ["mine"]


def test_a_second_run_on_the_same_work_is_refused_at_once(bundle: Bundle, tmp_path: Path) -> None:
    spec = spec_for(bundle, tmp_path)

    class Second(Recorder):
        def progress(self, *event: Any) -> None:
            with pytest.raises(UsageError, match="another process is building"):
                run(spec)
            refused.append(event)

    refused: list[Any] = []
    run(spec, Second())
    assert refused
    assert Path(spec["out"]).is_dir()


def test_a_full_disk_is_told_as_such(bundle: Bundle, tmp_path: Path) -> None:
    # Kernels that are not in their cache yet are written to it as they are imported.
    limit = (
        "import sys; from preprocessing.stage import run_stage; from trainer.train import train; "
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)); "
        "sys.exit(run_stage({'train': train}, ['train', sys.argv[1]]))"
    )
    spec = spec_for(bundle, tmp_path, encoder={"layers": [128, 64], "predictor_hidden": 128})
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    done = subprocess.run([sys.executable, "-c", limit, str(tmp_path / "spec.json")], capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "the disk refused" in done.stderr


@pytest.mark.parametrize("density", [1.0, 0.1], ids=["dense", "sparse"])
@pytest.mark.parametrize("scale", [1e16, 1e20, 1e37])
def test_features_of_absurd_scale_are_refused_before_training(tmp_path: Path, density: float, scale: float) -> None:
    bundle = make_bundle(tmp_path / "data", features=features_of(scale, density))
    assert isinstance(bundle.features, DenseFeatures if density == 1 else SparseFeatures)
    spec = spec_for(bundle, tmp_path)
    with pytest.raises(InputError, match="too large") as error:
        run(spec)
    assert "at most 1e+15" in str(error.value)
    assert "standardize" in str(error.value.remedy)
    assert not Path(spec["work"]).exists()


def test_features_of_a_large_scale_or_standardised_ones_train(tmp_path: Path) -> None:
    for scale, transform in ((1e14, "none"), (1e20, "standardize"), (1e20, "binarize")):
        folder = tmp_path / f"{scale} {transform}"
        spec = spec_for(
            make_bundle(folder, features=features_of(scale, 1.0)), folder, features={"transform": transform}
        )
        recorder = Recorder()
        run(spec, recorder)
        assert [event["state"] for event in recorder.of("health")] == ["healthy"]
        assert np.abs(vectors(spec)).max() > 0


@pytest.mark.parametrize("batch", [{"mode": "full"}, {"mode": "mini", "size": 16}], ids=["full", "mini"])
def test_vectors_that_come_to_nothing_are_told_whatever_the_run_looked_like(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: dict[str, Any]
) -> None:
    """Mini-batches too small to be looked at, and runs too short."""
    monkeypatch.setattr(feature_scale, "LARGEST", np.inf)
    spec = spec_for(make_bundle(tmp_path / "data", features=features_of(1e20, 1.0)), tmp_path, batch=batch)
    recorder = Recorder()
    run(spec, recorder)
    assert np.abs(vectors(spec)).max() == 0
    last = recorder.of("health")[-1]
    assert (last["state"], "no information" in last["reason"]) == ("collapsed", True)
    health = EmbeddingSet(Path(spec["out"])).manifest["training"]["health"]
    assert health == {"state": "collapsed", "reason": last["reason"]}


def features_of(scale: float, density: float) -> np.ndarray:
    rng = np.random.default_rng(3)
    values = rng.normal(size=(40, 20)) * scale
    return np.where(rng.random(values.shape) < density, values, 0).astype(np.float32)


def test_too_few_stored_ppr_neighbours_are_refused_with_the_remedy(bundle: Bundle, tmp_path: Path) -> None:
    spec = spec_for(bundle, tmp_path, anchors={"num_local": 5})
    with pytest.raises(ArtifactError, match="--top-k 5"):
        run(spec)
    assert not Path(spec["work"]).exists()


def test_an_objective_without_anchors_reads_no_ppr_rows(bundle: Bundle, tmp_path: Path) -> None:
    spec = spec_for(bundle, tmp_path, anchors={"num_local": 5, "num_global": 40})
    spec["settings"]["objective"] = "cca_ssg"
    recorder = Recorder()
    with_rows = run(spec, recorder)
    assert recorder.of("warning") == []
    shutil.rmtree(bundle.path / "ppr")
    shutil.rmtree(bundle.path / "degree_weights")
    assert run(spec) == with_rows
    again = spec_for(bundle, tmp_path / "again", anchors={"num_local": 5, "num_global": 40})
    again["settings"]["objective"] = "cca_ssg"
    run(again)
    assert np.array_equal(vectors(again), vectors(spec))
    curve = EmbeddingSet(spec["out"]).manifest["training"]["losses"]
    assert [set(point) for point in curve] == [
        {"epoch", "step", "seconds", "loss", "loss_invariance", "loss_decorrelation"}
    ] * 4


def test_half_hop_is_refused_where_the_graph_is_too_large_for_a_full_batch(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.settings.running.FULL_BATCH_NODES", 39)
    spec = spec_for(bundle, tmp_path, augment={"half_hop": 0.5}, batch={"mode": "auto"})
    with pytest.raises(UsageError, match="Half-Hop") as error:
        run(spec)
    assert "40 nodes" in error.value.given
    assert not Path(spec["work"]).exists()


def test_what_is_unusual_is_a_warning(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "data", features=np.zeros((40, 0), np.float32))
    recorder = Recorder()
    run(spec_for(bundle, tmp_path, anchors={"num_global": 40}), recorder)
    codes = [line["code"] for line in recorder.of("warning")]
    assert codes == ["anchors_are_all_nodes", "features_from_structure"]


def test_an_interrupted_run_goes_on_and_ends_as_the_undisturbed(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = spec_for(bundle, tmp_path / "straight")
    run(straight)
    broken = spec_for(bundle, tmp_path / "broken")
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", died_after(3))
        with pytest.raises(KeyboardInterrupt):
            run(broken)
    started = []
    really_run = loop.run
    monkeypatch.setattr(loop, "run", lambda job, context: (started.append(job.resume), really_run(job, context)))
    run(broken)
    assert [path.name for path in started] == ["step-00000002"]
    assert np.array_equal(vectors(broken), vectors(straight))


def test_a_run_may_go_on_with_other_means_of_reading_features(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is held in memory and by how many threads rows are read decides nothing that is trained."""
    mini = {"mode": "mini", "size": 16, "fan_out": [3, 3]}
    straight = spec_for(bundle, tmp_path / "straight", batch=mini)
    run(straight)
    folder = tmp_path / "broken"
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", died_after(2))
        with pytest.raises(KeyboardInterrupt):
            run(spec_for(bundle, folder, batch=mini))
    recorder = Recorder()
    other = {"batch": mini | {"feature_cache_gib": 500 / 2**30}, "features": {"read_threads": 3}}
    goes_on = spec_for(bundle, folder, **other)
    assert run(goes_on, recorder)["training"]["steps"] == 12
    told = [line["values"] for line in recorder.of("metrics")]
    assert [line["step"] for line in recorder.of("metrics")] == [9, 12]
    assert all(0 < values["feature_cache_hits"] < 1 for values in told)
    assert np.array_equal(vectors(goes_on), vectors(straight))


def died_after(epochs: int) -> Callable[..., Path]:
    """Saves a checkpoint as ever, up to one of so many epochs."""
    saved = checkpoint.save

    def save(work: Path, model: Any, optimizer: Any, progress: checkpoint.Progress, *rest: Any) -> Path:
        if progress.epoch > epochs:
            raise KeyboardInterrupt
        return saved(work, model, optimizer, progress, *rest)

    return save


def test_how_a_run_is_kept_and_copied_makes_it_no_other(bundle: Bundle, tmp_path: Path) -> None:
    spec = spec_for(bundle, tmp_path) | {"logs": str(tmp_path / "logs")}
    plain = run(spec)
    assert plain["training"]["health"] == {"state": "healthy", "reason": None}
    spec["settings"]["run"] = {**spec["settings"]["run"], "keep_checkpoints": 5, "tensorboard": True}
    assert run(spec) == plain, "it is there already"
    again = {**spec, "out": str(tmp_path / "again"), "work": str(tmp_path / "again-work")}
    assert run(again)["content_hash"] == plain["content_hash"]
    assert len(list((tmp_path / "logs" / "tensorboard").iterdir())) == 1


def test_checkpoints_are_kept_by_number_and_not_by_name(tmp_path: Path) -> None:
    """Step 100,000,000 has a digit more than the one before it."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    for steps in (99_999_900, 99_999_950, 100_000_000, 100_000_050):
        checkpoint.save(tmp_path, model, optimizer, checkpoint.Progress("cpu", steps=steps), "print")  # type: ignore[arg-type]
        checkpoint.drop(tmp_path, 2, None)
    newest = checkpoint.newest(tmp_path, "print")
    assert newest is not None
    assert checkpoint.progress_of(newest).steps == 100_000_050
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"step-100000000", "step-100000050"}


def test_checkpoints_of_other_settings_are_not_continued(bundle: Bundle, tmp_path: Path) -> None:
    straight = spec_for(bundle, tmp_path / "straight", run={"epochs": 3, "seed": 5})
    run(straight)
    shared = tmp_path / "shared"
    run(spec_for(bundle, shared, run={"epochs": 4, "snapshot_every": 1}))
    second = spec_for(bundle, shared, run={"epochs": 3, "seed": 5}) | {"out": str(shared / "second")}
    recorder = Recorder()
    run(second, recorder)
    [told] = recorder.of("warning")
    assert told["code"] == "discarded"
    assert f"2 checkpoints of a run on other data or settings are removed from {shared / 'work'}" == told["message"]
    assert np.array_equal(vectors(second), vectors(straight))
    assert not (shared / "second" / "snapshots").exists()


def test_more_batches_to_accumulate_than_nodes_are_refused(bundle: Bundle, tmp_path: Path) -> None:
    batch = {"mode": "mini", "size": 10, "fan_out": [3, 3]}
    spec = spec_for(bundle, tmp_path, batch=batch, optimizer={"accumulate": 41})
    with pytest.raises(UsageError, match="nodes") as error:
        run(spec)
    assert error.value.pointer == "/settings/optimizer/accumulate"
    assert "at most 40" in str(error.value.expected)
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    ("number", "accumulate"), [(signal.SIGTERM, 2), pytest.param(signal.SIGINT, 1, marks=pytest.mark.slow)]
)
def test_a_signal_ends_the_process_with_130_and_a_checkpoint_that_the_next_goes_on_from(
    bundle: Bundle,
    tmp_path: Path,
    spawn: Callable[..., subprocess.Popen[Any]],
    number: signal.Signals,
    accumulate: int,
) -> None:
    """No checkpoint is due: that of the signal is the only one."""
    parts: dict[str, dict] = {
        "batch": {"mode": "mini", "size": 10, "fan_out": [3, 3]},
        "optimizer": {"accumulate": accumulate},
        "run": {"epochs": 60, "checkpoint_every": 60},
    }
    spec, events = spec_for(bundle, tmp_path, **parts), tmp_path / "events"

    def started(spec: dict[str, Any]) -> subprocess.Popen[Any]:
        file = tmp_path / "spec.json"
        file.write_text(json.dumps(spec))
        command = [sys.executable, "-m", "trainer", "train", str(file)]
        # Threads decide in which order sums are rounded.
        environment = os.environ | {"RGRL_EVENTS": str(events), "OMP_NUM_THREADS": "1"}
        return spawn(command, env=environment, stderr=subprocess.PIPE, text=True)

    process = started(spec)
    until = time.monotonic() + 120
    while not (events.exists() and "metrics" in events.read_text()) and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    last = json.loads(events.read_text().splitlines()[-1])
    assert last["error"]["code"] == "interrupted"
    [kept] = (tmp_path / "work" / "checkpoints").iterdir()
    done = checkpoint.progress_of(kept).steps
    assert 0 < done < 240
    assert done % accumulate == 0
    assert f"from step {done}" in last["error"]["remedy"]
    assert not (tmp_path / "embeddings").exists()
    assert started(spec).wait(timeout=120) == 0
    assert '"code": "resumed"' in events.read_text()
    straight = spec_for(bundle, tmp_path / "straight", **parts)
    assert started(straight).wait(timeout=120) == 0
    assert np.array_equal(vectors(spec), vectors(straight))


def test_a_second_signal_is_not_kept_and_one_that_nobody_asked_for_comes_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = {number: signal.signal(number, stage._interrupt) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with pytest.raises(Interrupted, match="SIGTERM"), stage.interrupts_kept() as asked:
            assert asked() is None
            signal.raise_signal(signal.SIGTERM)
            assert isinstance(asked(), Interrupted)
        with pytest.raises(Interrupted, match="SIGINT"), stage.interrupts_kept():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
            pytest.fail("not raised")
        assert signal.getsignal(signal.SIGTERM) is stage._interrupt
        monkeypatch.setattr(stage, "_interrupt", None)
        with stage.interrupts_kept() as asked, pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_run_that_stopped_early_is_not_trained_again(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = {"rule": "plateau", "window": 1, "tolerance": 1.0, "patience": 1}
    spec = spec_for(bundle, tmp_path, run={"epochs": 40, "stop": stop})
    # The second window of one epoch moves by the whole range, and so by no more than it.
    training = run(spec)["training"]
    assert (training["epochs"], training["stopped_early"]) == (2, True)
    shutil.rmtree(spec["out"])
    monkeypatch.setattr("trainer.train.launch", lambda *_: pytest.fail("trained"))
    assert run(spec)["training"] == training
