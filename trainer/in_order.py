"""Making things in several threads and handing them on in order."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["in_order"]

Place = TypeVar("Place")
Made = TypeVar("Made")


def in_order(
    make: Callable[[Place], Made], places: Iterable[Place], *, threads: int, waiting: int
) -> Generator[tuple[Place, Made]]:
    """Every place and what ``make`` makes of it, in the order of the places.

    ``waiting`` are being made or done while one is used, no more; as many as ``threads`` keep all of them busy where
    they take alike, twice as many where not. ``make`` runs in the threads, and should hold no interpreter lock for
    long. What it raises is raised here, in its turn.
    """
    coming = iter(places)
    with ThreadPoolExecutor(threads, thread_name_prefix="in-order") as pool:
        futures = deque((place, pool.submit(make, place)) for place in itertools.islice(coming, waiting))
        try:
            while futures:
                place, future = futures.popleft()
                made = future.result()
                futures.extend((place, pool.submit(make, place)) for place in itertools.islice(coming, 1))
                yield place, made
        finally:
            for _, future in futures:
                future.cancel()
