"""The one writer of a process: calls that wait at the same time share one transaction.

    callers --Call--> ConnectionThread --[Call, ...]--> BEGIN IMMEDIATE
                                                          SAVEPOINT, call 1, RELEASE
                                                          SAVEPOINT, call 2, ROLLBACK TO (fails)
                                                          ...
                                                          limits, counts, events, counters
                                                        COMMIT                 (one fsync)
    callers <-- answers <-- sleepers are woken

While a commit waits for the disk the next calls gather, so the busier it is the larger the batches.

A small call runs the same transaction in the caller's own thread while the writer is idle: that
saves two switches between threads, more than the transaction itself takes. The event loop of the
caller stands still meanwhile, so this is done only while commits are fast, without waiting for
other processes, and without writing the log back into the database file.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from holdfast.core.clock import Clock
from holdfast.stores.sqlite.connection import checkpoint_pages, open_writer, patiently
from holdfast.stores.sqlite.connection_thread import Call, ConnectionThread
from holdfast.stores.sqlite.errors import is_busy, translated
from holdfast.stores.sqlite.limits import apply_limits
from holdfast.stores.sqlite.migrate import check_version
from holdfast.stores.sqlite.options import Options
from holdfast.stores.sqlite.scope_cache import ScopeCache
from holdfast.stores.sqlite.transaction import LastCommit, Transaction

T = TypeVar("T")

CALLS_MAX = 256
"""Calls of one transaction."""
INLINE_JOBS_MAX = 8
"""Jobs of a call that may run in the caller's thread."""
INLINE_COMMIT_S_MAX = 0.002
"""How long a commit may take for the next call to run in the caller's thread."""
FAST_COMMITS = 3
"""So many commits in a row must have been fast."""
INLINE_RUN_MAX = 128
"""After so many calls in callers' threads one goes to the writer's thread, which writes the log
back into the database file when it is long.
"""

Write = Call[Transaction]


class Writer:
    """Runs the writing calls of one open store."""

    def __init__(
        self, options: Options, clock: Clock, committed: Callable[[Transaction], None]
    ) -> None:
        self._options = options
        self._clock = clock
        self._committed = committed
        self._scope_cache = ScopeCache()
        self._last = LastCommit()
        self._fast_commits = 0
        self._inline_run = 0
        self._checkpoints = True
        """Whether a commit may write the log back."""
        self._thread: ConnectionThread[Transaction] = ConnectionThread(
            "holdfast-write", options.path, lambda: open_writer(options), self.serve, CALLS_MAX
        )

    async def start(self) -> None:
        await self._thread.start()

    async def stop(self) -> None:
        await self._thread.stop()

    async def write(
        self,
        act: Callable[[Transaction], T],
        *,
        jobs: int = INLINE_JOBS_MAX + 1,
        idle: Callable[[sqlite3.Connection], bool] | None = None,
    ) -> T:
        """The answer of `act` after its commit. `jobs` is how many jobs and edges it is about."""
        call: Write = Call(act, idle)
        if jobs <= INLINE_JOBS_MAX and self._serve_inline(call):
            await asyncio.sleep(0)  # Callers in a row must not keep the loop from its other tasks.
            if call.error is not None:
                raise call.error
        else:
            await self._thread.submit(call)
        answer: T = call.answer
        return answer

    def _serve_inline(self, call: Write) -> bool:
        """Runs the call in this thread; False when the writer's thread must run it."""
        if self._fast_commits < FAST_COMMITS or self._inline_run >= INLINE_RUN_MAX:
            return False
        connection = self._thread.borrow()
        if connection is None:
            return False
        try:
            self._inline_run += 1
            self._serve(connection, [call], inline=True)
        except sqlite3.OperationalError as error:
            if is_busy(error):
                return False
            call.error = translated(error, self._options.path)
        except BaseException as error:
            call.error = translated(error, self._options.path)
        finally:
            self._thread.give_back()
        return True

    def serve(self, connection: sqlite3.Connection, calls: list[Write]) -> None:
        """Gives each call its answer or its error; raises when all of them failed together."""
        self._inline_run = 0
        self._serve(connection, calls, inline=False)

    def _serve(self, connection: sqlite3.Connection, calls: list[Write], inline: bool) -> None:
        busy_s = 0.0 if inline else self._options.busy_s
        _roll_back(connection)  # If that failed when it was due.
        self._allow_checkpoints(connection, not inline)
        if self._idle(connection, calls, busy_s):
            return
        begin = partial(connection.execute, "BEGIN IMMEDIATE")
        while calls:
            patiently(busy_s, begin)
            try:
                # A call that made SQLite drop the transaction leaves; the others try again.
                calls = self._commit(connection, calls)
            except BaseException:
                self._scope_cache.clear()
                _roll_back(connection)
                raise

    def _allow_checkpoints(self, connection: sqlite3.Connection, allow: bool) -> None:
        if allow != self._checkpoints:
            pages = checkpoint_pages(self._options) if allow else 0
            connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")
            self._checkpoints = allow

    def _idle(self, connection: sqlite3.Connection, calls: list[Write], busy_s: float) -> bool:
        """True when no call has anything to do: then the write lock is not taken."""
        for call in calls:
            if call.idle is None:
                return False
        patiently(busy_s, lambda: check_version(connection, self._options.path))
        for call in calls:
            assert call.idle is not None
            if not patiently(busy_s, partial(call.idle, connection)):
                return False
        for call in calls:
            call.answer = []
        return True

    def _commit(self, connection: sqlite3.Connection, calls: list[Write]) -> list[Write]:
        """Runs the calls in the open transaction; returns those that must run again."""
        self._last.sync(connection, self._options.path)
        transaction = Transaction(connection, self._options.events, self._scope_cache, self._last)
        run = self._run if len(calls) > 1 else self._run_alone
        for call in calls:
            run(transaction, call)
            if not connection.in_transaction:
                if self._scope_cache.version != self._last.counters[2]:
                    self._scope_cache.clear()  # It has settings that were rolled back.
                return [other for other in calls if other is not call and other.error is None]
        apply_limits(transaction)
        transaction.flush()
        started = time.monotonic()
        connection.execute("COMMIT")
        self._last.keep(transaction.counters)
        fast = time.monotonic() - started <= INLINE_COMMIT_S_MAX
        self._fast_commits = self._fast_commits + 1 if fast else 0
        self._committed(transaction)
        return []

    def _run_alone(self, transaction: Transaction, call: Write) -> None:
        """Without a savepoint: if it fails, the whole transaction is rolled back."""
        try:
            transaction.now = self._clock.now()
            call.answer = call.act(transaction)
        except BaseException as error:
            call.error = translated(error, self._options.path)
            _roll_back(transaction.connection)

    def _run(self, transaction: Transaction, call: Write) -> None:
        connection = transaction.connection
        mark = transaction.mark()
        try:
            connection.execute("SAVEPOINT one")
            transaction.now = self._clock.now()
            call.answer = call.act(transaction)
            connection.execute("RELEASE one")
        except BaseException as error:
            call.error = translated(error, self._options.path)
            transaction.forget(mark)
            if connection.in_transaction:
                connection.execute("ROLLBACK TO one")
                connection.execute("RELEASE one")


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")
