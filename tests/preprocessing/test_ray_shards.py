"""Shards under a real Ray: each done once, errors as they are, lost workers replaced, and what cannot fit refused.

And stage ``preprocess`` with workers: the bytes of one process, whatever interrupted them.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ppr_cases import random_adjacency, write_bundle

from preprocessing.artifact import read_manifest
from preprocessing.bundle import PPR, Bundle
from preprocessing.errors import InputError, Interrupted, ResourceError, WorkerLostError
from preprocessing.ppr import preprocess
from preprocessing.ray_cluster import connected
from preprocessing.ray_shards import run_shards
from preprocessing.stage import Emitter

MATRIX = random_adjacency(300, 700, seed=2)
IDS = list(range(300))


@pytest.fixture(scope="module", autouse=True)
def ray_started() -> Iterator[None]:
    with connected():
        yield


def local(work: Callable[..., int], *arguments: object) -> Callable[[int], int]:
    """A work function that Ray pickles by value: its workers do not have the tests on their path."""

    def run(shard: int) -> int:
        return work(shard, *arguments)

    return run


def test_every_shard_once_and_its_own_answer(tmp_path: Path) -> None:
    def work(shard: int, folder: str) -> int:
        Path(folder, str(shard)).touch(exist_ok=False)
        return shard * shard

    shards = [5, 1, 4, 9, 2]
    answers = dict(run_shards(local(work, str(tmp_path)), shards, workers=2, threads=1))
    assert answers == {shard: shard * shard for shard in shards}
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == sorted(shards)


def test_a_partial_of_a_modules_function() -> None:
    assert dict(run_shards(partial(divmod, 17), [5], workers=1, threads=1)) == {5: (3, 2)}


def test_a_shard_whose_worker_is_killed_is_done_again(tmp_path: Path) -> None:
    def work(shard: int, folder: str) -> int:
        first = Path(folder, f"{shard}-tried")
        if shard == 1 and not first.exists():
            first.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return shard

    assert dict(run_shards(local(work, str(tmp_path)), [0, 1, 2], workers=2, threads=1)) == {0: 0, 1: 1, 2: 2}
    assert (tmp_path / "1-tried").exists()


def test_errors_of_the_work() -> None:
    def refuse(shard: int) -> int:
        raise InputError("the shard is no good", given=str(shard))

    with pytest.raises(InputError, match="the shard is no good"):
        list(run_shards(local(refuse), [3], workers=1, threads=1))

    def fail(shard: int) -> int:
        raise ValueError(f"unforeseen {shard}")

    with pytest.raises(WorkerLostError, match="shard 3 failed") as error:
        list(run_shards(local(fail), [3], workers=1, threads=1))
    assert "unforeseen 3" in str(error.value.given)
    assert "continues" in str(error.value.remedy)


def test_more_cores_than_there_are_is_refused_at_once() -> None:
    with pytest.raises(ResourceError) as error:
        list(run_shards(local(abs), [1], workers=10_000, threads=1))
    assert "10000 workers of 1 cores" in str(error.value.given)
    assert error.value.pointer == "/settings/num_workers"


class Counting(Emitter):
    """Notes the shards that are done; ``interrupt`` raises at the first."""

    def __init__(self, interrupt: bool = False) -> None:
        super().__init__("preprocess")
        self.shards: list[int] = []
        self.nodes: list[int] = []
        self._interrupt = interrupt

    def progress(self, done: int, total: int, unit: str) -> None:
        assert done <= total
        if unit == "nodes":
            self.nodes.append(done)

    def metrics(self, step: int, values: Any) -> None:
        assert 0 < values["exact_share"] <= 1
        self.shards.append(step)
        if self._interrupt:
            raise Interrupted("interrupted by a test")


def run(bundle: Bundle, emitter: Emitter, previous: dict[str, Any] | None = None, **settings: Any) -> Any:
    settings = {"ppr": {"top_k": 4}, "shard_rows": 70, **settings}
    return preprocess({"bundle": str(bundle.path), "settings": settings, "previous": previous}, emitter)["ppr"]


def files(bundle: Bundle) -> dict[str, str]:
    return dict(read_manifest(bundle.path / "ppr", PPR)["files"])


def test_workers_write_the_bytes_of_one_process_and_go_on_after_an_interruption(tmp_path: Path) -> None:
    here, there = (write_bundle(tmp_path / name, MATRIX, ids=IDS) for name in ("here", "there"))
    whole = run(here, Emitter("preprocess"), threads=2)
    stopped, rest = Counting(interrupt=True), Counting()
    with pytest.raises(Interrupted):
        run(there, stopped, num_workers=2, threads=1)
    partial = there.path / ".ppr.partial"
    finished = {part.name: part.stat().st_ino for part in partial.glob("part-*.parquet")}
    assert len(stopped.shards) == 1 <= len(finished) < 5
    assert run(there, rest, num_workers=2, threads=1) == whole
    after = {part.name: part.stat().st_ino for part in (there.path / "ppr").glob("part-*.parquet")}
    assert {name: after[name] for name in finished} == finished
    assert len(rest.shards) == 5 - len(finished)
    assert rest.nodes[-1] == 300
    assert rest.nodes == sorted(rest.nodes)
    assert files(here) == files(there)
    one_less = MATRIX.tolil()
    [one, *_], [other, *_] = MATRIX.nonzero()
    one_less[one, other] = one_less[other, one] = 0
    changed = [write_bundle(tmp_path / name, one_less.tocsr(), ids=IDS) for name in ("changed", "changed there")]
    previous = {"bundle": str(here.path), "tolerance": 0.01}
    counts = [
        run(bundle, Emitter("preprocess"), previous, num_workers=n) for n, bundle in zip((0, 2), changed, strict=True)
    ]
    assert counts[0] == counts[1]
    assert 0 < counts[0]["previous"]["kept"] < 300
    assert files(changed[0]) == files(changed[1])


def test_a_cluster_that_is_too_small_is_refused(tmp_path: Path) -> None:
    bundle, emitter = write_bundle(tmp_path / "bundle", MATRIX), Counting()
    with pytest.raises(ResourceError, match="too small") as error:
        run(bundle, emitter, num_workers=4096)
    assert "4096 workers of 1 cores" in str(error.value.given)
    assert error.value.pointer == "/settings/num_workers"
    assert emitter.shards == []
    assert not (bundle.path / "ppr").exists()


def test_a_cluster_that_does_not_answer_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise ConnectionError("no route")

    silent = SimpleNamespace(is_initialized=lambda: False, init=refuse, shutdown=lambda: None)
    monkeypatch.setitem(sys.modules, "ray", silent)
    monkeypatch.setenv("RAY_ADDRESS", "10.255.255.1:6379")
    with pytest.raises(ResourceError, match="does not answer") as raised, connected():
        pass
    assert raised.value.given == "RAY_ADDRESS=10.255.255.1:6379"
