"""The blobs of a tenant without await, for blocking code and handlers in threads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from holdfast.core.blob import BlobRef
from holdfast.core.edge_bounds import BLOB_BYTES_MAX
from holdfast.payload.blobs import Blobs

SyncData = bytes | bytearray | memoryview | Path | IO[bytes] | Iterable[bytes]


class SyncBlobs:
    """`Blobs` without await. `call` runs a coroutine and returns its result."""

    def __init__(self, call: Callable[[Coroutine[Any, Any, Any]], Any], blobs: Blobs) -> None:
        self._call = call
        self._blobs = blobs

    def put(self, data: SyncData, *, media_type: str | None = None) -> BlobRef:
        given: Any = data
        if isinstance(data, Iterator) and not hasattr(data, "read"):
            given = _threaded(data)
        ref: BlobRef = self._call(self._blobs.put(given, media_type=media_type))
        return ref

    def read(self, ref: BlobRef) -> Iterator[bytes]:
        chunks = self._blobs.read(ref)
        try:
            while (chunk := self._call(_next(chunks))) is not None:
                yield chunk
        finally:
            self._call(_closed(chunks))

    def read_bytes(self, ref: BlobRef, *, most: int = BLOB_BYTES_MAX) -> bytes:
        found: bytes = self._call(self._blobs.read_bytes(ref, most=most))
        return found

    def read_to(self, ref: BlobRef, path: str | os.PathLike[str]) -> None:
        self._call(self._blobs.read_to(ref, path))

    def delete(self, ref: BlobRef) -> None:
        self._call(self._blobs.delete(ref))


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)


async def _closed(chunks: Any) -> None:
    await chunks.aclose()


async def _threaded(data: Iterator[bytes]) -> AsyncIterator[bytes]:
    """A generator may block, for example to read from a network: not the event loop of others."""
    while (chunk := await asyncio.to_thread(next, data, None)) is not None:
        yield chunk
