from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from preprocessing.prefetch import ahead


def test_the_next_is_made_while_one_is_used_and_no_more() -> None:
    made: list[int] = []
    second_made = threading.Event()

    def numbers() -> Iterator[int]:
        for number in range(5):
            made.append(number)
            if number == 1:
                second_made.set()
            yield number

    with closing(ahead(numbers())) as items:
        assert next(items) == 0
        assert second_made.wait(10)
        assert made == [0, 1]
        assert list(items) == [1, 2, 3, 4]
    assert list(ahead(iter(()))) == []


def test_what_fails_fails_in_its_turn() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise ValueError("two")

    items = ahead(failing())
    assert next(items) == 1
    with pytest.raises(ValueError, match="two"):
        next(items)
