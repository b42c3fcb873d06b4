"""The SQLite store: one file, any number of processes of one machine. The embedded default.

Writes go through one thread that commits the calls of all callers together (`writer.py`); reads
have threads and connections of their own, and see only what was committed.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar, cast

import msgspec

from holdfast.clock import Clock, Micros, SystemClock
from holdfast.errors import NOT_OPEN, StoreUnavailable
from holdfast.job import Lease, NewJob
from holdfast.lifecycle import Transition
from holdfast.limits import (
    BATCH_MAX,
    CHANGE_MAX,
    CLAIM_MAX,
    EXCLUDE_MAX,
    EXPIRED_MAX,
    PAGE_MAX,
    PRUNE_MAX,
    WAIT_S_MAX,
    within,
)
from holdfast.scope import Explanation, ScopeKind
from holdfast.store import (
    Acked,
    Canceled,
    Capabilities,
    Change,
    Changed,
    Claim,
    Enqueued,
    EventPage,
    Extended,
    Extension,
    Find,
    Hold,
    Lapsed,
    Page,
    Pruned,
    Put,
    Ref,
    Setting,
    Take,
    Tally,
    Watch,
)
from holdfast.stores.bell import Bell
from holdfast.stores.sqlite import (
    claims,
    counting,
    explain,
    filing,
    journey,
    log,
    names,
    packs,
    sight,
    upkeep,
    will,
)
from holdfast.stores.sqlite.connection import open_reader, open_writer, patiently
from holdfast.stores.sqlite.faults import ours
from holdfast.stores.sqlite.forks import check_fork, forget, remember
from holdfast.stores.sqlite.lane import Call, Lane
from holdfast.stores.sqlite.layout import SCHEMA_VERSION
from holdfast.stores.sqlite.options import Options, parse
from holdfast.stores.sqlite.posting import Poster
from holdfast.stores.sqlite.transaction import Transaction
from holdfast.stores.sqlite.turns import Turns
from holdfast.stores.sqlite.wakeup import Doorbell
from holdfast.stores.sqlite.writer import CALLS_MAX, Writer

T = TypeVar("T")

FILE_TRIES_MAX = 3
"""How often a reader has posted jobs filed: others post meanwhile, and their enqueues have not
returned when the reader was called.
"""

POLL_S = 1.0
"""How long a sleeper sleeps at most where other processes cannot wake it."""


class SqliteStore:
    """Any thread that runs an event loop may call; a verb returns after its commit."""

    def __init__(self, options: Options, clock: Clock | None = None) -> None:
        # Resolved once: a later change of the working directory must not change the file.
        self.options = msgspec.structs.replace(options, path=os.path.realpath(options.path))
        self._path = self.options.path
        self._clock = clock or SystemClock()
        self._bell = Bell()
        self._doorbell = Doorbell(self._path, self._bell)
        self._turns = Turns()
        self._writer: Lane[Transaction] | None = None
        self._pages: Lane[sqlite3.Connection] | None = None
        self._peeks: Lane[sqlite3.Connection] | None = None
        self._poster: Poster | None = None
        self._few = True
        """The last claim found few jobs, so the next one may, too."""
        self._owner = 0
        self.capabilities = Capabilities(
            durable=True,
            shared=True,
            encodes=True,
            payload_max=None,
            transactional_enqueue=False,
            native_wakeup=True,
            event_log=options.events,
            time_precision_us=1,
            cluster=False,
            scopes=True,
        )

    @classmethod
    def from_url(cls, url: str, clock: Clock | None = None) -> SqliteStore:
        return cls(parse(url), clock)

    # -- life ------------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._writer is not None and self._owner == os.getpid():
            return
        check_fork(self._path)
        options = self.options
        writer = Writer(options, self._clock, self._committed)
        self._owner = os.getpid()
        self._bell = Bell()  # A new one: after a fork the old one's lock may be held for ever.
        self._doorbell = Doorbell(self._path, self._bell)
        self._writer = Lane(
            "holdfast-write", self._path, lambda: open_writer(options), writer.serve, CALLS_MAX
        )
        # Two, so that a long page never holds up a worker that looks before it sleeps.
        self._pages = self._reader("holdfast-read")
        self._peeks = self._reader("holdfast-peek")
        try:
            for lane in (self._writer, self._pages, self._peeks):
                await lane.start()
            self._poster = Poster(options, self._clock)
        except BaseException:
            await self.close()
            raise
        remember(self, self._path)

    async def close(self) -> None:
        lanes = (self._writer, self._pages, self._peeks)
        self._writer = self._pages = self._peeks = None
        poster, self._poster = self._poster, None
        if self._owner != os.getpid():
            return  # After a fork the threads and the connections are the parent's.
        forget(self)
        if poster is not None:
            poster.close()
        for lane in lanes:
            if lane is not None:
                await lane.stop()
        self._doorbell.close()
        self._bell.ring_all()

    async def migrate(self) -> int:
        check_fork(self._path)

        def connect() -> sqlite3.Connection:
            return open_writer(self.options)

        lane: Lane[sqlite3.Connection] = Lane(
            "holdfast-migrate", self._path, connect, self._read, 1
        )
        await lane.start()
        await lane.stop()
        return SCHEMA_VERSION

    # -- journey ---------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        within("jobs", len(jobs), BATCH_MAX)
        if await self._posted(jobs):
            return [Enqueued(job.id, True) for job in jobs]
        return await self._write(lambda transaction: journey.enqueue(transaction, jobs))

    async def claim(self, claim: Claim) -> list[Lease]:
        within("limit", claim.limit, CLAIM_MAX)
        within("exclude_groups", len(claim.exclude_groups), EXCLUDE_MAX)
        lane, poster = self._mine(self._writer), self._poster
        leases = None
        if poster is not None and self._few:
            leases = poster.lease(claim)
        if leases is None:
            leases = await lane.call(
                lambda transaction: claims.claim(transaction, claim, self._turns),
                idle=lambda connection: claims.idle(connection, claim, self._clock.now()),
                files=True,
            )
            self._few = len(leases) <= claims.FEW
        return leases

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended]:
        within("extensions", len(extensions), BATCH_MAX)
        return await self._write(lambda transaction: journey.extend(transaction, extensions))

    async def ack(self, transitions: Sequence[Transition]) -> list[Acked]:
        within("transitions", len(transitions), BATCH_MAX)
        return await self._write(lambda transaction: journey.ack(transaction, transitions))

    # -- will ------------------------------------------------------------------------------------

    async def cancel(self, refs: Sequence[Ref]) -> list[Canceled]:
        within("refs", len(refs), BATCH_MAX)
        return await self._write(lambda transaction: will.cancel(transaction, refs))

    async def change(self, change: Change) -> Changed:
        within("limit", change.limit, CHANGE_MAX)
        sight.bounded(change.select)
        return await self._write(lambda transaction: will.change(transaction, change))

    # -- upkeep ----------------------------------------------------------------------------------

    async def expired(self, limit: int) -> list[Lapsed]:
        within("limit", limit, EXPIRED_MAX)
        return await self._page_after(
            packs.lapsed,
            lambda transaction: packs.open_lapsed(transaction, limit),
            lambda connection, now: upkeep.expired(connection, limit, now),
        )

    async def prune(self, limit: int, events_keep_us: Micros) -> Pruned:
        within("limit", limit, PRUNE_MAX)
        return await self._write(
            lambda transaction: upkeep.prune(transaction, limit, events_keep_us)
        )

    # -- sight -----------------------------------------------------------------------------------

    async def find(self, find: Find) -> Page:
        within("limit", find.limit, PAGE_MAX)
        sight.bounded(find.select)
        return await self._page_after(
            lambda connection, _: sight.packed(connection, find),
            lambda transaction: sight.open_page(transaction, find),
            lambda connection, now: sight.find(connection, find, now),
        )

    async def count(
        self,
        tenant: str | None,
        *,
        by: ScopeKind = ScopeKind.QUEUE,
        part: str | None = None,
        after: tuple[str, str] | None = None,
        limit: int = PAGE_MAX,
        recount: bool = False,
    ) -> list[Tally]:
        within("limit", limit, PAGE_MAX)
        asked = counting.Asked(tenant=tenant, by=by, part=part, after=after, limit=limit)
        correction = await self._write(counting.recount) if recount else 0
        return await self._page(
            lambda connection, now: counting.count(connection, asked, now, correction)
        )

    async def explain(self, ref: Ref) -> Explanation:
        def look(connection: sqlite3.Connection, now: Micros) -> Explanation | None:
            if claims.overdue(connection, now) or packs.find(connection, ref) is not None:
                return None
            return explain.explain(connection, ref, now)

        def repair(transaction: Transaction) -> Explanation:
            claims.repair(transaction)
            packs.open_named(transaction, [ref])
            return explain.explain(transaction.connection, ref, transaction.now)

        # What a claim would do first is no gate.
        found = await self._page(look)
        return await self._write(repair) if found is None else found

    async def events(
        self, tenant: str | None, after: int, limit: int, job_id: str | None = None
    ) -> EventPage:
        within("limit", limit, PAGE_MAX)
        return await self._page(
            lambda connection, _: log.read(connection, tenant, after, limit, job_id)
        )

    # -- names -----------------------------------------------------------------------------------

    async def settings(
        self, puts: Sequence[Put] = (), *, under: str | None = None
    ) -> list[Setting]:
        within("puts", len(puts), BATCH_MAX)
        puts = [put.checked() for put in puts]
        if not puts and under is not None:
            return await self._page(lambda connection, _: names.settings_under(connection, under))
        return await self._write(lambda transaction: names.put(transaction, puts, under))

    async def hold(self, takes: Sequence[Take] = (), *, under: str | None = None) -> list[Hold]:
        within("takes", len(takes), BATCH_MAX)
        takes = [one.checked() for one in takes]
        if not takes and under is not None:
            return await self._page(
                lambda connection, now: names.holds_under(connection, under, now)
            )
        return await self._write(lambda transaction: names.take(transaction, takes, under))

    # -- wait ------------------------------------------------------------------------------------

    async def wait(self, watch: Watch, timeout_s: float) -> None:
        peeks = self._mine(self._peeks)
        if not self._doorbell.listen() and self.capabilities.native_wakeup:
            self.capabilities = msgspec.structs.replace(self.capabilities, native_wakeup=False)
        longest_s = WAIT_S_MAX if self.capabilities.native_wakeup else POLL_S
        # Listen first, then look: what happens in between is not lost.
        with self._bell.listen(watch) as ear, self._doorbell.watching(watch.job):
            if watch.job is not None:
                await self._page(lambda connection, now: None)
            delay_s = await peeks.call(
                lambda connection: claims.soonest(connection, watch, self._clock.now())
            )
            if self._writer is not None:
                await ear.sleep(min(timeout_s, longest_s, delay_s))

    # -- inside ----------------------------------------------------------------------------------

    async def _write(self, act: Callable[[Transaction], T]) -> T:
        return await self._mine(self._writer).call(act)

    async def _posted(self, jobs: Sequence[NewJob]) -> bool:
        """True when the jobs were kept the short way."""
        self._mine(self._writer)
        poster = self._poster
        parcels = None if poster is None or not jobs else poster.parcels(jobs)
        if poster is None or parcels is None:
            return False
        if poster.flushes and poster.others():
            # Those who call at the same time come to share one commit. A lone caller mostly does
            # not wait for them: it takes 20 us, a tenth of an enqueue.
            await asyncio.sleep(0)
        lines = poster.post(parcels)
        if lines is None:
            return False
        self._doorbell.ring(lines, [])
        return True

    async def _page(self, look: Callable[[sqlite3.Connection, Micros], T]) -> T:
        """What is seen of one instant, with all jobs in their places."""

        def seen(connection: sqlite3.Connection) -> tuple[bool, T | None]:
            if filing.unfiled(connection):
                return False, None
            return True, look(connection, self._clock.now())

        lane = self._mine(self._pages)
        for _ in range(FILE_TRIES_MAX):
            filed, found = await lane.call(seen)
            if filed:
                return cast(T, found)
            await self._write(lambda transaction: None)  # Whoever writes files first.
        return await lane.call(lambda connection: look(connection, self._clock.now()))

    async def _page_after(
        self,
        asks: Callable[[sqlite3.Connection, Micros], bool],
        act: Callable[[Transaction], None],
        look: Callable[[sqlite3.Connection, Micros], T],
    ) -> T:
        """What is seen, after the writer has acted if that is asked for."""

        def first(connection: sqlite3.Connection, now: Micros) -> tuple[bool, T | None]:
            return (True, None) if asks(connection, now) else (False, look(connection, now))

        waits, found = await self._page(first)
        if waits:
            await self._write(act)
            found = await self._page(look)
        return cast(T, found)

    def _mine(self, lane: Lane[T] | None) -> Lane[T]:
        """The lane, if the store is open and opened by this very process."""
        if lane is None:
            raise StoreUnavailable(store=self._path, why=NOT_OPEN)
        if self._owner != os.getpid():
            why = "it was opened before a fork; close it before, and open it in the child process"
            raise StoreUnavailable(store=self._path, why=why)
        return lane

    def _reader(self, name: str) -> Lane[sqlite3.Connection]:
        return Lane(name, self._path, lambda: open_reader(self.options), self._read, 1)

    def _read(self, connection: sqlite3.Connection, calls: list[Call[sqlite3.Connection]]) -> None:
        for call in calls:
            try:
                look = partial(_snapshot, connection, call.act)
                call.answer = patiently(self.options.busy_s, look)
            except BaseException as error:
                call.error = ours(error, self._path)

    def _committed(self, transaction: Transaction) -> None:
        self._doorbell.ring(transaction.lines, transaction.ended)


def _snapshot(connection: sqlite3.Connection, act: Callable[[sqlite3.Connection], T]) -> T:
    """What `act` reads, all of it of one instant."""
    connection.execute("BEGIN")
    try:
        return act(connection)
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")
