"""Stores behind a mapper; a bucket of each kind that needs no server, and blobs of a tenant."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.payload.shop import Shop

from holdfast.payload.blobs import Blobs, Shared
from holdfast.payload.bucket import Bucket, open_bucket
from holdfast.payload.holders import Holders
from holdfast.payload.usage import Usage


@pytest.fixture(params=["file", "memory"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Bucket:
    return open_bucket(f"file://{tmp_path}/blobs" if request.param == "file" else "memory://")


@pytest.fixture
def holders(bucket: Bucket) -> Holders:
    """Of a process that relies on nothing that it did before."""
    return Holders(bucket, 0.0)


@pytest.fixture
def acme(bucket: Bucket, holders: Holders) -> Blobs:
    return Blobs(Shared(bucket, holders, Usage(bucket, None)), "acme")


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    shop = Shop(tmp_path)
    async with shop.app:
        yield shop
