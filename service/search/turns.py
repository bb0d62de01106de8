"""Searches take turns: their answers are large, and more of them at a time than cores make each slower."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from service.errors import BusyError

__all__ = ["Turns"]


class Turns:
    """``at_once`` holders at a time; another waits ``wait_s`` seconds, then it is told to come again."""

    def __init__(self, at_once: int, wait_s: float) -> None:
        self._places = threading.BoundedSemaphore(at_once)
        self._at_once, self._wait_s = at_once, wait_s

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Hold a place while inside; ``BusyError`` when none becomes free in time."""
        if not self._places.acquire(timeout=self._wait_s):
            raise BusyError(
                "the server is busy with other searches",
                expected=f"at most {self._at_once} searches at a time (setting max_searches)",
                remedy="send the request again in a moment, with fewer queries or a smaller k",
            )
        try:
            yield
        finally:
            self._places.release()
