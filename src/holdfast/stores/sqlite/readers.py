"""Reads: three threads, each with a connection: two for pages, one for workers that go to sleep.

The first thread reads a page for QUICK_READ_S at most. A read that takes longer starts again in the
search thread, for READ_S_MAX at most, so that a slow search does not delay other pages. While a
tenant has a search there, its other searches go there at once, SEARCHES_MAX at most; reads by id do
not. A read whose caller was canceled ends.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from holdfast.core import bounds
from holdfast.core.clock import Clock, Micros
from holdfast.core.errors import InvalidInput, StoreUnavailable
from holdfast.stores.sqlite.connection import open_reader, patiently
from holdfast.stores.sqlite.connection_thread import Call, ConnectionThread
from holdfast.stores.sqlite.errors import is_interrupted, translated
from holdfast.stores.sqlite.migrate import check_version
from holdfast.stores.sqlite.options import Options

T = TypeVar("T")

Read = Callable[[sqlite3.Connection, Micros], T]

STEPS = 10_000
"""Virtual machine instructions between two checks of the time: well under a millisecond."""


class _TooLong(Exception):
    """A read took longer than it may."""


class Readers:
    """The reading threads of one open store."""

    def __init__(self, options: Options, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._pages = self._make("holdfast-read", lambda: bounds.QUICK_READ_S)
        self._searches = self._make("holdfast-search", lambda: bounds.READ_S_MAX)
        self._peeks = self._make("holdfast-peek", lambda: bounds.READ_S_MAX)
        self._slow: Counter[str] = Counter()
        """How many searches of each tenant are under way."""

    async def start(self) -> None:
        for thread in (self._pages, self._searches, self._peeks):
            await thread.start()

    async def stop(self) -> None:
        for thread in (self._pages, self._searches, self._peeks):
            await thread.stop()

    async def peek(self, read: Read[T]) -> T:
        """Reads for a worker that is about to sleep."""
        return await self._in_time(self._peeks, read)

    async def page(self, read: Read[T], searches: str | None = None) -> T:
        """Reads one snapshot. `searches` is the tenant whose jobs are searched, if any.

        InvalidInput when the read takes too long.
        """

        def first_try(connection: sqlite3.Connection) -> T:
            if searches is not None and self._slow[searches]:
                raise _TooLong
            return read(connection, self._clock.now())

        try:
            return await self._pages.call(first_try)
        except _TooLong:
            with self._share(searches):
                return await self._in_time(self._searches, read)

    async def _in_time(self, thread: ConnectionThread[sqlite3.Connection], read: Read[T]) -> T:
        try:
            return await thread.call(lambda connection: read(connection, self._clock.now()))
        except _TooLong:
            why = (
                f"took longer than {bounds.READ_S_MAX:g} s; narrow it by tenant, queue, state, "
                "time or ids, or ask for a smaller page"
            )
            raise InvalidInput(field="search", why=why) from None

    @contextmanager
    def _share(self, tenant: str | None) -> Iterator[None]:
        """Counts a search of the tenant; refuses one too many."""
        if tenant is None:
            yield
            return
        if self._slow[tenant] >= bounds.SEARCHES_MAX:
            why = (
                f"{bounds.SEARCHES_MAX} slow searches of tenant {tenant!r} are under way; try later"
            )
            raise StoreUnavailable(store=self._options.path, why=why)
        self._slow[tenant] += 1
        try:
            yield
        finally:
            self._slow[tenant] -= 1
            if not self._slow[tenant]:
                del self._slow[tenant]

    def _make(self, name: str, most_s: Callable[[], float]) -> ConnectionThread[sqlite3.Connection]:
        options = self._options
        serve = partial(self._read, most_s)
        return ConnectionThread(name, options.path, lambda: open_reader(options), serve, 1)

    def _read(
        self,
        most_s: Callable[[], float],
        connection: sqlite3.Connection,
        calls: list[Call[sqlite3.Connection]],
    ) -> None:
        for call in calls:
            over = _over(time.monotonic() + most_s(), call)
            if over():
                continue  # The caller was canceled.
            try:
                snapshot = partial(_snapshot, connection, call.act, over, self._options.path)
                call.answer = patiently(self._options.busy_s, snapshot)
            except sqlite3.Error as error:
                late = is_interrupted(error)
                call.error = _TooLong() if late else translated(error, self._options.path)
            except BaseException as error:
                call.error = translated(error, self._options.path)


def _over(deadline: float, call: Call[sqlite3.Connection]) -> Callable[[], bool]:
    """Says whether a read shall end."""
    return lambda: time.monotonic() > deadline or call.abandoned


def _snapshot(
    connection: sqlite3.Connection,
    act: Callable[[sqlite3.Connection], T],
    over: Callable[[], bool],
    path: str,
) -> T:
    """What `act` reads before it is over, all of it in one read transaction."""
    connection.execute("BEGIN")
    try:
        connection.set_progress_handler(over, STEPS)
        check_version(connection, path)
        return act(connection)
    finally:
        # If it interrupted the COMMIT, all later reads would find the transaction open.
        connection.set_progress_handler(None, 0)
        if connection.in_transaction:
            connection.execute("COMMIT")
