"""What the first searches will read, asked for as soon as a server starts."""

from __future__ import annotations

import threading

from service.read_ahead import read_ahead
from service.search.embedding_set import searched_files
from service.settings import ServiceSettings
from service.store import Store

__all__ = ["begin_reading"]


def begin_reading(settings: ServiceSettings) -> threading.Thread | None:
    """Read ahead the sets that aliases name, of the newest as many as are held open.

    A home that is not there yet has none, and is not made here. ``UsageError`` when the store cannot be opened.
    """
    if not settings.home.is_dir():
        return None
    store = Store(settings)
    try:
        paths = store.latest_aliased(settings.open_embeddings)
    finally:
        store.close()
    return read_ahead(file for path in paths for file in searched_files(path))
