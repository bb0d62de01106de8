"""Bytes as people read them."""

from __future__ import annotations

__all__ = ["size_text"]

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def size_text(count: int) -> str:
    """In the largest unit that there is one of, to two decimals."""
    power = min(max(0, count.bit_length() - 1) // 10, len(_UNITS) - 1)
    number = f"{count / 1024**power:,.2f}".rstrip("0").rstrip(".")
    return f"{number} {_UNITS[power]}"
