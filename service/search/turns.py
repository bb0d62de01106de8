"""Searches and exports take turns: their answers are large, and more of them at a time make each slower."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

from service.errors import BusyError

__all__ = ["Turns"]


class Turns:
    """``at_once`` holders at a time; another waits ``wait_s`` seconds, then it is told to come again."""

    def __init__(
        self,
        at_once: int,
        wait_s: float,
        what: str = "searches",
        setting: str = "max_searches",
        remedy: str = "send the request again in a moment, with fewer queries or a smaller k",
    ) -> None:
        """``what`` takes turns, how many by which ``setting``, and the ``remedy`` for who is turned away."""
        self._places = threading.BoundedSemaphore(at_once)
        self._at_once, self._wait_s = at_once, wait_s
        self._what, self._setting, self._remedy = what, setting, remedy

    def turn(self, *, wait: bool = True) -> AbstractContextManager[None]:
        """Hold a place from now to the end of the ``with``; ``BusyError`` when none becomes free in time, or at once
        where not to ``wait``.
        """
        if not self._places.acquire(timeout=self._wait_s if wait else 0):
            raise BusyError(
                f"the server is busy with other {self._what}",
                expected=f"at most {self._at_once} {self._what} at a time (setting {self._setting})",
                remedy=self._remedy,
            )
        return _Place(self._places)


class _Place(AbstractContextManager[None]):
    """Given back at the end."""

    def __init__(self, places: threading.Semaphore) -> None:
        self._places = places

    def __exit__(self, *error: object) -> None:
        self._places.release()
