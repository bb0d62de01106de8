"""Opening an array file, whatever has become of it."""

from __future__ import annotations

from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import numpy.typing as npt

from preprocessing.errors import ArtifactError

__all__ = ["open_array"]

# numpy parses a header as Python's source: of a damaged one it raises what the parser does.
_UNREADABLE = (OSError, ValueError, TypeError, SyntaxError, TokenError, OverflowError, EOFError)


def open_array(file: Path, remedy: str = "make the artefact again") -> npt.NDArray[Any]:
    """The array in ``file``, memory-mapped; ``ArtifactError`` when it is absent, damaged, or of another byte order."""
    try:
        array: np.memmap[Any, Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except _UNREADABLE as error:
        raise ArtifactError(f"the array cannot be read ({error})", remedy=remedy, where=str(file)) from error
    # A changed type or shape may describe less than there is.
    if not array.dtype.isnative or array.offset + array.nbytes != file.stat().st_size:
        raise ArtifactError(
            "the array is not as its header says",
            given=f"{array.dtype} {array.shape} in {file.stat().st_size} bytes",
            expected="the machine's byte order, and a file of that size",
            remedy=remedy,
            where=str(file),
        )
    return array
