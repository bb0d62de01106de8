"""Whole embedding sets, or runs of their rows, as streams of bytes: Arrow, Parquet, or a line of JSON a node.

However large a set is, a chunk of rows is in memory at a time. Ids are text; numbers keep the type they are stored in.
"""

from __future__ import annotations

import io
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic_core import to_json

from preprocessing.errors import UsageError
from service.arrow_streams import arrow_stream
from service.errors import ConflictError
from service.search.embedding_set import EmbeddingSet

__all__ = ["FORMATS", "Page", "page_of"]

CHUNK_BYTES = 1 << 22
"""Of vectors, in a chunk of Arrow or of lines; a row group of Parquet, which readers want larger, has eight."""
ROW_GROUP_CHUNKS = 8


@dataclass(frozen=True)
class Page:
    """Rows ``first`` up to ``end`` of a set, and where the next page begins, if there is one."""

    embedding: str
    first: int
    end: int
    more: bool

    @property
    def cursor(self) -> str:
        """Where the page begins."""
        return f"{self.embedding}:{self.first}"

    @property
    def next_cursor(self) -> str | None:
        """Where the next one begins."""
        return f"{self.embedding}:{self.end}" if self.more else None


def page_of(identity: str, nodes: int, shard: str, cursor: str | None, limit: int | None) -> Page:
    """The rows that ``cursor`` and ``limit`` leave of shard ``i/n`` of a set of so many ``nodes``.

    Shards are runs of rows, as even as they can be; each row is in one. A cursor is ``<embedding id>:<row>``.
    ``UsageError`` for a shard that there is not, or a cursor outside of it; ``ConflictError`` for one of another set.
    """
    number, count = (int(part) for part in shard.split("/"))
    if number >= count:
        raise UsageError(
            "there is no such shard", given=shard, expected="i/n with i from 0 to n − 1", pointer="query/shard"
        )
    first, end = nodes * number // count, nodes * (number + 1) // count
    start = first
    if cursor is not None:
        of, row = cursor.rsplit(":", 1)
        if of != identity:
            raise ConflictError(
                "the cursor is of another embedding set",
                expected="a cursor of the set that is named",
                remedy="if the alias was switched meanwhile, name the cursor's own set, or begin anew",
                pointer="query/cursor",
            )
        start = int(row)
        if not first <= start <= end:
            raise UsageError(
                "the cursor is outside of the shard",
                expected="the cursor of a page of the same shard",
                pointer="query/cursor",
            )
    last = end if limit is None else min(end, start + limit)
    return Page(identity, start, last, last < end)


def _arrow(embeddings: EmbeddingSet, page: Page) -> Iterator[bytes | memoryview]:
    """An Arrow IPC stream of ``id`` and ``vector``."""
    schema = _schema(embeddings, page)
    return arrow_stream(schema, _batches(embeddings, page, schema, 1))


def _parquet(embeddings: EmbeddingSet, page: Page) -> Generator[bytes]:
    """A Parquet file of the same, a row group at a time; its footer comes last."""
    schema, sink = _schema(embeddings, page), _Sink()
    with pq.ParquetWriter(sink, schema, use_dictionary=False) as writer:
        for batch in _batches(embeddings, page, schema, ROW_GROUP_CHUNKS):
            writer.write_batch(batch)
            yield sink.taken()
    yield sink.taken()


def _lines(embeddings: EmbeddingSet, page: Page) -> Generator[bytes]:
    """A line for each node, ``{"id": …, "vector": […]}``."""
    for first, end in _chunks(embeddings, page, 1):
        names = embeddings.ids.external(np.arange(first, end))
        rows = zip(names, embeddings.vectors[first:end].tolist(), strict=True)
        yield b"".join(to_json({"id": name, "vector": vector}) + b"\n" for name, vector in rows)


FORMATS: Mapping[str, Any] = {
    "application/x-ndjson": _lines,
    "application/vnd.apache.arrow.stream": _arrow,
    "application/vnd.apache.parquet": _parquet,
}
"""By media type: an open set and a page to the bytes of it. The first is for whoever takes anything."""


def _schema(embeddings: EmbeddingSet, page: Page) -> pa.Schema:
    number = pa.from_numpy_dtype(embeddings.vectors.dtype)
    told = {"embedding": page.embedding, "cursor": page.cursor}
    if page.next_cursor is not None:
        told["next_cursor"] = page.next_cursor
    return pa.schema([("id", pa.string()), ("vector", pa.list_(number, embeddings.dim))], metadata=told)


def _chunks(embeddings: EmbeddingSet, page: Page, chunks: int) -> Iterator[tuple[int, int]]:
    """Runs of rows whose vectors take ``chunks`` times ``CHUNK_BYTES``, one row at least."""
    rows = max(1, chunks * CHUNK_BYTES // (embeddings.dim * embeddings.vectors.itemsize))
    for first in range(page.first, page.end, rows):
        # Its reader may take all day, and a chunk is soon read: whoever wants to write goes first.
        embeddings.check_as_opened()
        yield first, min(first + rows, page.end)


def _batches(embeddings: EmbeddingSet, page: Page, schema: pa.Schema, chunks: int) -> Iterator[pa.RecordBatch]:
    for first, end in _chunks(embeddings, page, chunks):
        names = embeddings.ids.column(np.arange(first, end)).cast(pa.string())
        numbers = pa.array(embeddings.vectors[first:end].reshape(-1))
        yield pa.record_batch([names, pa.FixedSizeListArray.from_arrays(numbers, embeddings.dim)], schema)


class _Sink(io.RawIOBase):
    """A file that holds what was written since it was last asked; places in it are those of the whole."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._length = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._length

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        self._length += len(part)
        return len(part)

    def taken(self) -> bytes:
        """What came since the last call."""
        data = b"".join(self._parts)
        self._parts.clear()
        return data
