"""External ids and their rows.

Ids are kept ascending (integers by value, strings by their UTF-8 bytes) in memory-mapped files, so a lookup is a binary
search and opening a map of 10^8 ids costs nothing. Ids 0..N−1 are their own rows.
"""

from __future__ import annotations

import contextlib
import json
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from preprocessing.array_types import Int64Array
from preprocessing.errors import ArtifactError
from preprocessing.stored_array import open_array

__all__ = ["IdKind", "IdMap"]

IdKind = Literal["int64", "string"]

_INT64 = np.iinfo(np.int64)
EXAMPLES, EXAMPLE_LETTERS = 3, 40
# Hashing all ids costs about as much as bisecting a quarter of them (measured on 10^6 strings).
_HASH_FROM_SHARE = 4


class IdMap:
    """A two-way map between external ids and rows 0..N−1."""

    def __init__(self, ids: Int64Array | pa.Array) -> None:
        """``ids`` [N], strictly ascending: an int64 array, or an Arrow ``large_string`` array without nulls."""
        self._integers: Int64Array | None = ids if isinstance(ids, np.ndarray) else None
        self._strings: Any = None if isinstance(ids, np.ndarray) else ids
        self.kind: IdKind = "int64" if isinstance(ids, np.ndarray) else "string"
        self._size = len(ids)
        self.identity = bool(
            self._integers is not None
            and (self._size == 0 or (self._integers[0] == 0 and self._integers[-1] == self._size - 1))
        )

    @classmethod
    def open(cls, directory: Path | str) -> IdMap:
        """The map saved in ``directory``, memory-mapped; ``ArtifactError`` when it is absent or damaged."""
        integers, strings = Path(directory) / "ids.npy", Path(directory) / "ids.arrow"
        try:
            if integers.exists():
                ids = open_array(integers)
                whole = ids.ndim == 1 and ids.dtype == np.int64
            else:
                # One batch, taken as it lies: joining chunks would copy every id into memory.
                ids = pa.ipc.open_file(pa.memory_map(str(strings))).get_batch(0).column("id")
                ids.validate()
                whole = ids.type == pa.large_string() and ids.null_count == 0
        except FileNotFoundError:
            raise ArtifactError(
                "there are no ids here", expected="ids.npy or ids.arrow", where=str(directory)
            ) from None
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            raise ArtifactError(
                f"the ids cannot be read ({error})", remedy="make the artefact again", where=str(directory)
            ) from error
        if not whole:
            raise ArtifactError(
                "the ids cannot be read",
                expected="int64 or string ids",
                remedy="make the artefact again",
                where=str(directory),
            )
        return cls(ids)

    def save(self, directory: Path) -> None:
        """Write ``ids.npy`` or ``ids.arrow`` for ``open``, and ``ids.parquet`` (column ``id``) for everyone else."""
        batch = pa.record_batch({"id": self.column()})
        pq.write_table(pa.Table.from_batches([batch]), directory / "ids.parquet", row_group_size=1 << 20)
        if self._integers is not None:
            np.save(directory / "ids.npy", self._integers)
            return
        with pa.OSFile(str(directory / "ids.arrow"), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)

    def __len__(self) -> int:
        return self._size

    def rows(self, ids: Sequence[int | str] | npt.NDArray[Any] | pa.Array) -> Int64Array:
        """Row of each id, −1 where it is unknown.

        A string of digits names an integer id and an integer names the string of its digits; only the canonical
        spelling counts (``"7"``, not ``"07"``), so every id has one name.
        """
        if type(ids) is list and len(ids) == 1:
            row = self.row(ids[0])
            return np.array([-1 if row is None else row], dtype=np.int64)
        if self._integers is not None:
            return self._integer_rows(*_as_integers(ids))
        return self._string_rows(_as_bytes(ids))

    def row(self, external_id: int | str) -> int | None:
        """Row of one id, or None: what ``rows`` says, without its arrays."""
        if self._integers is None:
            wanted: Any = str(external_id).encode("utf-8", "surrogatepass")
            row = bisect_left(range(self._size), wanted, key=self._text)
            return row if row < self._size and self._text(row) == wanted else None
        wanted = _integer(external_id)
        if wanted is None or self.identity:
            return wanted if wanted is not None and 0 <= wanted < self._size else None
        row = int(self._integers.searchsorted(wanted))
        return row if row < self._size and self._integers[row] == wanted else None

    def external(self, rows: npt.NDArray[Any] | Sequence[int]) -> list[str]:
        """External ids of rows, as strings."""
        if self._integers is not None:
            return list(map(str, self._integers[np.asarray(rows, dtype=np.int64)].tolist()))
        names: list[str] = self.column(rows).to_pylist()
        return names

    def column(self, rows: npt.NDArray[Any] | Sequence[int] | None = None) -> pa.Array:
        """Ids of rows (default: all, without a copy) as an Arrow array, ``int64`` or ``large_string``."""
        everything = pa.array(self._integers) if self._integers is not None else self._strings
        if rows is None:
            return everything
        wanted = np.asarray(rows, dtype=np.int64)
        if self._integers is not None:
            return pa.array(self._integers[wanted])
        return everything.take(pa.array(wanted))

    @cached_property
    def _text(self) -> Callable[[int], bytes]:
        """The bytes of a string id by its row."""
        _, starts, data = self._strings.buffers()
        ends = np.frombuffer(starts, dtype=np.int64)[self._strings.offset :]
        everything = memoryview(data or b"")
        return lambda row: bytes(everything[ends[row] : ends[row + 1]])

    def described(self) -> str:
        """What kind of ids these are, with some of them, for who named one that is not there."""
        some = self.external(range(min(EXAMPLES, self._size)))
        if self._integers is not None:
            return f"integers, as {', '.join(some)}"
        return "strings, as " + ", ".join(
            json.dumps(f"{one[:EXAMPLE_LETTERS]}…" if len(one) > EXAMPLE_LETTERS else one, ensure_ascii=False)
            for one in some
        )

    def _integer_rows(self, wanted: Int64Array, valid: npt.NDArray[np.bool_]) -> Int64Array:
        assert self._integers is not None
        if self.identity:
            return np.where(valid & (wanted >= 0) & (wanted < self._size), wanted, -1)
        # Neighbouring searches share cache lines: sorted, a batch is four times as fast (measured on 10^7 ids).
        order = np.argsort(wanted)
        position = np.empty(len(wanted), dtype=np.int64)
        position[order] = np.searchsorted(self._integers, wanted[order])
        found = valid & (position < self._size)
        found[found] = self._integers[position[found]] == wanted[found]
        return np.where(found, position, -1)

    def _string_rows(self, wanted: pa.Array) -> Int64Array:
        if self._size == 0:
            return np.full(len(wanted), -1, dtype=np.int64)
        # Bytes compare as the order of the file does, and take strings that are no UTF-8 as merely unknown.
        known = self._strings.view(pa.large_binary())
        if len(wanted) > self._size // _HASH_FROM_SHARE:
            position = pc.index_in(wanted, value_set=known)
            return np.asarray(pc.fill_null(position, -1)).astype(np.int64)
        low = np.zeros(len(wanted), dtype=np.int64)
        high = np.full(len(wanted), self._size, dtype=np.int64)
        for _ in range(self._size.bit_length()):
            middle = (low + high) // 2
            probe = known.take(pa.array(np.minimum(middle, self._size - 1)))
            below = np.asarray(pc.less(probe, wanted)) & (low < high)
            low = np.where(below, middle + 1, low)
            high = np.where(below, high, middle)
        probe = known.take(pa.array(np.minimum(low, self._size - 1)))
        return np.where(np.asarray(pc.equal(probe, wanted)), low, -1)


