"""The short ways in and out, from the caller's own thread: plain jobs are posted in one statement,
and an idle worker leases the few that it was woken for.

To hand a call to the writer's thread and its answer back takes longer than to write a job. So jobs
that may be packed are appended to `posted`, without an index, a count or a place in line; the
next transaction of any process files them (`packs.file`), and whoever looks has them filed first.

The event loop stands still meanwhile, so this is for quick writes only: while somebody else writes,
while the disk is slow, and when much was posted, calls go to the writer, who shares its commits.
"""

from __future__ import annotations

import asyncio
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from holdfast.clock import Clock
from holdfast.job import Lease, NewJob
from holdfast.store import Claim
from holdfast.stores.bell import Line
from holdfast.stores.sqlite import pack_statements as sql
from holdfast.stores.sqlite.claims import take_posted
from holdfast.stores.sqlite.connection import LOG_PAGES, lengthen_log, open_poster
from holdfast.stores.sqlite.faults import is_busy, ours
from holdfast.stores.sqlite.filing import unfiled
from holdfast.stores.sqlite.options import Options
from holdfast.stores.sqlite.packing import Alike, Texts, alike, encode
from holdfast.stores.sqlite.rules import Rules
from holdfast.stores.sqlite.transaction import Transaction

T = TypeVar("T")

SLOW_S = 0.001
"""When writes take longer than this on average, the event loop stands still for too long."""
SHARE = 0.02
"""What the last write counts in that average: a few that were slow by chance change little. To rest
costs more than they do: a call takes twice as long on its way through the writer.
"""
REST_S = 1.0
"""For so long nothing is done here after that."""
IN_A_ROW_MAX = 32
"""Posts of one task that nothing else on its event loop comes between."""

_open: set[Poster] = set()
"""Keeps those of a parent process from being collected in a forked child: a connection must not be
closed by a process that did not open it.
"""


class Poster:
    """Posts, or says that the writer must see to it. For any thread of one process."""

    def __init__(self, options: Options, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._connection = open_poster(options)
        self._lock = threading.Lock()
        self._rules = Rules()
        self._texts = Texts()
        self._pace_s = 0.0
        self._starved_s = _starved_s()
        self._rest_until = 0.0
        self._task = 0
        self._calls = 0
        self.flushes = options.synchronous == "full"
        """Whether each commit waits for the disk."""
        # The writer files what was posted, and keeps the log short: a parcel is about a page of it.
        self.posts_max = LOG_PAGES[options.synchronous]
        """Every so many times the writer is asked."""
        _open.add(self)

    def others(self) -> bool:
        """True when others may be waiting: the task that called last was another one, or this one
        called many times in a row.
        """
        before, self._task = self._task, id(asyncio.current_task())
        return before != self._task or self._calls % IN_A_ROW_MAX == 0

    def close(self) -> None:
        """From now on nothing is done here."""
        with self._lock:
            self._rest_until = math.inf
            self._connection.close()
        _open.discard(self)

    def parcels(self, jobs: Sequence[NewJob]) -> list[Alike] | None:
        """The jobs as they can be posted; None when they cannot."""
        return alike(jobs, self._texts)

    def post(self, parcels: list[Alike]) -> set[Line] | None:
        """The lines that the jobs came into; None when nothing was done."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            started = time.monotonic()
            self._calls += 1
            if started < self._rest_until or self._calls % self.posts_max == 0:
                return None
            lines = {parcel.line for parcel in parcels}
            if self._rules.tenants and any(line[0] in self._rules.tenants for line in lines):
                return None  # There may be a cap to keep.
            if self._calls == 2 and self.flushes:  # Who comes again will go on coming.
                self._tried(lambda: lengthen_log(self._connection, self._options))
            posted = self._tried(lambda: self._write(parcels))
            self._rest(started)
            return lines if posted else None
        finally:
            self._lock.release()

    def lease(self, claim: Claim) -> list[Lease] | None:
        """The few jobs that were posted for an idle worker; None when nothing was done."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            started = time.monotonic()
            if started < self._rest_until:
                return None
            leases = self._tried(lambda: self._lease(claim))
            self._rest(started)
            return leases
        finally:
            self._lock.release()

    def _lease(self, claim: Claim) -> list[Lease] | None:
        connection = self._connection
        if not unfiled(connection):
            return None
        connection.execute("BEGIN IMMEDIATE")
        transaction = Transaction(connection, self._options.events, self._rules)
        transaction.now = self._clock.now()
        leases = take_posted(transaction, claim)
        if leases is None:
            connection.execute("ROLLBACK")
            return None
        transaction.flush()
        connection.execute("COMMIT")
        return leases

    def _rest(self, started: float) -> None:
        """Leaves the next calls to the writer, if writing has become slow."""
        now = time.monotonic()
        took_s = now - started
        if took_s > SLOW_S:
            starved_s = _starved_s()
            took_s -= min(took_s, max(0.0, starved_s - self._starved_s))
            self._starved_s = starved_s
        self._pace_s += SHARE * (took_s - self._pace_s)
        if self._pace_s > SLOW_S:
            self._pace_s = SLOW_S / 2
            self._rest_until = now + REST_S

    def _tried(self, act: Callable[[], T]) -> T | None:
        """What it gives; None while somebody else writes. Raises errors of our tree."""
        try:
            return act()
        except BaseException as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error) and is_busy(error):
                return None
            fault = ours(error, self._options.path)
            if fault is error:
                raise
            raise fault from error

    def _write(self, parcels: list[Alike]) -> bool:
        """False when settings have changed: nothing was written then."""
        connection = self._connection
        now, version = self._clock.now(), self._rules.version
        rows = [
            (
                parcel.head,
                now,
                parcel.size,
                len(parcel.ids),
                encode(parcel.ids),
                encode(parcel.bodies),
                version,
            )
            for parcel in parcels
        ]
        if len(rows) == 1:
            written = connection.execute(sql.POST, rows[0]).rowcount
        else:
            written = self._write_all(rows)
        if written < len(rows):
            (scopes,) = connection.execute(sql.SCOPES).fetchone()
            self._rules.sync(connection, scopes)
        return written == len(rows)

    def _write_all(self, rows: list[tuple[Any, ...]]) -> int:
        """All of them or none."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        written = sum(connection.execute(sql.POST, row).rowcount for row in rows)
        connection.execute("COMMIT" if written == len(rows) else "ROLLBACK")
        return written


def _starved_s() -> float:
    """How long this thread has waited for a processor in its life; 0 where the system does not say.

    That is not the disk's fault, and the writer's thread would have to wait as well: on a machine
    with twice as many busy threads as cores, calls on their way through it took twice as long.
    """
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
