"""Sums by name that several threads add to: what a run tells of the steps it makes ahead."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Tally"]


class Tally:
    """Counts and seconds since they were last taken."""

    def __init__(self) -> None:
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._lock = threading.Lock()

    def add(self, name: str, value: float) -> None:
        """To the sum of that name."""
        with self._lock:
            self._sums[name] += value

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """The seconds of what is done inside."""
        began = time.perf_counter()
        yield
        self.add(name, time.perf_counter() - began)

    def taken(self) -> dict[str, float]:
        """The sums, which begin anew."""
        with self._lock:
            sums, self._sums = dict(self._sums), defaultdict(float)
        return sums
