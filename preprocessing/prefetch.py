"""Making the next thing while this one is used."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["ahead"]

T = TypeVar("T")


def ahead(items: Iterator[T]) -> Generator[T]:
    """The same items in the same order, each made in another thread while the one before it is used.

    One item waits at most. What making one raises is raised here, in its turn.
    """
    end = object()
    with ThreadPoolExecutor(max_workers=1) as thread:
        coming = thread.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = thread.submit(next, items, end)
            yield item  # type: ignore[misc]
