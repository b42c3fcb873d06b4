"""The one writer of a process: calls that wait at the same time share one transaction.

    callers --Call--> Lane --[Call, ...]--> BEGIN IMMEDIATE
                                              SAVEPOINT, call 1, RELEASE        (not for one alone)
                                              SAVEPOINT, call 2, ROLLBACK TO    (fails alone)
                                              ...
                                              what has room now, counts, events, heads
                                            COMMIT                              (one fsync)
    callers <-- answers -- sleepers are rung

While a commit waits for the disk the next calls gather, so the busier it is the larger the batches.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial

from holdfast.clock import Clock
from holdfast.stores.sqlite.connection import patiently
from holdfast.stores.sqlite.faults import ours
from holdfast.stores.sqlite.gates import open_up
from holdfast.stores.sqlite.lane import Call
from holdfast.stores.sqlite.migrate import check
from holdfast.stores.sqlite.options import Options
from holdfast.stores.sqlite.rules import Rules
from holdfast.stores.sqlite.transaction import Transaction

CALLS_MAX = 256
"""Calls of one transaction."""

Write = Call[Transaction]


class Writer:
    """What the writer's lane does with a batch of calls."""

    def __init__(
        self, options: Options, clock: Clock, committed: Callable[[Transaction], None]
    ) -> None:
        self._options = options
        self._clock = clock
        self._committed = committed
        self._rules = Rules()

    def serve(self, connection: sqlite3.Connection, calls: list[Write]) -> None:
        """Gives each call its answer or its error; raises when all of them failed together."""
        _roll_back(connection)  # If that failed when it was due.
        if self._idle(connection, calls):
            return
        try:
            while calls:
                # A call that made SQLite drop the transaction leaves; the others try again.
                calls = self._commit(connection, calls)
        except BaseException:
            self._rules.clear()
            _roll_back(connection)
            raise

    def _idle(self, connection: sqlite3.Connection, calls: list[Write]) -> bool:
        """True when none of them has anything to do: then the write lock is not even asked for."""
        if any(call.idle is None for call in calls):
            return False
        patiently(self._options.busy_s, lambda: check(connection, self._options.path))
        for call in calls:
            assert call.idle is not None
            if not patiently(self._options.busy_s, partial(call.idle, connection)):
                return False
        for call in calls:
            call.answer = []
        return True

    def _commit(self, connection: sqlite3.Connection, calls: list[Write]) -> list[Write]:
        """Runs the calls in one transaction; returns those that must run again."""
        patiently(self._options.busy_s, lambda: connection.execute("BEGIN IMMEDIATE"))
        check(connection, self._options.path)
        transaction = Transaction(connection, self._options.events, self._rules)
        run = self._run if len(calls) > 1 else self._run_alone
        for call in calls:
            run(transaction, call)
            if not connection.in_transaction:
                self._rules.clear()
                return [other for other in calls if other is not call and other.error is None]
        open_up(transaction)
        transaction.flush()
        connection.execute("COMMIT")
        self._committed(transaction)
        return []

    def _run_alone(self, transaction: Transaction, call: Write) -> None:
        """Without a savepoint: should it fail, the whole transaction goes."""
        try:
            transaction.now = self._clock.now()
            call.answer = call.act(transaction)
        except BaseException as error:
            call.error = ours(error, self._options.path)
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
            call.error = ours(error, self._options.path)
            transaction.forget(mark)
            if connection.in_transaction:
                connection.execute("ROLLBACK TO one")
                connection.execute("RELEASE one")


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")
