"""The SQLite store: one file, any number of processes of one machine. The embedded default.

Writes go through one thread that commits the calls of all callers together (`writer.py`); reads
have threads and connections of their own, and see only what was committed (`reading.py`).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from holdfast.clock import Clock, Micros, SystemClock
from holdfast.errors import NOT_OPEN, StoreUnavailable
from holdfast.job import By, Lease, NewJob
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
    Selection,
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
    journey,
    log,
    names,
    sight,
    upkeep,
    will,
)
from holdfast.stores.sqlite.connection import open_writer
from holdfast.stores.sqlite.forks import check_fork, forget, remember
from holdfast.stores.sqlite.lane import Call, Lane
from holdfast.stores.sqlite.layout import SCHEMA_VERSION
from holdfast.stores.sqlite.options import Options, parse
from holdfast.stores.sqlite.reading import Readers
from holdfast.stores.sqlite.transaction import Transaction
from holdfast.stores.sqlite.turns import Turns
from holdfast.stores.sqlite.wakeup import Doorbell
from holdfast.stores.sqlite.writer import CALLS_MAX, Writer

T = TypeVar("T")
X = TypeVar("X")

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
        self._readers: Readers | None = None
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
        self._readers = Readers(options, self._clock)
        try:
            await self._writer.start()
            await self._readers.start()
        except BaseException:
            await self.close()
            raise
        remember(self, self._path)

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        readers, self._readers = self._readers, None
        if self._owner != os.getpid():
            return  # After a fork the threads and the connections are the parent's.
        forget(self)
        if writer is not None:
            await writer.stop()
        if readers is not None:
            await readers.stop()
        self._doorbell.close()
        self._bell.ring_all()

    async def migrate(self) -> int:
        check_fork(self._path)

        def connect() -> sqlite3.Connection:
            return open_writer(self.options, may_migrate=True)

        def nothing(_: sqlite3.Connection, calls: list[Call[None]]) -> None:
            assert not calls, "all that it does is to open"

        lane: Lane[None] = Lane("holdfast-migrate", self._path, connect, nothing, 1)
        await lane.start()
        await lane.stop()
        return SCHEMA_VERSION

    # -- journey ---------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        within("jobs", len(jobs), BATCH_MAX)
        return await self._write(lambda transaction: journey.enqueue(transaction, jobs))

    async def claim(self, claim: Claim) -> list[Lease]:
        within("limit", claim.limit, CLAIM_MAX)
        within("exclude_groups", len(claim.exclude_groups), EXCLUDE_MAX)
        return await self._mine(self._writer).call(
            lambda transaction: claims.claim(transaction, claim, self._turns),
            idle=lambda connection: claims.idle(connection, claim, self._clock.now()),
        )

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended]:
        within("extensions", len(extensions), BATCH_MAX)
        return await self._write(lambda transaction: journey.extend(transaction, extensions))

    async def ack(self, transitions: Sequence[Transition]) -> list[Acked]:
        within("transitions", len(transitions), BATCH_MAX)
        return await self._write(lambda transaction: journey.ack(transaction, transitions))

    # -- will ------------------------------------------------------------------------------------

    async def cancel(self, refs: Sequence[Ref], *, by: By | None = None) -> list[Canceled]:
        within("refs", len(refs), BATCH_MAX)
        signed = _signed(by)
        return await self._write(lambda transaction: will.cancel(transaction, refs, signed))

    async def change(self, change: Change) -> Changed:
        within("limit", change.limit, CHANGE_MAX)
        sight.bounded(change.select)
        _signed(change.by)
        seqs = await self._page(
            lambda connection, now: will.candidates(connection, change, now),
            _searches(change.select),
        )
        if not seqs:
            return Changed({}, None)
        return await self._write(lambda transaction: will.change(transaction, change, seqs))

    # -- upkeep ----------------------------------------------------------------------------------

    async def expired(self, limit: int) -> list[Lapsed]:
        within("limit", limit, EXPIRED_MAX)
        return await self._page(lambda connection, now: upkeep.expired(connection, limit, now))

    async def prune(self, limit: int, events_keep_us: Micros) -> Pruned:
        within("limit", limit, PRUNE_MAX)
        return await self._write(
            lambda transaction: upkeep.prune(transaction, limit, events_keep_us)
        )

    # -- sight -----------------------------------------------------------------------------------

    async def find(self, find: Find) -> Page:
        within("limit", find.limit, PAGE_MAX)
        sight.bounded(find.select)
        return await self._page(
            lambda connection, now: sight.find(connection, find, now), _searches(find.select)
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
            if claims.overdue(connection, now):
                return None
            return explain.explain(connection, ref, now)

        def repair(transaction: Transaction) -> Explanation:
            claims.repair(transaction)
            return explain.explain(transaction.connection, ref, transaction.now)

        # What a claim would do first is no gate.
        found = await self._page(look)
        return await self._write(repair) if found is None else found

    async def events(
        self, tenant: str | None, after: int, limit: int, job_id: str | None = None
    ) -> EventPage:
        within("limit", limit, PAGE_MAX)
        return await self._page(
            lambda connection, _: log.read(connection, tenant, after, limit, job_id),
            None if job_id is None else tenant,
        )

    # -- names -----------------------------------------------------------------------------------

    async def settings(
        self,
        puts: Sequence[Put] = (),
        *,
        under: str | None = None,
        after: str = "",
        limit: int = PAGE_MAX,
        by: By | None = None,
    ) -> list[Setting]:
        within("puts", len(puts), BATCH_MAX)
        within("limit", limit, PAGE_MAX)
        puts, signed = [put.checked() for put in puts], _signed(by)
        page = None if under is None else (under, after, limit)
        if not puts and page is not None:
            return await self._page(lambda connection, _: names.settings_page(connection, page))
        return await self._write(lambda transaction: names.put(transaction, puts, page, signed))

    async def hold(
        self,
        takes: Sequence[Take] = (),
        *,
        under: str | None = None,
        after: str = "",
        limit: int = PAGE_MAX,
    ) -> list[Hold]:
        within("takes", len(takes), BATCH_MAX)
        within("limit", limit, PAGE_MAX)
        takes = [one.checked() for one in takes]
        page = None if under is None else (under, after, limit)
        if not takes and page is not None:
            return await self._page(lambda connection, now: names.holds_page(connection, page, now))
        return await self._write(lambda transaction: names.take(transaction, takes, page))

    # -- wait ------------------------------------------------------------------------------------

    async def wait(self, watch: Watch, timeout_s: float) -> None:
        readers = self._mine(self._readers)
        if not self._doorbell.listen() and self.capabilities.native_wakeup:
            self.capabilities = msgspec.structs.replace(self.capabilities, native_wakeup=False)
        longest_s = WAIT_S_MAX if self.capabilities.native_wakeup else POLL_S
        # Listen first, then look: what happens in between is not lost.
        with self._bell.listen(watch) as ear, self._doorbell.watching(watch.job):
            delay_s = await readers.peek(
                lambda connection, now: claims.soonest(connection, watch, now)
            )
            if self._writer is not None:
                await ear.sleep(min(timeout_s, longest_s, delay_s))

    # -- inside ----------------------------------------------------------------------------------

    async def _write(self, act: Callable[[Transaction], T]) -> T:
        return await self._mine(self._writer).call(act)

    async def _page(
        self, look: Callable[[sqlite3.Connection, Micros], T], searches: str | None = None
    ) -> T:
        return await self._mine(self._readers).page(look, searches)

    def _mine(self, part: X | None) -> X:
        """The part, if the store is open and opened by this very process."""
        if part is None:
            raise StoreUnavailable(store=self._path, why=NOT_OPEN)
        if self._owner != os.getpid():
            why = "it was opened before a fork; close it before, and open it in the child process"
            raise StoreUnavailable(store=self._path, why=why)
        return part

    def _committed(self, transaction: Transaction) -> None:
        lines = None if transaction.wakes_all else transaction.lines
        self._doorbell.ring(lines, transaction.ended)


def _searches(select: Selection) -> str | None:
    """The tenant whose jobs are looked through for those of a selection; None: they are named."""
    return None if select.ids else select.tenant


def _signed(by: By | None) -> str | None:
    """Who did it, as events keep it; InvalidInput if that cannot be kept."""
    return None if by is None else by.checked().words
