"""Prefixed identifiers that sort by time of creation."""

from __future__ import annotations

import secrets
import threading
import time

__all__ = ["new_id"]

_lock = threading.Lock()
_last = 0


def new_id(prefix: str) -> str:
    """``<prefix>_`` and a UUIDv7 (RFC 9562) in hex; later calls in one process sort after earlier ones."""
    global _last
    moment = time.time_ns() // 1_000_000
    fresh = (moment << 74) | secrets.randbits(74)
    with _lock:
        _last = value = max(fresh, _last + 1)
    high, low = value >> 62, value & (2**62 - 1)
    milliseconds, random_a = high >> 12, high & 0xFFF
    return f"{prefix}_{(milliseconds << 80) | (0x7 << 76) | (random_a << 64) | (0b10 << 62) | low:032x}"
