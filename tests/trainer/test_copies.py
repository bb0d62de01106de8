import struct
import threading
from pathlib import Path
from typing import Any

import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog
from test_training import checkpoint_of, equal, train
from training_bundles import Recorder, make_bundle

from preprocessing.bundle import Bundle
from preprocessing.errors import ResourceError
from trainer import copies as module
from trainer import tensorboard
from trainer.copies import Copies
from trainer.settings import RunSettings, check_extras


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return make_bundle(tmp_path_factory.mktemp("copies"))


def events(folder: Path) -> list[list[Event]]:
    """Of every file, records by TensorFlow's format: length, its checksum, data, its checksum."""
    found = []
    for path in sorted(folder.glob("*tfevents*"), key=lambda path: path.stat().st_mtime_ns):
        data, records = path.read_bytes(), []
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            records.append(Event.FromString(data[12 : 12 + length]))
            data = data[16 + length :]
        found.append(records)
    return found


def scalars(records: list[Event]) -> dict[int, dict[str, float]]:
    return {r.step: {v.tag: v.simple_value for v in r.summary.value} for r in records if r.HasField("summary")}


def test_tensorboard_gets_every_report_and_a_resumed_run_takes_over(bundle: Bundle, tmp_path: Path) -> None:
    recorder, run = Recorder(), {"epochs": 4, "checkpoint_every": 2, "tensorboard": True}
    whole = train(bundle, tmp_path, None, recorder, run=run)
    [records] = events(tmp_path / "tensorboard")
    expected = {line["step"]: line["values"] for line in recorder.of("metrics")}
    assert scalars(records).keys() == expected.keys() == {1, 2, 3, 4}
    for step, values in scalars(records).items():
        assert values == pytest.approx(expected[step], rel=1e-6)
    assert equal(train(bundle, tmp_path, checkpoint_of(tmp_path, 2), run=run), whole)
    later = next(records for records in events(tmp_path / "tensorboard") if scalars(records).keys() == {3, 4})
    assert [(r.step, r.session_log.status) for r in later if r.HasField("session_log")] == [(3, SessionLog.START)]
    assert recorder.of("warning") == []


def test_a_copy_that_fails_is_one_warning_and_the_run_the_same(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = train(bundle, tmp_path / "plain")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tensorboard.TensorBoard, "write", full)
    recorder = Recorder()
    run = {"epochs": 4, "checkpoint_every": 2, "tensorboard": True}
    assert equal(train(bundle, tmp_path / "copied", None, recorder, run=run), plain)
    [warning] = recorder.of("warning")
    assert warning["code"] == "tensorboard_failed"
    assert "No space left on device" in warning["message"]


class Stuck:
    """A sink that never comes back from its first report."""

    def __init__(self, came: threading.Event, released: threading.Event) -> None:
        self.came, self.released = came, released

    def write(self, _report: module.Report) -> None:
        self.came.set()
        self.released.wait()

    def close(self, *, ended: bool) -> None: ...


class Kept:
    def __init__(self, into: list[Any]) -> None:
        self.into = into

    def write(self, report: module.Report) -> None:
        self.into.append((report[0], report[2]))

    def close(self, *, ended: bool) -> None:
        self.into.append(ended)


def test_a_copy_that_hangs_is_not_waited_for_and_holds_no_other_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    monkeypatch.setattr(module, "CLOSE_S", 0.05)
    came, released = threading.Event(), threading.Event()
    kept: list[Any] = []
    warnings: list[tuple[str, str]] = []
    copies = Copies(
        {"stuck": lambda: Stuck(came, released), "kept": lambda: Kept(kept)}, lambda *told: warnings.append(told)
    )
    copies.add(0, {"loss": 1.0})
    assert came.wait(20)
    for step in range(1, 7):
        while len(kept) < step:
            threading.Event().wait(0.001)
        copies.add(step, {"loss": 1.0})
    assert [code for code, _ in warnings] == ["stuck_failed"]
    monkeypatch.setattr(module, "CLOSE_S", 20.0)
    copies.close(ended=False)
    released.set()
    assert kept == [*((step, {"loss": 1.0}) for step in range(7)), False]
    assert [code for code, _ in warnings] == ["stuck_failed"]


def test_a_copy_that_does_not_end_is_told_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_S", 0.05)
    came, released = threading.Event(), threading.Event()
    warnings: list[tuple[str, str]] = []
    copies = Copies({"stuck": lambda: Stuck(came, released)}, lambda *told: warnings.append(told))
    copies.add(0, {"loss": 1.0})
    copies.close(ended=True)
    released.set()
    assert [code for code, _ in warnings] == ["stuck_failed"]


def test_a_missing_package_is_refused_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.settings.extras.find_spec", lambda _: None)
    check_extras(RunSettings(), "/run")
    with pytest.raises(ResourceError) as refusal:
        check_extras(RunSettings(mlflow=True), "/run")
    assert refusal.value.pointer == "/run/mlflow"
    assert "rgrl[mlflow]" in str(refusal.value.remedy)
