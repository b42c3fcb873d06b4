"""The blobs of one tenant: written and read as streams, so that their size needs no memory.

    ref = await acme.blobs.put(Path("talk.wav"), media_type="audio/wav")
    async for chunk in ctx.blobs.read(ref): ...

The bytes are checked against the reference while they are read. The last chunk is yielded only
after the SHA-256 of all has been compared, so a reader that has all chunks has the right ones.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import os
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Collection, Iterable
from pathlib import Path
from typing import IO, Any

import msgspec

from holdfast.core.blob import BlobRef, check_media, named_in, put_id
from holdfast.core.edge_bounds import BLOB_BYTES_MAX, BLOB_CHUNK, BLOB_MAX
from holdfast.core.errors import (
    BlobCorrupt,
    BlobNotFound,
    InvalidInput,
    PayloadTooLarge,
    TenantFull,
)
from holdfast.core.job import JobRecord
from holdfast.payload.bucket import Bucket
from holdfast.payload.holders import Holders
from holdfast.payload.layout import Holder, HolderKind, placed
from holdfast.payload.usage import Usage

Data = bytes | bytearray | memoryview | Path | IO[bytes] | Iterable[bytes] | AsyncIterable[bytes]
"""What can be put: bytes, the path of a file, an open file, or chunks."""


class Shared(msgspec.Struct, frozen=True):
    """What the blobs of all tenants share in one process."""

    bucket: Bucket
    holders: Holders
    usage: Usage


class Blobs:
    """`app.tenant(name).blobs`, and `ctx.blobs` of a job, whose blobs live as long as the job."""

    def __init__(
        self, shared: Shared, tenant: str, holder: Holder | None = None, held: Collection[str] = ()
    ) -> None:
        self._shared = shared
        self._bucket = shared.bucket
        self._holders = shared.holders
        self._usage = shared.usage
        self._tenant = tenant
        self._holder = holder
        self._held = held
        """Ids of blobs that the holder has held since it was stored."""

    def held_by(self, job: JobRecord) -> Blobs:
        """The same blobs for a run: what it puts or reads is kept as long as its job."""
        try:
            held = frozenset(named_in(job.envelope.body))
        except InvalidInput:
            held = frozenset()
        holder = Holder(self._tenant, HolderKind.JOB, job.id)
        return Blobs(self._shared, self._tenant, holder, held)

    async def put(self, data: Data, *, media_type: str | None = None) -> BlobRef:
        """Stores a blob as a whole, or nothing. Enqueue a job that names it soon: a blob that no
        job names is deleted after `blob_grace_s`.
        """
        check_media(media_type)
        id = put_id(secrets.token_hex(16))
        blob = placed(self._tenant, id)
        left = await self._usage.left(self._tenant)
        sha = hashlib.sha256()
        if isinstance(data, bytes | bytearray | memoryview):
            body = bytes(data)
            if left is not None and len(body) > left:
                raise self._usage.full(self._tenant)
            if len(body) <= BLOB_CHUNK:
                sha.update(body)
                await self._bucket.put(blob.path, body)
                return await self._stored(id, len(body), sha.hexdigest(), media_type)
            data = _parts(body)
        chunks = _Counted(
            data, sha, None if left is None else (left, self._usage.full(self._tenant))
        )
        try:
            await self._bucket.put_stream(blob.path, aiter(chunks))
        except Exception:
            if chunks.failed is not None:  # The source failed, not the bucket.
                raise chunks.failed from None
            raise
        return await self._stored(id, chunks.size, sha.hexdigest(), media_type)

    async def _stored(self, id: str, size: int, sha256: str, media_type: str | None) -> BlobRef:
        blob = placed(self._tenant, id)
        self._holders.wrote(blob.path)
        self._usage.added(self._tenant, size)
        if self._holder is not None:
            await self._holders.hold(blob, self._holder)
        return BlobRef(id, size, sha256, media_type)

    async def read(self, ref: BlobRef) -> AsyncIterator[bytes]:
        """Yields the bytes in chunks. Raises BlobNotFound, also for a blob of another tenant;
        BlobCorrupt if the bytes are not those of the reference; BlobsUnavailable.
        """
        checked(ref)
        blob = placed(self._tenant, ref.id)
        if self._holder is not None and ref.id not in self._held:
            # It may come from a job that is deleted before this one ends.
            await self._holders.hold(blob, self._holder)
        found = await self._bucket.open(blob.path)
        if found is None:
            raise BlobNotFound(id=ref.id)
        stored, chunks = found
        if stored.size != ref.size:
            raise _corrupt(ref, f"it has {stored.size} bytes, the reference says {ref.size}")
        size, sha = 0, hashlib.sha256()
        last: bytes | None = None
        async for chunk in chunks:
            size += len(chunk)
            if size > ref.size:
                break
            sha.update(chunk)
            if last is not None:
                yield last
            last = chunk
        if size != ref.size:
            raise _corrupt(ref, f"{size} bytes came, the reference says {ref.size}")
        if sha.hexdigest() != ref.sha256:
            raise _corrupt(
                ref, f"its SHA-256 is {sha.hexdigest()}, the reference says {ref.sha256}"
            )
        if last is not None:
            yield last

    async def raw(self, id: str) -> tuple[int, AsyncIterator[bytes]]:
        """The size and the chunks of a blob, not compared with a reference."""
        found = await self._bucket.open(placed(self._tenant, id).path)
        if found is None:
            raise BlobNotFound(id=id)
        return found[0].size, found[1]

    async def read_bytes(self, ref: BlobRef, *, most: int = BLOB_BYTES_MAX) -> bytes:
        """All bytes at once. PayloadTooLarge for a blob of more than `most`."""
        if checked(ref).size > most:
            raise PayloadTooLarge(field="blob", size=ref.size, max=most)
        return b"".join([chunk async for chunk in self.read(ref)])

    async def read_to(self, ref: BlobRef, path: str | os.PathLike[str]) -> None:
        """Writes the bytes to a file, which appears only when they are complete and right."""
        to = Path(path)
        part = to.with_name(f".{to.name}.{secrets.token_hex(4)}")
        try:
            with await asyncio.to_thread(part.open, "xb") as file:
                async for chunk in self.read(ref):
                    await asyncio.to_thread(file.write, chunk)
            await asyncio.to_thread(part.replace, to)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    async def delete(self, ref: BlobRef) -> None:
        """Deletes a blob at once. Jobs that still name it find it no more."""
        await self._bucket.delete(placed(self._tenant, checked(ref).id).path)


def checked(ref: Any) -> BlobRef:
    """The reference, if it can be one."""
    if not isinstance(ref, BlobRef):
        raise InvalidInput(field="ref", why=f"must be a BlobRef, not {type(ref).__name__}")
    return ref.checked()


def _corrupt(ref: BlobRef, why: str) -> BlobCorrupt:
    return BlobCorrupt(id=ref.id, why=why)


class _Counted:
    """The chunks of what is put, with their number of bytes and their hash."""

    def __init__(self, data: Data, sha: Any, most: tuple[int, TenantFull] | None) -> None:
        self._data = data
        self._sha = sha
        self._most = most
        self.size = 0
        self.failed: Exception | None = None
        """What the source has raised."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._parts():
                yield part
        except Exception as error:
            self.failed = error
            raise

    async def _parts(self) -> AsyncIterator[bytes]:
        async for chunk in _chunks(self._data):
            if not isinstance(chunk, bytes | bytearray | memoryview):
                why = f"yields {type(chunk).__name__}, must yield bytes"
                raise InvalidInput(field="data", why=why)
            for part in _parts(bytes(chunk)):
                self.size += len(part)
                if self.size > BLOB_MAX:
                    raise PayloadTooLarge(field="blob", size=self.size, max=BLOB_MAX)
                if self._most is not None and self.size > self._most[0]:
                    raise self._most[1]
                self._sha.update(part)
                yield part


