"""Numbering the values of a column in the order in which they are first met."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.types as pt

__all__ = ["numbered"]


def numbered(cells: Any, code_of: dict[Any, int]) -> npt.NDArray[np.int32]:
    """The code of every cell of an Arrow array, -1 for a null; values that ``code_of`` has not are added to it."""
    encoded = cells if pt.is_dictionary(cells.type) else cells.dictionary_encode()
    code = [
        -1 if value is None else code_of.setdefault(value, len(code_of)) for value in encoded.dictionary.to_pylist()
    ]
    place = np.asarray(encoded.indices.fill_null(len(code)))
    codes: npt.NDArray[np.int32] = np.array([*code, -1], dtype=np.int32)[place]
    return codes
