"""Buckets by their URLs."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from holdfast import BlobsUnavailable
from holdfast.core.errors import ConfigError, MissingExtra
from holdfast.payload.blobs import Blobs, Shared
from holdfast.payload.bucket import Bucket, open_bucket
from holdfast.payload.holders import Holders
from holdfast.payload.usage import Usage


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://shop/blobs?region=eu-west-1", "s3://shop/blobs"),
        ("s3://shop?endpoint=http://127.0.0.1:9000&skip_signature=true", "s3://shop"),
        ("gs://shop/blobs", "gs://shop/blobs"),
        ("az://shop/blobs?account=acme", "az://shop/blobs"),
        ("memory://", "memory://"),
    ],
)
def test_a_url_names_a_bucket(url: str, shown: str) -> None:
    """Errors show it without its options."""
    assert open_bucket(url).shown == shown


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "no bucket is at ''"),
        ("ftp://x", "no bucket is at 'ftp'"),
        ("fiel://x", "Did you mean 'file'"),
        ("s3://", "names no bucket"),
        ("s3:///blobs", "names no bucket"),
        ("s3://shop?regio=x", "Did you mean 'region'"),
        ("s3://key:secret@shop", "credentials belong into the environment"),
        ("file://blobs", "whole path"),
        ("file://host/blobs", "whole path"),
        ("file:///", "whole path"),
        ("file:///a%00b", "null character"),
        ("file:///dev/null/blobs", "cannot be made"),
        ("az://shop", "Account must be specified"),
        ("memory://?x=1", "no option 'x'"),
    ],
)
def test_a_wrong_url_is_refused(url: str, why: str) -> None:
    """With the reason, before any blob is put."""
    with pytest.raises(ConfigError, match=why):
        open_bucket(url)


def test_without_the_package_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of stores."""
    monkeypatch.setitem(sys.modules, "obstore.store", None)

    with pytest.raises(MissingExtra, match=r"holdfast\[blob\]"):
        open_bucket("memory://")


async def test_a_server_that_is_away_is_told(unused_tcp_port: int) -> None:
    """As an error that can be tried again, without the structures of the library below."""
    bucket = open_bucket(
        f"s3://shop?endpoint=http://127.0.0.1:{unused_tcp_port}&region=x&skip_signature=true"
    )

    with pytest.raises(BlobsUnavailable, match="bucket s3://shop: ") as told:
        await bucket.put("x", b"data")

    assert "\n" not in str(told.value)


def test_a_forked_child_is_told_that_it_cannot_use_it(tmp_path: Path) -> None:
    """Instead of waiting for threads that did not survive the fork."""
    bucket = open_bucket(f"file://{tmp_path}/blobs")
    asyncio.run(bucket.put("x", b"data"))
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:  # pragma: no cover
        try:
            asyncio.run(bucket.look("x"))
        except BlobsUnavailable as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.waitpid(pid, 0)

    assert b"forked" in os.read(reader, 1000)


def test_a_blocking_caller_puts_and_looks_without_an_event_loop(tmp_path: Path) -> None:
    """As an enqueue in the transaction of a blocking connection does."""
    bucket = open_bucket(f"file://{tmp_path}/blobs")
    acme = Blobs(Shared(bucket, Holders(bucket, 0.0), Usage(bucket, None)), "acme")
    work = acme.put(b"data")
    with pytest.raises(StopIteration) as done:
        work.send(None)

    assert asyncio.run(acme.read_bytes(done.value.value)) == b"data"


async def test_an_object_is_put_once(bucket: Bucket) -> None:
    """The second caller is given the first one's."""
    assert await bucket.put_once("x", b"one") == b"one"
    assert await bucket.put_once("x", b"two") == b"one"
    assert await bucket.read("x") == b"one"
