"""Request bodies as Arrow IPC streams of one column, read with no trust in what they say of themselves."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

__all__ = ["ArrowBody", "read_body"]

_NO_STREAM = "the body is neither JSON, by its Content-Type, nor a whole and readable Arrow IPC stream"


@dataclass(frozen=True)
class ArrowBody:
    """A column without nulls, as one array (int64, large_string, or a fixed-size list of numbers), and the schema's
    metadata.
    """

    name: str
    column: pa.Array
    metadata: dict[bytes, bytes]


def read_body(body: bytes, names: tuple[str, ...]) -> ArrowBody:
    """The stream's one column, which has one of ``names``: ``id`` holds ids, ``vector`` vectors.

    ``ValueError`` that says what is wrong, without a value of the stream. Compressed buffers are refused: a small body
    could ask for any amount of memory.
    """
    try:
        messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(body))
        first = messages.read_next_message()
        # pyarrow reads any message as a schema, and crashes on another kind (26.0.1).
        schema = pa.ipc.read_schema(first) if first.type == "schema" else None
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise ValueError(_NO_STREAM) from error
    if schema is None:
        raise ValueError(_NO_STREAM)
    if len(schema) != 1 or schema.names[0] not in names:
        raise ValueError(f"the stream has to have one column, named {' or '.join(names)}")
    kind = _vector_type(schema.types[0]) if schema.names[0] == "vector" else _id_type(schema.types[0])
    try:
        batches = [_whole(batch).cast(kind) for batch in _batches(messages, schema)]
        column = pa.concat_arrays(batches) if batches else pa.array([], kind)
    except (pa.ArrowException, OSError, struct.error) as error:
        raise ValueError(_NO_STREAM) from error
    if not len(column):
        raise ValueError("the stream holds no rows")
    return ArrowBody(schema.names[0], column, dict(schema.metadata or {}))


def _batches(messages: pa.ipc.MessageReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for message in messages:
        if message.type != "record batch":
            raise ValueError("the stream has to hold plain columns, without dictionaries")
        if _is_compressed(message.metadata.to_pybytes()):
            raise ValueError("the stream's buffers are compressed; send them plain")
        yield pa.ipc.read_record_batch(message, schema)


def _whole(batch: pa.RecordBatch) -> pa.Array:
    """The batch's column, after a look at every offset and every text."""
    batch.validate(full=True)
    column = batch.column(0)
    values = column.flatten() if pa.types.is_fixed_size_list(column.type) else column
    if column.null_count or values.null_count:
        raise ValueError("the stream's column holds nulls")
    if values is not column and not np.isfinite(values.to_numpy(zero_copy_only=False)).all():
        raise ValueError("the stream's vectors hold numbers that are not finite")
    return column


def _id_type(given: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(given):
        return pa.int64()
    if pa.types.is_string(given) or pa.types.is_large_string(given) or pa.types.is_string_view(given):
        return pa.large_string()
    raise ValueError("the column id has to hold int64 or string")


def _vector_type(given: pa.DataType) -> pa.DataType:
    if pa.types.is_fixed_size_list(given) and pa.types.is_floating(given.value_type):
        return given
    raise ValueError("the column vector has to hold fixed-size lists of float32, float64 or float16")


def _is_compressed(metadata: bytes) -> bool:
    """Whether a record batch message says so: the field ``compression`` of its flatbuffer (format/Message.fbs)."""

    def field(table: int, number: int) -> int | None:
        (back,) = struct.unpack_from("<i", metadata, table)
        (size,) = struct.unpack_from("<H", metadata, table - back)
        if 4 + 2 * number >= size:
            return None
        (place,) = struct.unpack_from("<H", metadata, table - back + 4 + 2 * number)
        return table + place if place else None

    (message,) = struct.unpack_from("<I", metadata, 0)
    header = field(message, 2)
    if header is None:
        return False
    (batch,) = struct.unpack_from("<I", metadata, header)
    return field(header + batch, 3) is not None
