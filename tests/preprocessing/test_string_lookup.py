from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocessing.string_lookup import StringLookup

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12) | st.builds(
    lambda number: f"a long common prefix {number}", st.integers(0, 300)
)


@given(known=st.sets(TEXTS), wanted=st.lists(TEXTS, max_size=40), cut=st.integers(0, 3))
def test_rows_are_those_of_a_dictionary(known: set[str], wanted: list[str], cut: int) -> None:
    ascending = sorted(known, key=str.encode)
    wanted += ascending[::2]
    row_of = {text: row for row, text in enumerate(ascending)}
    # A slice, as batches are, has its first string not at the first byte.
    part = pa.array(wanted, pa.large_string()).slice(cut)
    rows = StringLookup(pa.array(ascending, pa.large_string())).rows(part)
    assert rows.tolist() == [row_of.get(text, -1) for text in wanted[cut:]]


@pytest.mark.parametrize("prefix", ["", "https://example.org/user/"])
def test_many_ids_in_any_order(prefix: str) -> None:
    rng = np.random.default_rng(0)
    numbers = rng.choice(10**7, 20_000, replace=False)
    ascending = sorted(f"{prefix}{number}" for number in numbers[:10_000])
    wanted = [f"{prefix}{number}" for number in rng.permutation(numbers)]
    row_of = {text: row for row, text in enumerate(ascending)}
    lookup = StringLookup(pa.array(ascending, pa.large_string()))
    rows = lookup.rows(pa.array(wanted, pa.large_string()))
    assert rows.tolist() == [row_of.get(text, -1) for text in wanted]
