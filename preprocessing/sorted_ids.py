"""All ids in order, as an ``IdMap`` over flat files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.array_file import ArrayFile
from preprocessing.array_types import Int64Array
from preprocessing.errors import InputError
from preprocessing.id_sort import IdSorter
from preprocessing.ids import IdKind, IdMap
from preprocessing.journal import Journal

__all__ = ["sorted_ids"]

# The error of an id that is in two rows: the id, the first row, the second.
Repeated = Callable[[int | str, int, int], InputError]


def sorted_ids(
    blocks: Callable[[], Iterator[pa.Array]],
    kind: IdKind,
    folder: Path,
    memory: int,
    repeated: Repeated | None = None,
) -> tuple[IdMap, Int64Array]:
    """The map of the distinct ids in ``blocks()``, and the row where each comes first, [N]; both lie in ``folder``.

    With ``repeated`` an id that comes twice is that error. What a killed run left in ``folder`` is gone on from.
    """
    folder.mkdir(exist_ok=True)
    done = Journal(folder / "done.json")
    if not done.state:
        sorter = IdSorter(folder, memory, unique=repeated is None)
        for ids in islice(blocks(), sorter.blocks, None):
            sorter.add(ids)
        done.record(size=_write(sorter, folder, kind, repeated))
    size = done.state["size"]
    order = _mapped(folder / "order", np.int64, size)
    if kind == "int64":
        return IdMap(_mapped(folder / "integers", np.int64, size)), order
    offsets, text = (pa.py_buffer(np.memmap(folder / name, mode="r")) for name in ("offsets", "text"))
    return IdMap(pa.Array.from_buffers(pa.large_string(), size, [None, offsets, text])), order


def _write(sorter: IdSorter, folder: Path, kind: IdKind, repeated: Repeated | None) -> int:
    """Write the distinct ids as flat files; the answer is how many there are."""
    with ExitStack() as stack:

        def file(name: str, dtype: npt.DTypeLike) -> ArrayFile:
            return stack.enter_context(ArrayFile(folder / name, dtype))

        order = file("order", np.int64)
        append = (
            _integers(file("integers", np.int64))
            if kind == "int64"
            else _strings(file("offsets", np.int64), file("text", np.uint8))
        )
        for ids, rows in sorter.merged():
            fresh = np.ones(len(ids), dtype=np.bool_)
            fresh[1:] = np.asarray(pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1)))
            if repeated is not None and not fresh.all():
                at = int(np.argmin(fresh))
                raise repeated(ids[at].as_py(), int(rows[at - 1]), int(rows[at]))
            append(ids.filter(pa.array(fresh)))
            order.append(rows[fresh])
        return len(order)


def _integers(file: ArrayFile) -> Callable[[pa.Array], None]:
    def append(ids: pa.Array) -> None:
        file.append(np.asarray(ids))

    return append


def _strings(offsets: ArrayFile, text: ArrayFile) -> Callable[[pa.Array], None]:
    """Arrow's layout: where each string begins, and where the last one ends; all their bytes."""
    offsets.append(np.zeros(1, dtype=np.int64))

    def append(ids: pa.Array) -> None:
        ends = len(text) + np.cumsum(np.asarray(pc.binary_length(ids)), dtype=np.int64)
        _, starts, data = ids.buffers()
        first = int(np.frombuffer(starts, dtype=np.int64)[ids.offset])
        text.append(np.frombuffer(data, dtype=np.uint8)[first : first + int(ends[-1]) - len(text)])
        offsets.append(ends)

    return append


def _mapped(path: Path, dtype: npt.DTypeLike, size: int) -> npt.NDArray[Any]:
    return np.memmap(path, dtype=np.dtype(dtype), mode="r", shape=(size,))
