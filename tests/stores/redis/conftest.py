"""Redis servers of these tests' own, and stores on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from tests.servers.kinds import Missing, install_of
from tests.servers.redis_node import RedisNode

from holdfast.core.clock import Clock
from holdfast.stores.redis.store import RedisStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.bench import Bench

if TYPE_CHECKING:
    from tests.servers.cluster import Cluster
    from tests.servers.kinds import Servers


@pytest.fixture
def node(servers: Servers) -> Iterator[RedisNode]:
    """The shared server; what is set on it must be set back."""
    try:
        server = servers.get("redis")
    except Missing as missing:
        missing.end_test()
    assert isinstance(server, RedisNode)
    yield server
    server.clear()


@pytest.fixture
def own_node() -> Iterator[RedisNode]:
    """A server that may be hurt. Every confirmed write is on disk."""
    try:
        server = RedisNode(install_of("redis"), appendfsync="always")
    except Missing as missing:
        missing.end_test()
    with server:
        yield server


@pytest.fixture
def cluster(servers: Servers) -> Iterator[Cluster]:
    from tests.servers.cluster import Cluster

    try:
        server = servers.get("cluster")
    except Missing as missing:
        missing.end_test()
    assert isinstance(server, Cluster)
    yield server
    server.clear()


@pytest.fixture
async def opened() -> AsyncIterator[Callable[[str, Clock | None], object]]:
    """Opens stores, and closes them after the test."""
    async with AsyncExitStack() as stack:

        async def open(url: str, clock: Clock | None = None) -> RedisStore:
            store = RedisStore.from_url(url, clock)
            await store.open()
            stack.push_async_callback(store.close)
            return store

        yield open


@pytest.fixture
async def bench(node: RedisNode) -> AsyncIterator[Bench]:
    """On the shared server, with a clock of its own."""
    clock = ManualClock()
    url = node.fresh()
    bench = Bench(lambda: RedisStore.from_url(url, clock), clock)
    await bench.open()
    yield bench
    await bench.close()
