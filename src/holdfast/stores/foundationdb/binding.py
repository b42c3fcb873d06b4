"""The bridge between the client library and asyncio: futures by their ready callbacks.

Callbacks run on the library's one network thread, so they only pass the word on to the loop that
waits. The same bridge runs over the engine of `holdfast.testing`, which has the binding's names.

Versions: the binding must not be newer than the installed library, or it refuses to start; older
ones work. The extra pins 7.3, whose API version is 730, asked for once in each process. The
network thread does not survive a fork, so the database is opened by the process that uses it.
"""

from __future__ import annotations

import asyncio
import os
from importlib.util import find_spec
from typing import Any

from holdfast.errors import MissingExtra, StoreUnavailable
from holdfast.stores.foundationdb.options import Options

API_VERSION = 730
WANT_ALL = -2
EXACT = 0

Pair = tuple[bytes, bytes]

_started: set[int] = set()
"""The process that has started the library's network, or whose parent has."""


def require() -> None:
    """Refuses where the binding is not installed, naming the extra that brings it."""
    if find_spec("fdb") is None:
        raise MissingExtra(
            field="store", what="fdb://", package="foundationdb", extra="foundationdb"
        )


def open_database(options: Options) -> Any:
    """The database of the cluster file. Blocks for a moment at most: nothing is asked of it yet."""
    import fdb  # type: ignore[import-not-found, unused-ignore]

    if _started - {os.getpid()}:
        why = "FoundationDB was opened before this process was forked; open it after"
        raise StoreUnavailable(store=options.name, why=why)
    try:
        fdb.api_version(API_VERSION)
        database = fdb.open(options.cluster_file)
    except Exception as error:
        # Without the library the binding raises a plain Exception.
        why = f"the client library cannot be used ({error}): install FoundationDB's client"
        raise StoreUnavailable(store=options.name, why=why) from error
    _started.add(os.getpid())
    return database


async def ready(future: Any) -> Any:
    """What a future of the library gives, without blocking the loop."""
    if not future.is_ready():
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()

        def told(_: Any = None) -> None:
            try:
                loop.call_soon_threadsafe(_set, waiter)
            except RuntimeError:
                return  # The loop has closed: nobody waits any more.

        future.on_ready(told)
        try:
            await waiter
        except asyncio.CancelledError:
            future.cancel()
            raise
    return future.wait()


def _set(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def get(reader: Any, key: bytes) -> bytes | None:
    """The value of a key; `reader` is a transaction or its snapshot."""
    return value_of(await ready(reader.get(key)))


async def get_many(reader: Any, keys: list[bytes]) -> list[bytes | None]:
    """The values of many keys, asked for together."""
    futures = [reader.get(key) for key in keys]
    return [value_of(await ready(future)) for future in futures]


def value_of(found: Any) -> bytes | None:
    """Bytes, or None: the binding gives an object of its own that may be absent."""
    if found is None or isinstance(found, bytes):
        return found
    value: bytes | None = found.value
    return value


async def get_range(
    reader: Any, begin: bytes, end: bytes, limit: int = 0, reverse: bool = False
) -> list[Pair]:
    """The pairs of a range, the first `limit` of them (0: all)."""
    found: list[Pair] = []
    while begin < end:
        left = limit - len(found) if limit else 0
        mode = EXACT if limit else WANT_ALL
        page = reader.get_range(begin, end, limit=left, reverse=reverse, streaming_mode=mode)
        # A range iterates by blocking; the future that it has begun with does not.
        first = getattr(page, "_future", None)
        answer, _, more = await ready(page._first if first is None else first)
        pairs = [(bytes(pair.key), bytes(pair.value)) for pair in answer]
        found += pairs
        if not more or not pairs or (limit and len(found) >= limit):
            break
        if reverse:
            end = pairs[-1][0]
        else:
            begin = pairs[-1][0] + b"\0"
    return found