def _as_integers(ids: Sequence[int | str] | npt.NDArray[Any] | pa.Array) -> tuple[Int64Array, npt.NDArray[np.bool_]]:
    """Ids as int64, and which of them are integers at all."""
    if isinstance(ids, pa.Array) and pa.types.is_integer(ids.type):
        ids = ids.to_numpy(zero_copy_only=False)
    if isinstance(ids, np.ndarray) and ids.dtype.kind == "i":
        return ids.astype(np.int64, copy=False), np.ones(len(ids), dtype=np.bool_)
    if set(map(type, ids)) == {int}:
        with contextlib.suppress(OverflowError):
            return np.array(ids, dtype=np.int64), np.ones(len(ids), dtype=np.bool_)
    parsed = [_integer(value) for value in (ids.to_pylist() if isinstance(ids, pa.Array) else ids)]
    valid = np.array([value is not None for value in parsed], dtype=np.bool_)
    return np.array([value or 0 for value in parsed], dtype=np.int64), valid


def _integer(value: Any) -> int | None:
    if isinstance(value, str):
        # 20 characters hold every int64; longer digits would be slow to parse.
        if len(value) > 20 or not value.lstrip("-").isdecimal():
            return None
        try:
            number = int(value)
        except ValueError:
            return None
        return number if str(number) == value and _INT64.min <= number <= _INT64.max else None
    number = int(value)
    return number if _INT64.min <= number <= _INT64.max else None


def _as_bytes(ids: Sequence[int | str] | npt.NDArray[Any] | pa.Array) -> pa.Array:
    if isinstance(ids, pa.Array) and pa.types.is_large_string(ids.type):
        return ids.view(pa.large_binary())
    if isinstance(ids, pa.Array) and not pa.types.is_nested(ids.type):
        return ids.cast(pa.large_string()).view(pa.large_binary())
    return pa.array([str(value).encode("utf-8", "surrogatepass") for value in ids], pa.large_binary())
