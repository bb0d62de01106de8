"""Arrays on disk: of a known shape, or growing at their end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

__all__ = ["ArrayFile", "mapped_npy", "read_only"]

_HEADER_BYTES = 128


def mapped_npy(path: Path, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """A new ``.npy`` file, mapped for writing; one of no entries cannot be mapped and is only written.

    Its room is taken at once: ``OSError`` when the disk has too little, where writing into a hole would end in SIGBUS.
    """
    if 0 in shape:
        empty = np.empty(shape, dtype=dtype)
        np.save(path, empty)
        return empty
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape)
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A plain view that cannot be written: memory-mapped or not, numba's kernels then see one type."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


class ArrayFile:
    """Raw numbers, or an ``.npy`` file whose header tells the length once it is finished."""

    def __init__(self, path: Path, dtype: npt.DTypeLike, length: int = 0, *, npy: bool = False) -> None:
        """Open ``path`` to append after its first ``length`` numbers; what an earlier process wrote past them goes."""
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self._path, self._length, self._offset = path, length, _HEADER_BYTES if npy else 0
        self._file: IO[bytes] = path.open("r+b" if path.exists() else "w+b")
        self._file.truncate(self._offset + length * self.dtype.itemsize)
        self._file.seek(0, os.SEEK_END)

    def __len__(self) -> int:
        return self._length

    def append(self, values: npt.NDArray[Any]) -> None:
        """Write values of this dtype after the last."""
        self._file.write(np.ascontiguousarray(values, dtype=self.dtype).data)
        self._length += len(values)

    def flush(self) -> None:
        """Hand everything to the operating system: it outlives this process."""
        self._file.flush()

    def array(self) -> npt.NDArray[Any]:
        """What is written so far, memory-mapped for reading."""
        self.flush()
        if self._length == 0:
            return np.empty(0, dtype=self.dtype)
        return np.memmap(self._path, dtype=self.dtype, mode="r", offset=self._offset, shape=(self._length,))

    def finish(self) -> None:
        """Write the header of an ``.npy`` file: only now it can be read as one."""
        if self._offset:
            self._file.seek(0)
            self._file.write(_header(self.dtype, self._length))
            self._file.seek(0, os.SEEK_END)
        self._file.flush()

    def close(self) -> None:
        """Close the file, finished or not."""
        self._file.close()

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _header(dtype: np.dtype[Any], length: int) -> bytes:
    """Format 1.0 of NumPy's documentation: magic, version, length of the rest, a dictionary, spaces, a line end."""
    told = f"{{'descr': {dtype.str!r}, 'fortran_order': False, 'shape': ({length},), }}"
    rest = _HEADER_BYTES - 10
    return b"\x93NUMPY\x01\x00" + rest.to_bytes(2, "little") + told.ljust(rest - 1).encode("latin1") + b"\n"
