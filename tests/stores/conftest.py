"""Every store, behind one fixture: an empty store on a clock of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.servers.engines import Engines
from tests.servers.foundationdb import KIND as FDB_CLUSTER
from tests.servers.foundationdb import Absent, FoundationCluster, is_named
from tests.servers.kinds import KINDS, Missing
from tests.servers.service import Host
from tests.stores.callers import beginning
from tests.stores.foundationdb.spoil import spoil as spoil_foundationdb
from tests.stores.postgres.spoil import spoil as spoil_postgres
from tests.stores.redis.spoil import spoil as spoil_redis
from tests.stores.sqlite.spoil import spoil as spoil_sqlite

from holdfast.core.clock import Clock
from holdfast.dispatch import Dispatcher
from holdfast.store import Ref, Store
from holdfast.stores import open_store
from holdfast.testing import ManualClock
from holdfast.testing.contract.bench import Bench

if TYPE_CHECKING:
    from tests.servers.kinds import Kind, Servers

    Place = Kind | FoundationCluster | Host | Engines | None

STORES = [
    *("memory", "sqlite", "remote", "foundationdb"),
    *([FDB_CLUSTER] if is_named() else []),
    *KINDS,
]


SPOILS: dict[str, Callable[[Store, Ref], Awaitable[None]]] = {
    "sqlite": spoil_sqlite,
    "foundationdb": spoil_foundationdb,
    "redis": spoil_redis,
    "cluster": spoil_redis,
    **{kind: spoil_postgres for kind in KINDS if kind.startswith("postgres")},
}
"""How a stored record is made unreadable, where records are encoded."""


@pytest.fixture(scope="session")
def host() -> Iterator[Host]:
    """The thread in which services of this run are, for the remote store."""
    host = Host()
    yield host
    host.close()


@pytest.fixture(params=STORES)
def server(request: pytest.FixtureRequest) -> Iterator[Place]:
    """For each store: its shared server, if it has one."""
    if request.param in ("memory", "sqlite"):
        yield None
    elif request.param == "foundationdb":
        yield Engines()
    elif request.param == FDB_CLUSTER:
        cluster = named_cluster()
        yield cluster
        cluster.clear()
    elif request.param == "remote":
        host: Host = request.getfixturevalue("host")
        yield host
        host.clear()
    else:
        server = server_of(request.param, request)
        yield server
        server.clear()


def server_of(kind: str, request: pytest.FixtureRequest) -> Kind:
    """The shared server of this kind; without its binaries the test is skipped, or fails."""
    servers: Servers = request.getfixturevalue("servers")
    try:
        return servers.get(kind)
    except Missing as missing:
        missing.end_test()


def named_cluster() -> FoundationCluster:
    """The FoundationDB cluster that the environment names; without one the test is skipped."""
    try:
        return FoundationCluster()
    except Absent as absent:
        pytest.skip(str(absent))


@pytest.fixture
def url(request: pytest.FixtureRequest, server: Place, tmp_path: Path) -> Callable[[str], str]:
    """For each store: the URL of the place with this name, empty for each test."""
    if isinstance(server, Engines):
        return lambda name: pytest.skip("foundationdb: an engine in the process has no URL")
    if isinstance(server, Host):
        return lambda name: server.place(name).url
    if server is None:
        kind = request.node.callspec.params["server"]
        file = "" if kind == "memory" else f"/{tmp_path}/{{}}.db"
        return lambda name: f"{kind}://{file.format(name)}"
    return cache(server.lend)


@pytest.fixture
def done(server: Place) -> Callable[[], None]:
    """Says that no place of this test so far is used any more; the next ones cost less then."""
    return server.clear if server is not None else lambda: None


@pytest.fixture
def make(
    request: pytest.FixtureRequest, url: Callable[[str], str], server: Place
) -> Callable[[str, Clock | None], Store]:
    """For each store: makes it, not opened yet, at the place with this name.

    The remote one calls a service over a memory store, whose clock is the one that counts.
    """
    if isinstance(server, Host):
        return lambda name, clock: Dispatcher(server.place(name, clock).remote())
    if isinstance(server, Engines):
        return server.store
    return lambda name, clock: open_store(url(name), clock)


@pytest.fixture
async def bench(
    request: pytest.FixtureRequest, make: Callable[[str, Clock | None], Store], server: Place
) -> AsyncIterator[Bench]:
    """For each store: opened, empty, on a ManualClock."""
    clock = ManualClock()
    bench = Bench(lambda: make("jobs", clock), clock)
    bench.spoil = SPOILS.get(request.node.callspec.params["server"])
    bench.begin = beginning(bench.store, server)
    await bench.open()
    yield bench
    await bench.close()
