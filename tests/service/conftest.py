"""The databases that the store's tests run on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from postgres_server import PostgresServer, running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server
