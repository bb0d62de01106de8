"""What to say of a column that a table has not: which there are, those that may be meant first."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches

import pyarrow as pa

__all__ = ["is_feature_cell", "is_feature_type", "is_number", "listed", "meant_columns"]

TOLD_COLUMNS = 20


def meant_columns(name: str, columns: Sequence[str], features: Collection[str]) -> list[str]:
    """All of ``columns``: those spelled like ``name``, then those that are not among ``features``, then the rest."""
    others = [column for column in columns if column not in features]
    return list(dict.fromkeys([*get_close_matches(name, columns), *others, *columns]))


def listed(columns: Sequence[str]) -> str:
    """As a message lists them, no more than anybody reads."""
    left = len(columns) - TOLD_COLUMNS
    return ", ".join(columns[:TOLD_COLUMNS]) + (f", … and {left} more" if left > 0 else "")


def is_feature_type(kind: pa.DataType) -> bool:
    """Whether a column of that type most likely holds features: fractions, or several values a row."""
    return bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_nested(kind))


def is_feature_cell(cell: str) -> bool:
    """The same of a CSV's column, by a cell of it: a number that is spelled as no whole one."""
    return is_number(cell) and not cell.strip().lstrip("+-").isdigit()


def is_number(cell: str) -> bool:
    """Whether the cell of a CSV can be read as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True
