"""Bytes as people read them."""

from __future__ import annotations

import pytest

from service.sizes import size_text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1000, "1,000 bytes"),
        (1024, "1 KiB"),
        (1536 * 2**20, "1.5 GiB"),
        (2**30 - 1, "1,024 MiB"),
        (200 * 2**30, "200 GiB"),
        (2**62, "4,194,304 TiB"),
    ],
)
def test_a_size_is_told_in_the_largest_unit_that_there_is_one_of(count: int, text: str) -> None:
    assert size_text(count) == text
