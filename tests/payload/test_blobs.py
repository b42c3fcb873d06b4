"""Blobs: what is put comes back as it was, or not at all, and to its own tenant only."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import BlobCorrupt, BlobNotFound, BlobRef, InvalidInput, PayloadTooLarge
from holdfast.core.blob import segment
from holdfast.core.bounds import TENANT_MAX
from holdfast.core.edge_bounds import BLOB_CHUNK, BLOB_MAX, BLOB_SEGMENT_MAX
from holdfast.payload.blobs import Blobs, Shared
from holdfast.payload.bucket import Bucket, open_bucket
from holdfast.payload.holders import Holders
from holdfast.payload.layout import placed
from holdfast.payload.usage import Usage

LARGE = os.urandom(3 * BLOB_CHUNK + 17)


async def chunks() -> AsyncIterator[bytes]:
    for at in range(0, len(LARGE), 100_000):
        yield LARGE[at : at + 100_000]


def listed() -> Iterator[bytes]:
    yield LARGE


class Opened:
    """A file of a library whose calls are coroutines."""

    def __init__(self) -> None:
        self._file = io.BytesIO(LARGE)

    async def read(self, size: int) -> bytes:
        return self._file.read(size)


def in_file(folder: Path) -> Path:
    (folder / "data").write_bytes(LARGE)
    return folder / "data"


@pytest.mark.parametrize(
    "given",
    [
        lambda _: LARGE,
        lambda _: bytearray(LARGE),
        lambda _: memoryview(LARGE),
        lambda _: chunks(),
        lambda _: listed(),
        lambda _: [LARGE[:5], b"", LARGE[5:]],
        lambda _: io.BytesIO(LARGE),
        lambda _: Opened(),
        in_file,
    ],
    ids=["bytes", "bytearray", "view", "async", "generator", "list", "file", "async-file", "path"],
)
async def test_what_is_put_comes_back(
    acme: Blobs, tmp_path: Path, given: Callable[[Path], Any]
) -> None:
    """In any form that data may have; the reference says its size and its hash."""
    ref = await acme.put(given(tmp_path), media_type="audio/wav")

    assert ref == BlobRef(ref.id, len(LARGE), hashlib.sha256(LARGE).hexdigest(), "audio/wav")
    assert await acme.read_bytes(ref) == LARGE
    assert b"".join([chunk async for chunk in acme.read(ref)]) == LARGE
    await acme.read_to(ref, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == LARGE


async def test_a_blob_may_be_empty(acme: Blobs, tmp_path: Path) -> None:
    """No chunks, and a file of no bytes."""
    given: Any
    for given in (b"", [], io.BytesIO()):
        ref = await acme.put(given)

        assert (ref.size, await acme.read_bytes(ref)) == (0, b"")
    await acme.read_to(ref, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b""


@pytest.mark.parametrize("given", ["text", 5, None, ["text"], [5]])
async def test_what_is_no_data_is_refused(acme: Blobs, given: Any) -> None:
    """By the name of the argument."""
    with pytest.raises(InvalidInput, match="data"):
        await acme.put(given)


async def test_nothing_is_stored_of_data_that_ends_with_an_error(
    acme: Blobs, bucket: Bucket
) -> None:
    """As a whole, or not at all."""

    async def broken() -> AsyncIterator[bytes]:
        for _ in range(8):
            yield bytes(BLOB_CHUNK)
        raise ConnectionError("the source went away")

    with pytest.raises(ConnectionError, match="went away"):
        await acme.put(broken())

    assert [each async for each in bucket.under("blobs", 10)] == []


async def test_nothing_is_stored_by_a_call_that_is_cancelled(acme: Blobs, bucket: Bucket) -> None:
    """The parts that were sent are removed."""
    begun = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(BLOB_CHUNK)
            begun.set()
            await asyncio.sleep(0)

    putting = asyncio.create_task(acme.put(endless()))
    await begun.wait()
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting

    assert [each async for each in bucket.under("blobs", 10)] == []


# -- references ------------------------------------------------------------------------------------


async def test_a_reference_to_a_blob_of_another_tenant_leads_nowhere(
    acme: Blobs, bucket: Bucket, holders: Holders
) -> None:
    """The same answer as for a blob that is gone (P7)."""
    ref = await acme.put(b"secret")
    for tenant in ("globex", "Acme", "acme2", "acm", "a/../acme", "../acme"):
        other = Blobs(Shared(bucket, holders, Usage(bucket, None)), tenant)

        with pytest.raises(BlobNotFound, match="not found"):
            await other.read_bytes(ref)
        await other.delete(ref)
    assert await acme.read_bytes(ref) == b"secret"


@pytest.mark.parametrize(
    "id",
    [
        "",
        "..",
        "blob-" + "a" * 31,
        "blob-" + "A" * 32,
        "blob-" + "a" * 32 + "/",
        "blob-" + "a" * 32 + "\n",
        "../acme/blob-" + "a" * 32,
        "%2e%2e/blob-" + "a" * 32,
        "blob-" + "a" * 32 + "\x00",
        "blob-" + "ä" * 32,
        "body-" + "a" * 32,
        "body-" + "a" * 32 + ".",
        "body-" + "a" * 32 + "./..",
        "body-" + "a" * 32 + "." + "x" * (BLOB_SEGMENT_MAX + 1),
        "/etc/passwd",
        5,
        None,
    ],
)
async def test_an_id_that_no_blob_has_is_not_found(acme: Blobs, id: Any) -> None:
    """Whatever a hostile tenant writes into a payload: no path is made of it."""
    forged = BlobRef("blob-" + "a" * 32, 1, "0" * 64)
    msgspec.structs.force_setattr(forged, "id", id)

    for call in (acme.read_bytes, acme.delete):
        with pytest.raises(BlobNotFound):
            await call(forged)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("size", -1),
        ("size", BLOB_MAX + 1),
        ("size", "5"),
        ("sha256", "x"),
        ("sha256", "A" * 64),
        ("sha256", None),
        ("media_type", "a\r\nSet-Cookie: x"),
        ("media_type", "é/x"),
        ("media_type", "x" * 200),
    ],
)
async def test_a_forged_field_is_refused_by_its_name(acme: Blobs, field: str, value: Any) -> None:
    """Before the bucket is asked."""
    forged = await acme.put(b"data")
    msgspec.structs.force_setattr(forged, field, value)

    with pytest.raises(InvalidInput, match=field):
        await acme.read_bytes(forged)


async def test_only_a_reference_is_taken(acme: Blobs) -> None:
    """Plain data is to be decoded as a BlobRef first."""
    with pytest.raises(InvalidInput, match="must be a BlobRef, not dict"):
        await acme.read_bytes({"id": "x"})  # type: ignore[arg-type]


async def test_a_wrong_hash_is_told_before_the_last_chunk(acme: Blobs) -> None:
    """Whoever has all chunks has the right ones."""
    ref = await acme.put(LARGE)
    forged = msgspec.structs.replace(ref, sha256="0" * 64)
    sizes: list[int] = []

    async def read() -> None:
        async for chunk in acme.read(forged):
            sizes.append(len(chunk))

    with pytest.raises(BlobCorrupt, match="SHA-256"):
        await read()
    assert 0 < sum(sizes) < len(LARGE)


async def test_a_wrong_size_is_told_at_once(acme: Blobs) -> None:
    """Not after the bytes were read."""
    ref = await acme.put(LARGE)
    for size in (0, len(LARGE) - 1, len(LARGE) + 1, 30 * 1024**3):
        chunks = acme.read(msgspec.structs.replace(ref, size=size))

        with pytest.raises(BlobCorrupt, match=f"reference says {size}"):
            await anext(chunks)


async def test_a_large_blob_is_taken_into_memory_only_by_wish(acme: Blobs) -> None:
    """A forged size does not fill the memory either."""
    ref = await acme.put(b"12345")

    with pytest.raises(PayloadTooLarge, match="at most 4"):
        await acme.read_bytes(ref, most=4)
    assert await acme.read_bytes(ref, most=5) == b"12345"


async def test_a_file_appears_only_when_it_is_complete(acme: Blobs, tmp_path: Path) -> None:
    """An earlier one stays as it was."""
    ref = await acme.put(LARGE)
    folder = tmp_path / "to"
    folder.mkdir()
    (folder / "copy").write_bytes(b"before")

    with pytest.raises(BlobCorrupt):
        await acme.read_to(msgspec.structs.replace(ref, sha256="0" * 64), folder / "copy")

    assert [path.name for path in folder.iterdir()] == ["copy"]
    assert (folder / "copy").read_bytes() == b"before"


async def test_a_deleted_blob_is_gone(acme: Blobs) -> None:
    """And may be deleted again."""
    ref = await acme.put(b"data")

    await acme.delete(ref)
    await acme.delete(ref)

    with pytest.raises(BlobNotFound):
        await acme.read_bytes(ref)


@pytest.mark.parametrize(
    "tenant",
    ["Acme", "..", "a/b", "a%2fb", "日本語", "🦀" * TENANT_MAX, "x" * TENANT_MAX, "a b", "~" * 64],
)
async def test_every_tenant_has_blobs(bucket: Bucket, holders: Holders, tenant: str) -> None:
    """Whatever its name: no part of a path is longer than a file system takes."""
    blobs = Blobs(Shared(bucket, holders, Usage(bucket, None)), tenant)
    ref = await blobs.put(b"data")

    assert await blobs.read_bytes(ref) == b"data"
    path = placed(tenant, ref.id).path
    assert len(segment(tenant)) <= BLOB_SEGMENT_MAX
    assert set(path) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_~./")
    assert ".." not in path


# -- in a folder -----------------------------------------------------------------------------------


async def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    """Of the same size; the hash tells."""
    bucket = open_bucket(f"file://{tmp_path}/blobs")
    acme = Blobs(Shared(bucket, Holders(bucket, 0.0), Usage(bucket, None)), "acme")
    ref = await acme.put(b"data")
    (tmp_path / "blobs" / placed("acme", ref.id).path).write_bytes(b"dada")

    with pytest.raises(BlobCorrupt, match="SHA-256"):
        await acme.read_bytes(ref)


async def test_a_link_in_the_folder_leads_to_no_other_file(tmp_path: Path) -> None:
    """What it leads to is not what the reference says, and is not deleted with the link."""
    (tmp_path / "secret").write_bytes(b"root")
    bucket = open_bucket(f"file://{tmp_path}/blobs")
    acme = Blobs(Shared(bucket, Holders(bucket, 0.0), Usage(bucket, None)), "acme")
    ref = await acme.put(b"data")
    path = tmp_path / "blobs" / placed("acme", ref.id).path
    path.unlink()
    path.symlink_to(tmp_path / "secret")

    with pytest.raises(BlobCorrupt):
        await acme.read_bytes(ref)
    await acme.delete(ref)
    assert (tmp_path / "secret").read_bytes() == b"root"
