"""Arrow IPC streams as answers, their schema's metadata telling what JSON tells beside its lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

__all__ = ["arrow_stream", "whole_arrow_stream"]

# A continuation marker and no message.
_END = b"\xff\xff\xff\xff\0\0\0\0"


def arrow_stream(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes | memoryview]:
    """The stream of ``batches``, a piece each, between its schema and its end; no column is dictionary-encoded."""
    yield memoryview(schema.serialize())
    for batch in batches:
        yield memoryview(batch.serialize())
    yield _END


def whole_arrow_stream(table: pa.Table, metadata: dict[str, str]) -> bytes:
    """The stream of a table."""
    told = table.replace_schema_metadata(metadata)
    return b"".join(arrow_stream(told.schema, told.to_batches()))