def _parts(data: bytes) -> Iterable[bytes]:
    """The bytes in parts of at most BLOB_CHUNK."""
    if len(data) <= BLOB_CHUNK:
        return (data,)
    view = memoryview(data)
    return (bytes(view[at : at + BLOB_CHUNK]) for at in range(0, len(data), BLOB_CHUNK))


async def _chunks(data: Data) -> AsyncIterator[Any]:
    if isinstance(data, Path):
        with await asyncio.to_thread(data.open, "rb") as file:
            async for chunk in _of_file(file):
                yield chunk
    elif isinstance(data, AsyncIterable):
        async for chunk in data:
            yield chunk
    elif hasattr(data, "read"):
        async for chunk in _of_file(data):
            yield chunk
    elif isinstance(data, Iterable) and not isinstance(data, str):
        for chunk in data:
            yield chunk
    else:
        why = f"must be bytes, a Path, an open file or chunks, not {type(data).__name__}"
        raise InvalidInput(field="data", why=why)


async def _of_file(file: Any) -> AsyncIterator[Any]:
    """The chunks of an open file, whose `read` may be a coroutine function."""
    while True:
        if inspect.iscoroutinefunction(file.read):
            chunk = await file.read(BLOB_CHUNK)
        else:
            chunk = await asyncio.to_thread(file.read, BLOB_CHUNK)
        if not chunk:
            return
        yield chunk
