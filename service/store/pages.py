"""Keyset pages, newest first: the cursor is the last id seen, so it holds under every filter and while rows arrive."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, TypeVar

from sqlalchemy import Column, Connection, Row, Select

from preprocessing.errors import UsageError
from service.store.rows import Page

__all__ = ["MAX_LIMIT", "page"]

MAX_LIMIT = 200
_ID = re.compile(r"[a-z]+_[0-9A-Za-z_]+")

Item = TypeVar("Item")


def page(
    connection: Connection, query: Select[Any], key: Column[str], limit: int, cursor: str | None
) -> Page[Row[Any]]:
    """At most ``limit`` rows of ``query`` after ``cursor``, by descending ``key``."""
    if cursor is not None:
        query = query.where(key < _decode(cursor))
    rows = list(connection.execute(query.order_by(key.desc()).limit(min(limit, MAX_LIMIT) + 1)))
    shown = rows[: min(limit, MAX_LIMIT)]
    more = len(rows) > len(shown)
    return Page(shown, _encode(getattr(shown[-1], key.name)) if more else None)


def _encode(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def _decode(cursor: str) -> str:
    try:
        key = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)).decode("ascii")
    except (UnicodeError, binascii.Error):
        key = ""
    if not _ID.fullmatch(key):
        raise UsageError(
            "this is no cursor of ours", expected="the next_cursor of an earlier page", pointer="query/cursor"
        )
    return key
