"""The SQLite store, the embedded default: one file, any number of processes of one machine.

`writer.py` commits the writing calls of all callers together. Reads have threads and connections of
their own and see only what was committed (`readers.py`). Every verb is one function in the file of
its name; `layout.py` draws the tables.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from holdfast.core.bounds import PAGE_MAX, WAIT_S_MAX
from holdfast.core.capabilities import Capabilities
from holdfast.core.clock import Clock, Micros, SystemClock, seconds
from holdfast.core.errors import NOT_OPEN, StoreUnavailable
from holdfast.core.job import By, Lease, NewJob
from holdfast.core.journal import Signal, Signaled
from holdfast.core.lifecycle import Transition
from holdfast.core.scope import Explanation, ScopeKind
from holdfast.core.shadow import Shadow, ShadowRead, ShadowStep
from holdfast.store import (
    Acked,
    Canceled,
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
from holdfast.stores.notifier import Notifier
from holdfast.stores.sqlite.ack import ack_jobs
from holdfast.stores.sqlite.cancel import cancel_jobs
from holdfast.stores.sqlite.change import candidates, change_jobs
from holdfast.stores.sqlite.claim import claim_jobs, nothing_to_claim
from holdfast.stores.sqlite.claim_repair import seconds_until_work
from holdfast.stores.sqlite.connection import migrate_file
from holdfast.stores.sqlite.count import Asked, count_jobs
from holdfast.stores.sqlite.count import recount as recount_jobs
from holdfast.stores.sqlite.enqueue import Incomplete, enqueue_jobs
from holdfast.stores.sqlite.events import read_events
from holdfast.stores.sqlite.explain import explain_job
from holdfast.stores.sqlite.extend import extend_leases
from holdfast.stores.sqlite.fairness import TurnCredits
from holdfast.stores.sqlite.find import find_jobs
from holdfast.stores.sqlite.forks import check_fork, forget, remember
from holdfast.stores.sqlite.holds import holds_page, take_holds
from holdfast.stores.sqlite.layout import SCHEMA_VERSION
from holdfast.stores.sqlite.maintenance import prune_expired, read_expired
from holdfast.stores.sqlite.notify import ProcessNotifier
from holdfast.stores.sqlite.options import Options, parse
from holdfast.stores.sqlite.readers import Readers
from holdfast.stores.sqlite.settings import put_settings, settings_page
from holdfast.stores.sqlite.shadow import apply_step, read_shadow
from holdfast.stores.sqlite.signal import send_signals
from holdfast.stores.sqlite.transaction import Transaction
from holdfast.stores.sqlite.using import Joined
from holdfast.stores.sqlite.writer import Writer
from holdfast.stores.whole import undone

T = TypeVar("T")
X = TypeVar("X")

POLL_S = 1.0
"""The longest sleep of a worker where other processes cannot wake it."""


class SqliteStore:
    """Any thread that runs an event loop may call; a verb returns after its commit."""

    def __init__(self, options: Options, clock: Clock | None = None) -> None:
        # Resolved once: a later change of the working directory must not change the file.
        self.options = msgspec.structs.replace(options, path=os.path.realpath(options.path))
        self._path = self.options.path
        self._clock = clock or SystemClock()
        self._notifier = Notifier()
        self._processes = ProcessNotifier(self._path, self._notifier)
        self._turns = TurnCredits()
        self._joined = Joined(self.options, self._clock)
        self._writer: Writer | None = None
        self._readers: Readers | None = None
        self._owner = 0
        self.capabilities = Capabilities(
            durable=True,
            shared=True,
            encodes=True,
            payload_max=None,
            transactional_enqueue=True,
            transactional_ack=True,
            native_wakeup=True,
            event_log=options.events,
            time_precision_us=1,
            cluster=False,
            scopes=True,
            platform=True,
            tiers=True,
            steps=True,
            sources=True,
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
        self._owner = os.getpid()
        # New objects: after a fork the locks of the old ones may be held for ever.
        self._notifier = Notifier()
        self._processes = ProcessNotifier(self._path, self._notifier)
        self._joined = Joined(options, self._clock, self._processes.notify)
        self._writer = Writer(options, self._clock, self._committed)
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
        self._joined.close()
        if writer is not None:
            await writer.stop()
        if readers is not None:
            await readers.stop()
        self._processes.close()
        self._notifier.notify_all()

    async def migrate(self) -> int:
        check_fork(self._path)
        await asyncio.to_thread(migrate_file, self.options)
        return SCHEMA_VERSION

    # -- enqueue to ack --------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob], *, whole: bool = False) -> list[Enqueued]:
        try:
            return await self._mine(self._writer).write(
                lambda transaction: enqueue_jobs(transaction, jobs, whole=whole),
                jobs=len(jobs) + sum(len(job.edges) for job in jobs),
            )
        except Incomplete as incomplete:
            return undone(incomplete.answers)

    async def enqueue_using(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        check_fork(self._path)
        return self._joined.run(connection, lambda joined: enqueue_jobs(joined, jobs))

    async def ack_using(self, connection: Any, change: Transition) -> Acked:
        check_fork(self._path)
        return self._joined.run(connection, lambda joined: ack_jobs(joined, [change]))[0]

    async def claim(self, claim: Claim) -> list[Lease]:
        count, listening = self._notifier.count, self._processes.listening
        found: tuple[list[Lease], Micros | None] | None = await self._mine(self._writer).write(
            lambda transaction: (
                claim_jobs(transaction, claim, self._turns),
                transaction.full_until,
            ),
            idle=lambda connection: nothing_to_claim(connection, claim, self._clock.now()),
        )
        leases, full_until = found or ([], None)
        full_s = None
        # A clock of a test may jump before the next wait.
        if full_until is not None and listening and isinstance(self._clock, SystemClock):
            full_s = max(0.0, seconds(full_until - self._clock.now()))
        self._notifier.note_full(count, full_s)
        return leases

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended]:
        return await self._write(lambda transaction: extend_leases(transaction, extensions))

    async def ack(self, transitions: Sequence[Transition]) -> list[Acked]:
        return await self._write(lambda transaction: ack_jobs(transaction, transitions))

    # -- cancel and change -----------------------------------------------------------------------

    async def signal(self, signals: Sequence[Signal], *, by: By | None = None) -> list[Signaled]:
        signed = None if by is None else by.words
        return await self._write(lambda transaction: send_signals(transaction, signals, signed))

    async def cancel(self, refs: Sequence[Ref], *, by: By | None = None) -> list[Canceled]:
        signed = None if by is None else by.words
        return await self._write(lambda transaction: cancel_jobs(transaction, refs, signed))

    async def change(self, change: Change) -> Changed:
        seqs = await self._page(
            lambda connection, now: candidates(connection, change, now),
            _searches(change.select),
        )
        if not seqs:
            return Changed({}, None)
        return await self._write(lambda transaction: change_jobs(transaction, change, seqs))

    # -- upkeep ----------------------------------------------------------------------------------

    async def expired(self, limit: int) -> list[Lapsed]:
        return await self._page(lambda connection, now: read_expired(connection, limit, now))

    async def prune(self, limit: int, events_keep_us: Micros) -> Pruned:
        return await self._write(
            lambda transaction: prune_expired(transaction, limit, events_keep_us)
        )

    # -- find, count, explain, events ------------------------------------------------------------

    async def find(self, find: Find) -> Page:
        return await self._page(
            lambda connection, now: find_jobs(connection, find, now), _searches(find.select)
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
        asked = Asked(tenant=tenant, by=by, part=part, after=after, limit=limit)
        correction = await self._write(recount_jobs) if recount else 0
        return await self._page(
            lambda connection, now: count_jobs(connection, asked, now, correction)
        )

    async def explain(self, ref: Ref) -> Explanation:
        return await self._page(lambda connection, now: explain_job(connection, ref, now))

    async def events(
        self, tenant: str | None, after: int, limit: int, job_id: str | None = None
    ) -> EventPage:
        return await self._page(
            lambda connection, _: read_events(connection, tenant, after, limit, job_id),
            None if job_id is None else tenant,
        )

    # -- settings and holds ----------------------------------------------------------------------

    async def settings(
        self,
        puts: Sequence[Put] = (),
        *,
        under: str | None = None,
        after: str = "",
        limit: int = PAGE_MAX,
        by: By | None = None,
    ) -> list[Setting]:
        signed = None if by is None else by.words
        page = None if under is None else (under, after, limit)
        if not puts and page is not None:
            return await self._page(lambda connection, _: settings_page(connection, page))
        return await self._write(lambda transaction: put_settings(transaction, puts, page, signed))

    async def hold(
        self,
        takes: Sequence[Take] = (),
        *,
        under: str | None = None,
        after: str = "",
        limit: int = PAGE_MAX,
    ) -> list[Hold]:
        page = None if under is None else (under, after, limit)
        if not takes and page is not None:
            return await self._page(lambda connection, now: holds_page(connection, page, now))
        return await self._write(lambda transaction: take_holds(transaction, takes, page))

    # -- sources ---------------------------------------------------------------------------------

    async def shadow(self, ask: ShadowStep | ShadowRead) -> Shadow:
        if isinstance(ask, ShadowStep):
            return await self._write(lambda transaction: apply_step(transaction, ask))
        return await self._page(lambda connection, now: read_shadow(connection, ask, now))

    # -- wait ------------------------------------------------------------------------------------

    async def wait(self, watch: Watch, timeout_s: float) -> None:
        readers = self._mine(self._readers)
        if not self._processes.listen() and self.capabilities.native_wakeup:
            self.capabilities = msgspec.structs.replace(self.capabilities, native_wakeup=False)
        longest_s = WAIT_S_MAX if self.capabilities.native_wakeup else POLL_S
        # Listens first, then reads: a change in between is not lost.
        with self._notifier.listen(watch) as listener, self._processes.watching(watch.job):
            delay_s = None if watch.news or watch.job is not None else self._notifier.full_s()
            if delay_s is None:
                delay_s = await readers.peek(
                    lambda connection, now: seconds_until_work(connection, watch, now)
                )
            if self._writer is not None:
                await listener.sleep(min(timeout_s, longest_s, delay_s))

    # -- inside ----------------------------------------------------------------------------------

    async def _write(self, act: Callable[[Transaction], T]) -> T:
        return await self._mine(self._writer).write(act)

    async def _page(
        self, read: Callable[[sqlite3.Connection, Micros], T], searches: str | None = None
    ) -> T:
        return await self._mine(self._readers).page(read, searches)

    def _mine(self, part: X | None) -> X:
        """The part, if this very process has opened the store."""
        if part is None:
            raise StoreUnavailable(store=self._path, why=NOT_OPEN)
        if self._owner != os.getpid():
            why = "it was opened before a fork; close it before, and open it in the child process"
            raise StoreUnavailable(store=self._path, why=why)
        return part

    def _committed(self, transaction: Transaction) -> None:
        lines = None if transaction.wake_all else transaction.ready_lines
        self._processes.notify(lines, transaction.ended_jobs)


def _searches(select: Selection) -> str | None:
    """The tenant whose jobs a selection searches; None when it names them by id."""
    return None if select.ids else select.tenant
