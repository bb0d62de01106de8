"""Killed at random moments, a run is started again and ends as the one that nobody disturbed."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from training_bundles import make_bundle, settings_document

from preprocessing.bundle import Bundle

pytestmark = pytest.mark.slow

# The stage as its command runs it, but dead at its DIE-th change of a file; the number of changes is left in COUNT.
DYING = """
import os, runpy, signal, sys

changes, alive = 0, True
CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link"}

def count(event, arguments):
    global changes
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    if alive and (event in CHANGES or writes):
        changes += 1
        if changes == int(os.environ["DIE"]):
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(count)
try:
    runpy.run_module("trainer", run_name="__main__")
finally:
    alive = False
    print(changes)
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return make_bundle(tmp_path_factory.mktemp("bundle"), nodes=400, edges=900)


def write_spec(bundle: Bundle, folder: Path, **run: int) -> Path:
    """A run of 12 epochs and 156 steps in mini-batch, with a checkpoint after every epoch."""
    settings = settings_document(
        batch={"mode": "mini", "size": 32, "fan_out": [3, 3]},
        run={"epochs": 12, "checkpoint_every": 1, "snapshot_every": 3, **run},
    )
    folder.mkdir(exist_ok=True)
    spec = {"bundle": str(bundle.path), "out": str(folder / "out"), "work": str(folder / "work"), "settings": settings}
    (folder / "spec.json").write_text(json.dumps(spec))
    return folder / "spec.json"


def dying(spec: Path, die: int) -> tuple[int, int]:
    """The exit code, and the changes of files if it lived."""
    done = subprocess.run(
        [sys.executable, "-c", DYING, "train", str(spec)],
        env=os.environ | {"DIE": str(die)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    return done.returncode, int(done.stdout.split()[-1]) if done.returncode == 0 else 0


def result(spec: Path) -> tuple[np.ndarray, list[Any]]:
    """The vectors, and the losses of all steps; what lies beside them is named in full."""
    out = spec.parent / "out"
    manifest = json.loads((out / "manifest.json").read_text())
    return np.load(out / "vectors.npy"), [point["loss"] for point in manifest["training"]["losses"]]


def same(one: Path, other: Path) -> None:
    """Vectors, losses and the names of the files left are those of the other run."""
    for mine, yours in zip(result(one), result(other), strict=True):
        assert np.array_equal(mine, yours)
    assert left(one) == left(other)


def left(spec: Path) -> list[Path]:
    return sorted(path.relative_to(spec.parent) for path in spec.parent.rglob("*"))


@pytest.mark.timeout(900)
def test_a_run_killed_at_any_change_of_a_file_ends_as_the_undisturbed(bundle: Bundle, tmp_path: Path) -> None:
    """Checkpoints, snapshots, the export and the clearing away after it are all of them changes."""
    straight = write_spec(bundle, tmp_path / "straight")
    code, changes = dying(straight, -1)
    assert code == 0
    assert changes > 100
    moments = random.Random(1)
    deaths = 0
    for chain in range(4):
        spec = write_spec(bundle, tmp_path / f"broken-{chain}")
        # The last two fall late, where the export is.
        limits = [(1, changes), (1, changes // 2), (2, 40), (2, 25), (2, 12)]
        for low, high in limits:
            code, _ = dying(spec, moments.randint(low, high))
            deaths += code != 0
        assert dying(spec, -1)[0] == 0
        same(spec, straight)
    assert deaths >= 12


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("victim", ["worker", "driver"])
def test_a_run_under_ray_killed_at_random_ends_as_the_undisturbed(
    bundle: Bundle, tmp_path: Path, spawn: Callable[..., subprocess.Popen[Any]], victim: str
) -> None:
    straight = write_spec(bundle, tmp_path / "straight", num_workers=1, epochs=200, snapshot_every=50)
    assert spawn([sys.executable, "-m", "trainer", "train", str(straight)]).wait() == 0
    broken = write_spec(bundle, tmp_path / "broken", num_workers=1, epochs=200, snapshot_every=50)
    moments = random.Random(2)
    for _ in range(4):
        stage = spawn([sys.executable, "-m", "trainer", "train", str(broken)], stderr=subprocess.DEVNULL)
        kill(victim, stage, after=moments.uniform(0, 3))
        stage.wait(timeout=300)
    assert spawn([sys.executable, "-m", "trainer", "train", str(broken)]).wait(timeout=300) == 0
    same(broken, straight)


def kill(victim: str, stage: subprocess.Popen[Any], after: float) -> None:
    """Some seconds after the worker came, unless the run ended before."""
    family = psutil.Process(stage.pid)
    while stage.poll() is None and not workers_of(family):
        time.sleep(0.1)
    time.sleep(after)
    if stage.poll() is not None:
        return
    # Without its driver, what Ray started takes a minute to notice.
    victims = workers_of(family) if victim == "worker" else [family, *family.children(recursive=True)]
    for process in victims:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def workers_of(family: psutil.Process) -> list[psutil.Process]:
    workers = []
    for process in family.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "RayTrainWorker" in " ".join(process.cmdline()):
                workers.append(process)
    return workers
