"""Shards under a real Ray: each done once, errors as they are, lost workers replaced, and what cannot fit refused."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from preprocessing.errors import InputError, ResourceError, WorkerLostError
from preprocessing.ray_cluster import connected
from preprocessing.ray_shards import run_shards


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
