"""Things made in several threads come in order, few at a time, with their errors in their turn."""

from __future__ import annotations

import threading
import time

import pytest

from trainer.in_order import in_order


@pytest.mark.parametrize(("threads", "waiting"), [(1, 1), (3, 3), (3, 6), (2, 1)])
def test_order_and_bound(threads: int, waiting: int) -> None:
    lock, started, used, names = threading.Lock(), 0, 0, set()

    def square(place: int) -> int:
        nonlocal started
        with lock:
            started += 1
            assert started <= used + waiting + 1
            names.add(threading.current_thread().name)
        # Later places are done sooner.
        time.sleep((place % 3 == 0) * 0.01)
        return place**2

    found = []
    for place, made in in_order(square, range(20), threads=threads, waiting=waiting):
        found.append((place, made))
        used = place + 1
    assert found == [(place, place**2) for place in range(20)]
    assert len(names) == min(threads, waiting)


def test_an_error_comes_in_its_turn_and_ends_the_threads() -> None:
    def inverse(place: int) -> float:
        return 1 / (place - 2)

    found = []
    with pytest.raises(ZeroDivisionError):
        for place, _ in in_order(inverse, range(100), threads=2, waiting=4):
            found.append(place)
    assert found == [0, 1]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("in-order")]


def test_left_early_what_has_not_begun_is_not_made() -> None:
    made, go = [], threading.Event()

    def slow(place: int) -> int:
        if place > 0:
            go.wait(10)
        made.append(place)
        return place

    things = in_order(slow, range(100), threads=1, waiting=5)
    assert next(things) == (0, 0)
    threading.Timer(0.05, go.set).start()
    things.close()
    assert made in ([0], [0, 1])


def test_nothing_to_make() -> None:
    assert list(in_order(abs, [], threads=2, waiting=2)) == []
