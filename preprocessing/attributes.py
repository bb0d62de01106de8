"""Attributes of nodes: columns of the node table that queries filter by; training never reads them.

``attributes/<n>.npy`` holds column n of the manifest's ``attributes`` in row order, to be mapped: ``integer`` int64
(−2^63 where there is none), ``number`` float64 (NaN where there is none), ``boolean`` int8 (−1), ``string`` int32 codes
(−1) into ``attributes/<n>.arrow``, the distinct strings, ascending by their UTF-8 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from preprocessing.array_file import mapped_npy
from preprocessing.errors import ArtifactError
from preprocessing.stored_array import open_array

__all__ = [
    "NO_INTEGER",
    "Attribute",
    "AttributeType",
    "in_order",
    "is_none",
    "open_attribute",
    "placed_attribute",
    "value_dtype",
    "write_attributes",
]

AttributeType = Literal["integer", "number", "boolean", "string"]

_BLOCK_ROWS = 1 << 20
NO_INTEGER = int(np.iinfo(np.int64).min)
_DTYPES: Mapping[AttributeType, npt.DTypeLike] = {
    "integer": np.int64,
    "number": np.float64,
    "boolean": np.int8,
    "string": np.int32,
}
_NONE: Mapping[AttributeType, float] = {"integer": NO_INTEGER, "number": np.nan, "boolean": -1, "string": -1}
_FOLDER = "attributes"


@dataclass(frozen=True)
class Attribute:
    """``values`` [N] by row, mapped; ``strings`` are what codes stand for, of the type ``string`` alone."""

    name: str
    type: AttributeType
    values: npt.NDArray[Any]
    strings: Any = None


def placed_attribute(parts: Sequence[tuple[Attribute, npt.NDArray[Any]]], nodes: int, file: Path) -> Attribute:
    """Attributes of one name and type put together, each part's row i at its ``rows[i]``, in ``file``."""
    one = parts[0][0]
    values = mapped_npy(file, _DTYPES[one.type], (nodes,))
    code_of: dict[str, int] = {}
    for part, rows in parts:
        place = None
        if one.type == "string":
            names = part.strings.to_pylist()
            place = np.array([*(code_of.setdefault(text, len(code_of)) for text in names), -1], dtype=np.int32)
        for span in _spans(len(rows)):
            block = part.values[span]
            values[rows[span]] = block if place is None else place[block]
    return in_order(one.name, values, code_of) if one.type == "string" else Attribute(one.name, one.type, values)


def write_attributes(attributes: Sequence[Attribute], path: Path) -> dict[str, Any]:
    """Write the bundle's ``attributes/``; the answer is their entry in the manifest, by name."""
    entry = {}
    for number, attribute in enumerate(attributes):
        file = path / _FOLDER / f"{number}.npy"
        file.parent.mkdir(exist_ok=True)
        values = mapped_npy(file, _DTYPES[attribute.type], attribute.values.shape)
        absent = 0
        for span in _spans(len(values)):
            block = np.asarray(attribute.values[span])
            values[span] = block
            absent += int(np.count_nonzero(is_none(block, attribute.type)))
        entry[attribute.name] = {"type": attribute.type, "file": f"{_FOLDER}/{number}.npy", "nulls": absent}
        if attribute.type == "string":
            batch = pa.record_batch({"string": attribute.strings})
            with (
                pa.OSFile(str(file.with_suffix(".arrow")), "wb") as sink,
                pa.ipc.new_file(sink, batch.schema) as writer,
            ):
                writer.write_batch(batch)
            entry[attribute.name]["distinct"] = len(attribute.strings)
    return entry


def open_attribute(path: Path, name: str, told: Mapping[str, Any]) -> Attribute:
    """The attribute that the manifest of the bundle at ``path`` tells of, mapped; ``ArtifactError`` if damaged."""
    file, strings = path / told["file"], None
    values = open_array(file, "make the bundle again")
    try:
        if told["type"] == "string":
            source = pa.memory_map(str(file.with_suffix(".arrow")))
            strings = pa.ipc.open_file(source).get_batch(0).column("string")
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ArtifactError(
            f"the attribute cannot be read ({error})", where=str(file), remedy="make the bundle again"
        ) from error
    return Attribute(name, told["type"], values, strings)


def value_dtype(kind: AttributeType) -> np.dtype[Any]:
    """What values of a type are stored as."""
    return np.dtype(_DTYPES[kind])


def is_none(values: npt.NDArray[Any], kind: AttributeType) -> npt.NDArray[np.bool_]:
    """Where a node has no value."""
    absent: npt.NDArray[np.bool_] = np.isnan(values) if kind == "number" else values == _NONE[kind]
    return absent


def in_order(name: str, values: npt.NDArray[Any], code_of: dict[str, int]) -> Attribute:
    """Codes by the strings' order, whatever the order they came in; text orders as its UTF-8 bytes do."""
    strings = sorted(code_of)
    place = np.empty(len(strings) + 1, dtype=np.int32)
    place[-1] = -1
    for number, text in enumerate(strings):
        place[code_of[text]] = number
    for span in _spans(len(values)):
        values[span] = place[values[span]]
    return Attribute(name, "string", values, pa.array(strings, pa.large_string()))


def _spans(rows: int) -> Iterator[slice]:
    return (slice(first, min(first + _BLOCK_ROWS, rows)) for first in range(0, rows, _BLOCK_ROWS))
