"""The bridge between the client library and asyncio: awaits futures by their ready callbacks.

Callbacks run on the library's one network thread, so they only wake the event loop that waits.
The same bridge runs over `tests/foundationdb_engine`, which has the binding's names.

Versions: the binding must not be newer than the installed library, or it refuses to start; older
ones work. The extra pins 7.3, whose API version is 730, selected once in each process. The
network thread does not survive a fork, so the database is opened by the process that uses it.
"""

from __future__ import annotations

import asyncio
import os
from importlib.util import find_spec
from typing import Any

from holdfast.core.errors import MissingExtra, StoreUnavailable
from holdfast.stores.foundationdb.errors import code_of, ours
from holdfast.stores.foundationdb.options import Options

API_VERSION = 730
WANT_ALL = -2
EXACT = 0

Pair = tuple[bytes, bytes]

_started: set[int] = set()
"""The ids of processes that have started the library's network: this one or an ancestor."""


def require() -> None:
    """Refuses where the binding is not installed, naming the extra that brings it."""
    if find_spec("fdb") is None:
        raise MissingExtra(
            field="store", what="fdb://", package="foundationdb", extra="foundationdb"
        )


def open_database(options: Options) -> Any:
    """The database of the cluster file. Blocks for a moment at most: nothing is requested yet."""
    import fdb  # type: ignore[import-not-found, import-untyped, unused-ignore]

    if _started - {os.getpid()}:
        why = "FoundationDB was opened before this process was forked; open it after"
        raise StoreUnavailable(store=options.name, why=why)
    try:
        fdb.api_version(API_VERSION)
        database = fdb.open(options.cluster_file)
    except Exception as error:
        if code_of(error) is not None:
            raise ours(error, options.name) from error
        # Without the library the binding raises a plain Exception.
        why = f"the client library cannot be used ({error}): install FoundationDB's client"
        raise StoreUnavailable(store=options.name, why=why) from error
    _started.add(os.getpid())
    return database


async def ready(future: Any) -> Any:
    """The result of a future of the library, without blocking the event loop."""
    if not future.is_ready():
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()

        def wake(_: Any = None) -> None:
            try:
                loop.call_soon_threadsafe(_set, waiter)
            except RuntimeError:
                return  # The loop has closed: nobody waits any more.

        future.on_ready(wake)
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


def value_of(found: Any) -> bytes | None:
    """The bytes of a value, or None. The binding returns an object of its own, which may be absent
    and claims to be bytes.
    """
    if type(found) is bytes:
        return found
    value: bytes | None = None if found is None else found.value
    return value


def ask_range(reader: Any, span: Pair, limit: int, reverse: bool = False) -> Any:
    """Requests the first pairs of a range (0: all); `pairs` waits for them."""
    mode = EXACT if limit else WANT_ALL
    return reader.get_range(*span, limit=limit, reverse=reverse, streaming_mode=mode)


async def get_range(
    reader: Any, begin: bytes, end: bytes, limit: int = 0, reverse: bool = False
) -> list[Pair]:
    """The pairs of a range, the first `limit` of them (0: all)."""
    return await pairs(reader, (begin, end), limit, reverse)


async def pairs(
    reader: Any, span: Pair, limit: int, reverse: bool, page: Any | None = None
) -> list[Pair]:
    """The pairs of a range, whose first page may have been requested already."""
    begin, end = span
    found: list[Pair] = []
    while begin < end:
        if page is None:
            left = limit - len(found) if limit else 0
            page = ask_range(reader, (begin, end), left, reverse)
        # A range iterates by blocking; the future that it has begun with does not.
        first = getattr(page, "_future", None)
        answer, _, more = await ready(page._first if first is None else first)
        some = [(bytes(pair.key), bytes(pair.value)) for pair in answer]
        found += some
        if not more or not some or (limit and len(found) >= limit):
            break
        page = None
        if reverse:
            end = some[-1][0]
        else:
            begin = some[-1][0] + b"\0"
    return found
