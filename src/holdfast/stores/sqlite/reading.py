"""Reads: pages in two lanes, and a third for workers that look before they sleep.

A page is read in the quick lane first, for QUICK_READ_S at most. What takes longer starts again in
the lane of searches, for READ_S_MAX at most, so that one slow search holds up none of the others'
lists. While a tenant has one there, its other searches go there at once, SEARCHES_MAX at most; what
is looked up by name does not. A read whose caller has gone ends.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from holdfast import limits
from holdfast.clock import Clock, Micros
from holdfast.errors import InvalidInput, StoreUnavailable
from holdfast.stores.sqlite.connection import open_reader, patiently
from holdfast.stores.sqlite.faults import is_interrupted, ours
from holdfast.stores.sqlite.lane import Call, Lane
from holdfast.stores.sqlite.migrate import check
from holdfast.stores.sqlite.options import Options

T = TypeVar("T")

Look = Callable[[sqlite3.Connection, Micros], T]

STEPS = 10_000
"""Instructions of SQLite between two looks at the time: well under a millisecond."""


class _TooLong(Exception):
    """The time of a read was over."""


class Readers:
    """The lanes of one open store."""

    def __init__(self, options: Options, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._quick = self._lane("holdfast-read", lambda: limits.QUICK_READ_S)
        self._searches = self._lane("holdfast-search", lambda: limits.READ_S_MAX)
        self._peeks = self._lane("holdfast-peek", lambda: limits.READ_S_MAX)
        self._slow: Counter[str] = Counter()
        """How many searches of each tenant are under way."""

    async def start(self) -> None:
        for lane in (self._quick, self._searches, self._peeks):
            await lane.start()

    async def stop(self) -> None:
        for lane in (self._quick, self._searches, self._peeks):
            await lane.stop()

    async def peek(self, look: Look[T]) -> T:
        """What a worker sees before it sleeps."""
        return await self._in_time(self._peeks, look)

    async def page(self, look: Look[T], searches: str | None = None) -> T:
        """What is seen of one instant; `searches` is the tenant who may have it read for long.
        InvalidInput when it cannot be read in time.
        """

        def quick(connection: sqlite3.Connection) -> T:
            if searches is not None and self._slow[searches]:
                raise _TooLong
            return look(connection, self._clock.now())

        try:
            return await self._quick.call(quick)
        except _TooLong:
            with self._share(searches):
                return await self._in_time(self._searches, look)

    async def _in_time(self, lane: Lane[sqlite3.Connection], look: Look[T]) -> T:
        try:
            return await lane.call(lambda connection: look(connection, self._clock.now()))
        except _TooLong:
            why = (
                f"took longer than {limits.READ_S_MAX:g} s; narrow it by tenant, queue, state, "
                "time or ids, or ask for a smaller page"
            )
            raise InvalidInput(field="search", why=why) from None

    @contextmanager
    def _share(self, tenant: str | None) -> Iterator[None]:
        """The tenant's share of the lane of searches."""
        if tenant is None:
            yield
            return
        if self._slow[tenant] >= limits.SEARCHES_MAX:
            why = (
                f"{limits.SEARCHES_MAX} slow searches of tenant {tenant!r} are under way; try later"
            )
            raise StoreUnavailable(store=self._options.path, why=why)
        self._slow[tenant] += 1
        try:
            yield
        finally:
            self._slow[tenant] -= 1
            if not self._slow[tenant]:
                del self._slow[tenant]

    def _lane(self, name: str, most_s: Callable[[], float]) -> Lane[sqlite3.Connection]:
        options = self._options
        serve = partial(self._read, most_s)
        return Lane(name, options.path, lambda: open_reader(options), serve, 1)

    def _read(
        self,
        most_s: Callable[[], float],
        connection: sqlite3.Connection,
        calls: list[Call[sqlite3.Connection]],
    ) -> None:
        for call in calls:
            over = _over(time.monotonic() + most_s(), call)
            if over():
                continue  # The caller has gone meanwhile.
            connection.set_progress_handler(over, STEPS)
            try:
                look = partial(_snapshot, connection, call.act, self._options.path)
                call.answer = patiently(self._options.busy_s, look)
            except sqlite3.Error as error:
                late = is_interrupted(error)
                call.error = _TooLong() if late else ours(error, self._options.path)
            except BaseException as error:
                call.error = ours(error, self._options.path)
            finally:
                connection.set_progress_handler(None, 0)


def _over(deadline: float, call: Call[sqlite3.Connection]) -> Callable[[], bool]:
    """Says whether a read need not go on."""
    return lambda: time.monotonic() > deadline or call.future.cancelled()


def _snapshot(
    connection: sqlite3.Connection, act: Callable[[sqlite3.Connection], T], path: str
) -> T:
    """What `act` reads, all of it of one instant."""
    connection.execute("BEGIN")
    try:
        check(connection, path)
        return act(connection)
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")
