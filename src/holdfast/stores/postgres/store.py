"""The PostgreSQL store: one schema of a database, any number of processes and machines.

The busy verbs are one function call each (`migrations/`), the others short transactions. Every call
has a time-out, and tries again for a while when the server cannot be reached: all verbs are safe to
repeat.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from holdfast.clock import SECOND, Clock, Micros, SystemClock
from holdfast.errors import NOT_OPEN, InvalidInput, StoreUnavailable
from holdfast.job import By, Lease, NewJob, State
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
from holdfast.stores.postgres import (
    counting,
    explain,
    journey,
    log,
    names,
    sight,
    upkeep,
    using,
    will,
)
from holdfast.stores.postgres import statements as sql
from holdfast.stores.postgres.bloom import Seen
from holdfast.stores.postgres.connection import Lanes
from holdfast.stores.postgres.faults import is_beaten, is_lost, ours
from holdfast.stores.postgres.migrate import prepare
from holdfast.stores.postgres.options import Options, parse
from holdfast.stores.postgres.step import Step
from holdfast.stores.postgres.wakeup import Doorbell

T = TypeVar("T")

POLL_S = 1.0
"""How long a sleeper sleeps at most where other processes cannot wake it."""
WAITER_S = 60.0
"""For how long who ends a job tells those who wait for it, once they have looked."""
PAUSE_S = 0.05
"""The first pause before a call is tried again; it grows, and is never the same twice."""
PAUSE_S_MAX = 1.0
BEATEN_MAX = 10
"""How often a call is repeated because another transaction was in its way."""


class PostgresStore:
    """Any thread that runs an event loop may call; a verb returns after its commit."""

    def __init__(self, options: Options, clock: Clock | None = None) -> None:
        self.options = options
        self._place = options.place
        # The server's clock decides, unless a test brings its own.
        self._clock = None if clock is None or isinstance(clock, SystemClock) else clock
        self._bell = Bell()
        self._doorbell = Doorbell(options, self._bell)
        self._lanes: Lanes | None = None
        self._owner = 0
        self._seen = Seen() if options.bloom else None
        self._database: str | None = None
        """Which database this is, once it was opened."""
        self._busy = False
        """The last claim found something, so that the next need not look before it locks."""
        self.capabilities = Capabilities(
            durable=True,
            shared=True,
            encodes=True,
            payload_max=None,
            transactional_enqueue=True,
            native_wakeup=options.notify,
            event_log=options.events,
            time_precision_us=1,
            cluster=False,
            scopes=True,
        )

    @classmethod
    def from_url(cls, url: str, clock: Clock | None = None) -> PostgresStore:
        return cls(parse(url), clock)

    # -- life ------------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._lanes is not None and self._owner == os.getpid():
            return
        self._renew()
        try:
            await self._prepare(self.options.migrate == "auto")
            self._database = await self._call(lambda step: step.value(using.WHERE))
        except BaseException:
            await self.close()
            raise

    def _renew(self) -> None:
        self._owner = os.getpid()
        self._bell = Bell()  # A new one: after a fork the old one's lock may be held for ever.
        self._doorbell = Doorbell(self.options, self._bell)
        self._seen = Seen() if self.options.bloom else None  # Its lock, too.
        self._lanes = Lanes(self.options)

    async def _prepare(self, migrate: bool) -> int:
        return await self._call(lambda step: prepare(step.connection, self.options, migrate))

    async def close(self) -> None:
        lanes, self._lanes = self._lanes, None
        if lanes is None or self._owner != os.getpid():
            return  # After a fork the connections are the parent's.
        self._bell.ring_all()
        await self._doorbell.close()
        await lanes.close()

    async def migrate(self) -> int:
        if self._lanes is not None and self._owner == os.getpid():
            return await self._prepare(migrate=True)
        self._renew()
        try:
            return await self._prepare(migrate=True)
        finally:
            await self.close()

    # -- journey ---------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        within("jobs", len(jobs), BATCH_MAX)
        if not jobs:
            return []
        bell, seen = self._doorbell, self._seen
        try:
            return await self._call(
                lambda step: journey.enqueue(step, jobs, bell.channel, bell.sender, seen)
            )
        except InvalidInput as error:
            # A value that the server cannot hold fails the whole statement: what it stands in is
            # found by halves, so that each job fails by itself.
            if len(jobs) == 1:
                return [Enqueued(jobs[0].id, False, error)]
        half = len(jobs) // 2
        return [*await self.enqueue(jobs[:half]), *await self.enqueue(jobs[half:])]

    async def enqueue_using(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        within("jobs", len(jobs), BATCH_MAX)
        now = None if self._clock is None else self._clock.now()
        await using.check_place(connection, self._database, self._place)
        return await journey.enqueue_using(connection, self.options, now, jobs)

    async def claim(self, claim: Claim) -> list[Lease]:
        within("limit", claim.limit, CLAIM_MAX)
        within("exclude_groups", len(claim.exclude_groups), EXCLUDE_MAX)
        probe, channel = not self._busy, self._doorbell.channel
        leases, unreadable, rings = await self._call(
            lambda step: journey.claim(step, claim, probe, channel)
        )
        self._busy = bool(leases or unreadable)
        if unreadable:
            await self._transact(lambda step: journey.settle(step, unreadable))
        if rings:
            self._bell.ring_all()
        return leases

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended]:
        within("extensions", len(extensions), BATCH_MAX)
        return await self._call(lambda step: journey.extend(step, extensions))

    async def ack(self, transitions: Sequence[Transition]) -> list[Acked]:
        within("transitions", len(transitions), BATCH_MAX)
        places, bell = journey.plain_ones(transitions), self._doorbell
        answers: dict[int, Acked] = {}
        if places:
            changes = [transitions[place] for place in places]
            done = await self._call(
                lambda step: journey.complete(step, changes, bell.channel, bell.sender)
            )
            if len(done) == len(transitions):
                return [Acked(change.id, State.COMPLETED) for change in transitions]
            answers = {places[n]: Acked(transitions[places[n]].id, State.COMPLETED) for n in done}
        left = [place for place in range(len(transitions)) if place not in answers]
        if left:
            others = [transitions[place] for place in left]
            settled = await self._transact(lambda step: journey.settle(step, others))
            answers |= dict(zip(left, settled, strict=True))
        return [answers[place] for place in range(len(transitions))]

    # -- will ------------------------------------------------------------------------------------

    async def cancel(self, refs: Sequence[Ref], *, by: By | None = None) -> list[Canceled]:
        within("refs", len(refs), BATCH_MAX)
        bell = self._doorbell
        return await self._call(
            lambda step: will.cancel(step, refs, bell.channel, bell.sender), _words(by)
        )

    async def change(self, change: Change) -> Changed:
        within("limit", change.limit, CHANGE_MAX)
        sight.bounded(change.select)
        signed = _words(change.by)
        await self._call(lambda step: will.open_packs(step, change))
        return await self._transact(lambda step: will.change(step, change), signed)

    # -- upkeep ----------------------------------------------------------------------------------

    async def expired(self, limit: int) -> list[Lapsed]:
        within("limit", limit, EXPIRED_MAX)
        return await self._call(lambda step: upkeep.expired(step, limit))

    async def prune(self, limit: int, events_keep_us: Micros) -> Pruned:
        within("limit", limit, PRUNE_MAX)
        return await self._transact(lambda step: upkeep.prune(step, limit, events_keep_us))

    # -- sight -----------------------------------------------------------------------------------

    async def find(self, find: Find) -> Page:
        within("limit", find.limit, PAGE_MAX)
        sight.bounded(find.select)
        return await self._call(lambda step: sight.find(step, find))

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
        correction = await self._transact(counting.recount) if recount else 0
        return await self._call(lambda step: counting.count(step, asked, correction))

    async def explain(self, ref: Ref) -> Explanation:
        return await self._transact(lambda step: explain.explain(step, ref))

    async def events(
        self, tenant: str | None, after: int, limit: int, job_id: str | None = None
    ) -> EventPage:
        within("limit", limit, PAGE_MAX)
        return await self._call(lambda step: log.page(step, tenant, after, limit, job_id))

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
        puts = [put.checked() for put in puts]
        signed = _words(by)
        done: list[Setting] = []
        if puts:
            done = await self._transact(lambda step: names.put(step, puts), signed)
        if under is None:
            return done
        return await self._call(lambda step: names.settings_under(step, under, after, limit))

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
        done: list[Hold] = []
        if takes:
            done = await self._transact(lambda step: names.take(step, takes))
        if under is None:
            return done
        return await self._call(lambda step: names.holds_under(step, under, after, limit))

    # -- wait ------------------------------------------------------------------------------------

    async def wait(self, watch: Watch, timeout_s: float) -> None:
        lanes = self._mine()
        await self._doorbell.listen(min(timeout_s, POLL_S))
        # Listen first, then look: what happens in between is not lost.
        with self._bell.listen(watch) as ear:
            longest_s = POLL_S
            if self._doorbell.hears and watch.job is None and not watch.news:
                longest_s = WAIT_S_MAX
            try:
                delay_s = await self._call(lambda step: self._soonest(step, watch))
            except StoreUnavailable:
                if self._lanes is not lanes:
                    return  # Closed while it looked.
                raise
            if self._lanes is lanes:
                await ear.sleep(min(timeout_s, longest_s, delay_s))

    async def _soonest(self, step: Step, watch: Watch) -> float:
        """Seconds until something known will be worth a look; 0 when it already is."""
        if watch.news:
            return WAIT_S_MAX
        if watch.job is not None:
            if self._doorbell.hears:
                await step.run(sql.WAIT_FOR, watch.job.tenant, watch.job.id, WAITER_S)
            ended = await step.value(sql.ENDED, watch.job.tenant, watch.job.id)
            return 0.0 if ended else WAIT_S_MAX
        delay = await step.value(sql.SOONEST, watch.tenants, watch.queues, step.given)
        return float(delay) / SECOND

    # -- inside ----------------------------------------------------------------------------------

    def _mine(self) -> Lanes:
        """The connections, if the store is open and opened by this very process."""
        if self._lanes is None:
            raise StoreUnavailable(store=self._place, why=NOT_OPEN)
        if self._owner != os.getpid():
            why = "it was opened before a fork; open it again in the child process"
            raise StoreUnavailable(store=self._place, why=why)
        return self._lanes

    async def _transact(self, act: Callable[[Step], Awaitable[T]], by: str | None = None) -> T:
        """An act of several statements, all of them or none."""

        async def whole(step: Step) -> T:
            async with step.connection.transaction():
                answer = await act(step)
                await self._tell(step)
                return answer

        return await self._call(whole, by)

    async def _tell(self, step: Step) -> None:
        channel = self._doorbell.channel
        if channel is not None and step.lines:
            text = journey.hint(self._doorbell.sender, step.lines)
            await step.value(sql.NOTIFY, channel, text)
        if channel is not None and step.ended:
            tenants, ids = [ref.tenant for ref in step.ended], [ref.id for ref in step.ended]
            await step.run(sql.TELL_ENDED, tenants, ids, channel, self._doorbell.sender)

    async def _call(self, act: Callable[[Step], Awaitable[T]], by: str | None = None) -> T:
        """An act on a connection, repeated while the server cannot be reached, for a while."""
        deadline = time.monotonic() + self.options.retry_s
        pause_s, beaten, again = PAUSE_S, 0, False
        while True:
            try:
                return await self._once(act, again, by)
            except BaseException as error:
                beaten += is_beaten(error)
                again = time.monotonic() < deadline if is_lost(error) else is_beaten(error)
                if not again or beaten > BEATEN_MAX or self._lanes is None:
                    known = ours(error, self._place)
                    if known is error:
                        raise
                    raise known from error
            again = True
            await asyncio.sleep(pause_s * (0.5 + random.random()))
            pause_s = min(PAUSE_S_MAX, pause_s * 2)

    async def _once(self, act: Callable[[Step], Awaitable[T]], again: bool, by: str | None) -> T:
        lane = await self._mine().lane()
        async with lane.borrow() as connection:
            now = None if self._clock is None else self._clock.now()
            step = Step(connection, self.options.schema, now, self.options.events, again)
            step.by = by
            answer = await act(step)
        if step.lines or step.ended:
            self._bell.ring(step.lines, step.ended)
        return answer


def _words(by: By | None) -> str | None:
    """Who acts, as events keep it."""
    return None if by is None else by.checked().words
