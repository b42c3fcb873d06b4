"""All bytes that a store has kept, read past it: files, tables, keys, pairs, objects."""

from __future__ import annotations

import base64
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
from tests.servers.engines import Engines
from tests.servers.service import Host

from holdfast.core.clock import SystemClock
from holdfast.dispatch import inner_of
from holdfast.store import Store
from holdfast.stores.memory.store import MemoryStore


def forms(marker: str) -> list[bytes]:
    """How a text can be written: as it is, in hexadecimal, in base64 at each of three places."""
    raw = marker.encode()
    found = [raw, raw.hex().encode()]
    for shift in range(3):
        coded = base64.b64encode(b"\0" * shift + raw)
        found.append(coded[4 if shift else 0 : len(coded) - 4])
    return found


def traces(marker: str, dump: bytes) -> list[bytes]:
    """The forms of a marker that are in a dump."""
    return [form for form in forms(marker) if form in dump]


class Dump:
    """What a store of the test, at the place named `jobs`, has kept."""

    def __init__(self, kind: str, server: Any, url: Any, folder: Path) -> None:
        self._kind = kind
        self._server = server
        self._url = url
        self._folder = folder

    async def of(self, store: Store) -> bytes:
        """Everything."""
        if isinstance(self._server, Engines):
            return _engine(self._server)
        if isinstance(self._server, Host):
            return _objects(inner_of(self._server.place("jobs").store))
        if self._kind == "memory":
            return _objects(inner_of(store))
        if self._kind == "sqlite":
            return _files(self._folder)
        if self._kind.startswith("postgres"):
            return await _tables(self._url("jobs"))
        return await _keys(self._url("jobs"))


def _files(folder: Path) -> bytes:
    """Every file of a database, with its log of changes."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def _engine(server: Engines) -> bytes:
    [engine] = server._engines.values()
    transaction = engine.database().create_transaction()
    pairs = transaction.get_range(b"", b"\xff")
    return b"".join(bytes(pair.key) + bytes(pair.value) for pair in pairs)


async def _tables(url: str) -> bytes:
    """Every row of every table of the database."""
    connection = await asyncpg.connect(url.partition("?")[0])
    try:
        names = await connection.fetch(
            "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables"
            " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        )
        assert names
        parts = []
        for name in names:
            for row in await connection.fetch(f"SELECT * FROM {name['name']}"):
                parts += [_bytes(value) for value in row.values()]
        return b"\n".join(parts)
    finally:
        await connection.close()


async def _keys(url: str) -> bytes:
    """Every key of every node, as the server would write it to a file."""
    import redis.asyncio

    scheme, _, place = url.partition("?")[0].partition("://")
    if scheme.endswith("+cluster"):
        cluster = redis.asyncio.RedisCluster.from_url(f"redis://{place}")
        await cluster.initialize()
        nodes = [f"redis://{node.host}:{node.port}" for node in cluster.get_primaries()]
        await cluster.aclose()
    else:
        nodes = [f"redis://{place}"]
    return b"".join([await _node(node) for node in nodes])


async def _node(url: str) -> bytes:
    import redis.asyncio

    client = redis.asyncio.Redis.from_url(url)
    try:
        await client.config_set("rdbcompression", "no")
        parts = []
        async for key in client.scan_iter(count=1000):
            parts += [key, await client.dump(key) or b""]
        return b"\n".join(parts)
    finally:
        await client.aclose()


def _objects(store: Store) -> bytes:
    """Every text and every bytes that can be reached from a store in memory."""
    assert isinstance(store, MemoryStore)
    return b"\n".join(_reached(store.__dict__))


def _reached(root: Any) -> Iterator[bytes]:
    seen: set[int] = set()
    left = [root]
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, type | SystemClock) or callable(one):
            continue
        seen.add(id(one))
        if isinstance(one, str | bytes | bytearray):
            yield _bytes(one)
        elif isinstance(one, msgspec.Struct):
            left += [getattr(one, name) for name in one.__struct_fields__]
        elif isinstance(one, dict):
            left += [*one.keys(), *one.values()]
        else:
            left += [each for each in gc.get_referents(one) if type(each).__module__ != "types"]


def _bytes(value: object) -> bytes:
    return bytes(value) if isinstance(value, bytes | bytearray) else repr(value).encode()
