"""Reading a bulk export batch by batch, through breaks of its stream."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from service.client.transport import ServerBusyError, Transport, UnreachableError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["exported"]

ARROW_STREAM = "application/vnd.apache.arrow.stream"
RECONNECT_S = 1.0
PATIENCE_S = 60.0
"""How long an export waits for a server that went away or is full, without a row."""


def exported(transport: Transport, ref: str, shard: str, cursor: str | None) -> Iterator[pa.RecordBatch]:
    """The batches of a shard from ``cursor`` on, each row once; the set that began is the one that goes on."""
    import pyarrow as pa

    alive = time.monotonic()
    while True:
        try:
            params = {"shard": shard, "cursor": cursor}
            with transport.stream(f"/v1/embeddings/{ref}/vectors", params, ARROW_STREAM) as response:
                ref, row = response.headers["X-Cursor"].rsplit(":", 1)
                cursor = f"{ref}:{row}"
                # Buffered, for Arrow takes a short read for the end.
                for batch in pa.ipc.open_stream(io.BufferedReader(_Body(response.iter_bytes()))):
                    alive = time.monotonic()
                    row = str(int(row) + len(batch))
                    cursor = f"{ref}:{row}"
                    yield batch
                return
        except (UnreachableError, ServerBusyError):
            if time.monotonic() - alive > PATIENCE_S:
                raise
        time.sleep(RECONNECT_S)


class _Body(io.RawIOBase):
    """Chunks as they come, as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._left = chunk
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count
