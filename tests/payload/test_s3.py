"""Blobs on S3: a server of its protocol on this machine, over HTTP."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress

import pytest
from tests.servers.process import free_port

from holdfast import App, BlobNotFound, BlobRef, BlobsUnavailable, Context
from holdfast.config import Config
from holdfast.core.edge_bounds import BLOB_PART
from holdfast.payload.blobs import Blobs, Shared
from holdfast.payload.bucket import Bucket, open_bucket
from holdfast.payload.holders import Holders
from holdfast.payload.usage import Usage
from holdfast.stores import open_store
from holdfast.testing import drain
from holdfast.upkeep.sweep import Sweep

pytest.importorskip("moto", reason="no server of the protocol of S3")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Its URL, with the bucket `shop`."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_ready(process, url)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _wait_until_ready(process: subprocess.Popen[bytes], url: str) -> None:
    made = urllib.request.Request(f"{url}/shop", method="PUT")
    while process.poll() is None:
        with suppress(OSError), urllib.request.urlopen(made, timeout=30):
            return
    raise AssertionError("the server has ended")


@pytest.fixture
def url(server: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A prefix of the bucket for each test."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    return f"s3://shop/{request.node.name}?endpoint={server}&region=us-east-1"


@pytest.fixture
def bucket(url: str) -> Bucket:
    return open_bucket(url)


async def test_a_large_blob_is_sent_in_parts_and_comes_back(bucket: Bucket) -> None:
    """And a wrong tenant finds nothing."""
    data = os.urandom(2 * BLOB_PART + 1000)
    acme = Blobs(Shared(bucket, Holders(bucket, 0.0), Usage(bucket, None)), "Acme/ä")
    ref = await acme.put(iter([data[:1000], data[1000:]]))

    assert await acme.read_bytes(ref) == data
    with pytest.raises(BlobNotFound):
        await Blobs(Shared(bucket, Holders(bucket, 0.0), Usage(bucket, None)), "acme").read_bytes(
            ref
        )
    await acme.delete(ref)
    await acme.delete(ref)
    with pytest.raises(BlobNotFound):
        await acme.read_bytes(ref)


async def test_jobs_are_offloaded_and_what_nothing_needs_is_swept(url: str) -> None:
    """The whole way: put, enqueue, run, delete."""
    app = App("memory://", blobs=url)

    @app.job
    async def copy(ctx: Context, ref: BlobRef) -> BlobRef:
        return await ctx.blobs.put(ctx.blobs.read(ref))

    async with app:
        acme = app.tenant("acme")
        ref = await acme.blobs.put(b"data" * 300_000)
        orphan = await acme.blobs.put(b"orphan")
        job = await acme.enqueue(copy(ref=ref))
        await drain(app)
        made = await acme.wait(job.id, as_=BlobRef)
        assert app.app_blobs is not None
        sweep = Sweep(app.store, app.app_blobs.bucket, Config(blob_grace_s=0))
        for one in {ref.id[5:7], made.id[5:7], orphan.id[5:7]}:
            await sweep._parts.look_at(one)

        assert await acme.blobs.read_bytes(made) == b"data" * 300_000
        assert await acme.blobs.read_bytes(ref) == b"data" * 300_000
        with pytest.raises(BlobNotFound):
            await acme.blobs.read_bytes(orphan)


async def test_a_bucket_belongs_to_one_store(bucket: Bucket) -> None:
    """The first one that writes its name into it, atomically."""
    stores = [open_store("memory://"), open_store("memory://")]
    for store in stores:
        await store.open()
    sweeps = [Sweep(store, bucket, Config(blob_grace_s=0)) for store in stores]

    assert [await sweep._is_ours() for sweep in sweeps] == [True, False]
    for store in stores:
        await store.close()


async def test_a_bucket_that_there_is_not_is_told(url: str) -> None:
    """As an error that can be tried again; somebody may make it."""
    bucket = open_bucket(url.replace("s3://shop", "s3://nothing"))

    with pytest.raises(BlobsUnavailable, match="s3://nothing"):
        await bucket.put("x", b"data")
