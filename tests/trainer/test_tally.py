from concurrent.futures import ThreadPoolExecutor

import pytest

from trainer.tally import Tally


def test_what_threads_add_is_taken_once() -> None:
    tally = Tally()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: [tally.add("even" if n % 2 == 0 else "odd", 1) for _ in range(500)], range(8)))
    assert tally.taken() == {"even": 2000, "odd": 2000}
    assert tally.taken() == {}


def test_seconds_of_what_fails_are_not_counted() -> None:
    tally = Tally()
    with pytest.raises(ValueError, match="no"), tally.timed("work"):
        raise ValueError("no")
    with tally.timed("rest"):
        pass
    assert set(tally.taken()) == {"rest"}
