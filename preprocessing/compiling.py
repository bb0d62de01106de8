"""Says that kernels are being compiled: without a word, the first stages after an installation seem to hang."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event

from preprocessing.stage import COMPILING, Emitter

__all__ = ["compiling_told"]


class _Compilation(event.Listener):
    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._told = False

    def on_start(self, _: Any) -> None:
        """A kernel was not in the cache."""
        if not self._told:
            self._told = True
            self._emitter.warning(
                COMPILING, "compiling kernels, once for this version: a minute or two, over all stages"
            )

    def on_end(self, _: Any) -> None:
        """numba asks for both ends."""


@contextmanager
def compiling_told(emitter: Emitter) -> Iterator[None]:
    """Inside, the first kernel that is compiled and not read from the cache is a warning, ``compiling``."""
    with event.install_listener("numba:compile", _Compilation(emitter)):
        yield
