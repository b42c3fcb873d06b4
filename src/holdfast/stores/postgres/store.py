"""The PostgreSQL store: one schema of a database, any number of processes and machines.

The busy verbs are one function call each (`sql/functions/`), the others short transactions. Every
call has a time-out, and tries again for a while when the server cannot be reached: all verbs are
safe to repeat.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from holdfast.core.backoff import Delays
from holdfast.core.bounds import CLAIM_PARTS_MAX, PAGE_MAX, WAIT_S_MAX
from holdfast.core.capabilities import Capabilities
from holdfast.core.clock import SECOND, Clock, Micros, SystemClock
from holdfast.core.errors import (
    NOT_OPEN,
    HoldfastError,
    InvalidInput,
    StoreUnavailable,
)
from holdfast.core.job import By, Lease, NewJob, State
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
    Setting,
    Take,
    Tally,
    Watch,
)
from holdfast.stores.notifier import Notifier
from holdfast.stores.postgres import count, holds, maintenance, notify, settings, using
from holdfast.stores.postgres import statements as sql
from holdfast.stores.postgres.ack import (
    apply_transitions,
    complete_jobs,
    completions,
    is_completion,
)
from holdfast.stores.postgres.bloom import Seen
from holdfast.stores.postgres.cancel import cancel_jobs
from holdfast.stores.postgres.change import change_jobs
from holdfast.stores.postgres.claim import Claimed, claim_jobs
from holdfast.stores.postgres.connection import Pools
from holdfast.stores.postgres.enqueue import enqueue_jobs, enqueue_using, hint, refuse_whole
from holdfast.stores.postgres.errors import is_beaten, is_lost, ours
from holdfast.stores.postgres.events import read_events, words_of
from holdfast.stores.postgres.explain import explain_job
from holdfast.stores.postgres.extend import extend_leases
from holdfast.stores.postgres.find import find_jobs
from holdfast.stores.postgres.joins import Turns, release, release_completed, release_left
from holdfast.stores.postgres.migrate import prepare
from holdfast.stores.postgres.notify import Notifications
from holdfast.stores.postgres.options import Options, parse
from holdfast.stores.postgres.shadow import apply_step, read_shadow
from holdfast.stores.postgres.signal import send_signals
from holdfast.stores.postgres.step import Step

T = TypeVar("T")

POLL_S = 1.0
"""How long a sleeper sleeps at most when other processes cannot wake it."""
PAUSE_S = 0.05
"""The first pause before a call is tried again; it grows."""
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
        self._notifier = Notifier()
        self._notifications = Notifications(options, self._notifier)
        self._pools: Pools | None = None
        self._owner = 0
        self._seen = Seen() if options.bloom else None
        self._turns = Turns()
        self._database: str | None = None
        """Which database this is, once it was opened."""
        self._busy = False
        """The last claim found something, so that the next takes the lock without looking first."""
        self.capabilities = Capabilities(
            durable=True,
            shared=True,
            encodes=True,
            payload_max=None,
            transactional_enqueue=True,
            transactional_ack=True,
            native_wakeup=options.notify,
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
    def from_url(cls, url: str, clock: Clock | None = None) -> PostgresStore:
        return cls(parse(url), clock)

    # -- life ------------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._pools is not None and self._owner == os.getpid():
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
        # A new one: after a fork the lock of the old one may be held for ever.
        self._notifier = Notifier()
        self._notifications = Notifications(self.options, self._notifier)
        self._seen = Seen() if self.options.bloom else None  # Its lock, too.
        self._pools = Pools(self.options)

    async def _prepare(self, migrate: bool) -> int:
        return await self._call(lambda step: prepare(step.connection, self.options, migrate))

    async def close(self) -> None:
        pools, self._pools = self._pools, None
        if pools is None or self._owner != os.getpid():
            return  # After a fork the connections are the parent's.
        self._notifier.notify_all()
        await self._notifications.close()
        await pools.close()

    async def migrate(self) -> int:
        if self._pools is not None and self._owner == os.getpid():
            return await self._prepare(migrate=True)
        self._renew()
        try:
            return await self._prepare(migrate=True)
        finally:
            await self.close()

    # -- work ------------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob], *, whole: bool = False) -> list[Enqueued]:
        if not jobs:
            return []
        try:
            return await self._call(lambda step: enqueue_jobs(step, jobs, self._seen, whole=whole))
        except InvalidInput as error:
            # A value that the server cannot hold fails the whole statement. The job that has it is
            # found by halves, so that the others are kept.
            if len(jobs) == 1:
                return [Enqueued(jobs[0].id, False, error)]
        if whole:
            return await self._call(lambda step: refuse_whole(step, jobs))
        half = len(jobs) // 2
        return [*await self.enqueue(jobs[:half]), *await self.enqueue(jobs[half:])]

    async def enqueue_using(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        now = None if self._clock is None else self._clock.now()
        await using.check_place(connection, self._database, self._place)
        return await enqueue_using(connection, self.options, now, jobs)

    async def ack_using(self, connection: Any, change: Transition) -> Acked:
        if not is_completion(change):
            raise InvalidInput(field="change", why="must be a completion without journal entries")
        now = None if self._clock is None else self._clock.now()
        await using.check_place(connection, self._database, self._place)
        refused = await using.complete(connection, self.options, now, change)
        if refused is not None:
            return Acked(change.id, error=refused(id=change.id))
        return Acked(change.id, State.COMPLETED)

    async def claim(self, claim: Claim) -> list[Lease]:
        probe = not self._busy
        count, hears = self._notifier.count, self._notifications.hears
        found = await self._claim(claim, probe)
        if found.edges_left:
            await self._follow()
            if found.nothing:  # There may be something by now.
                found = await self._claim(claim, probe)
        self._busy = not found.nothing
        full_s = None
        if found.full_us is not None and hears and self._clock is None:  # A test's clock may jump.
            full_s = found.full_us / SECOND
        self._notifier.note_full(count, full_s)
        if found.unreadable:
            await self._transact(lambda step: apply_transitions(step, found.unreadable))
        if found.wakes:
            self._notifier.notify_all()
        return found.leases

    async def _claim(self, claim: Claim, probe: bool) -> Claimed:
        """Claims in parts where so much was written since the last claim that one call could not
        read it in time. Each part is kept, whatever happens to the next.
        """
        for _ in range(CLAIM_PARTS_MAX):
            found = await self._call(lambda step: claim_jobs(step, claim, probe))
            if not found.behind:
                break
        return found

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended]:
        if any(each.entries for each in extensions):
            return await self._transact(lambda step: extend_leases(step, extensions))
        return await self._call(lambda step: extend_leases(step, extensions))

    async def ack(self, transitions: Sequence[Transition]) -> list[Acked]:
        places = completions(transitions)
        answers: dict[int, Acked] = {}
        if places:
            changes = [transitions[place] for place in places]
            done = await self._call(lambda step: complete_jobs(step, changes))
            if len(done) == len(transitions):
                return [Acked(change.id, State.COMPLETED) for change in transitions]
            answers = {places[n]: Acked(transitions[places[n]].id, State.COMPLETED) for n in done}
        left = [place for place in range(len(transitions)) if place not in answers]
        if left:
            others = [transitions[place] for place in left]
            settled = await self._transact(lambda step: apply_transitions(step, others))
            answers |= dict(zip(left, settled, strict=True))
        return [answers[place] for place in range(len(transitions))]

    # -- operators -------------------------------------------------------------------------------

    async def signal(self, signals: Sequence[Signal], *, by: By | None = None) -> list[Signaled]:
        return await self._transact(lambda step: send_signals(step, signals), words_of(by))

    async def cancel(self, refs: Sequence[Ref], *, by: By | None = None) -> list[Canceled]:
        return await self._call(lambda step: cancel_jobs(step, refs), words_of(by))

    async def change(self, change: Change) -> Changed:
        signed = words_of(change.by)
        return await self._transact(lambda step: change_jobs(step, change), signed)

    # -- maintenance -----------------------------------------------------------------------------

    async def expired(self, limit: int) -> list[Lapsed]:
        return await self._call(lambda step: maintenance.find_expired(step, limit))

    async def prune(self, limit: int, events_keep_us: Micros) -> Pruned:
        await self._follow()
        return await self._transact(
            lambda step: maintenance.prune_records(step, limit, events_keep_us)
        )

    # -- reads -----------------------------------------------------------------------------------

    async def find(self, find: Find) -> Page:
        return await self._call(lambda step: find_jobs(step, find))

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
        asked = count.Asked(tenant=tenant, by=by, part=part, after=after, limit=limit)
        correction = await self._transact(count.recount) if recount else 0
        return await self._call(lambda step: count.count_scopes(step, asked, correction))

    async def explain(self, ref: Ref) -> Explanation:
        return await self._call(lambda step: explain_job(step, ref))

    async def events(
        self, tenant: str | None, after: int, limit: int, job_id: str | None = None
    ) -> EventPage:
        return await self._call(lambda step: read_events(step, tenant, after, limit, job_id))

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
        signed = words_of(by)
        done: list[Setting] = []
        if puts:
            done = await self._transact(lambda step: settings.put_settings(step, puts), signed)
        if under is None:
            return done
        return await self._call(lambda step: settings.settings_under(step, under, after, limit))

    async def hold(
        self,
        takes: Sequence[Take] = (),
        *,
        under: str | None = None,
        after: str = "",
        limit: int = PAGE_MAX,
    ) -> list[Hold]:
        done: list[Hold] = []
        if takes:
            done = await self._transact(lambda step: holds.take_holds(step, takes))
        if under is None:
            return done
        return await self._call(lambda step: holds.holds_under(step, under, after, limit))

    # -- sources ---------------------------------------------------------------------------------

    async def shadow(self, ask: ShadowStep | ShadowRead) -> Shadow:
        if isinstance(ask, ShadowStep):
            return await self._transact(lambda step: apply_step(step, ask))
        return await self._call(lambda step: read_shadow(step, ask))

    # -- wait ------------------------------------------------------------------------------------

    async def wait(self, watch: Watch, timeout_s: float) -> None:
        pools = self._mine()
        await self._notifications.listen(min(timeout_s, POLL_S))
        # Listen first, then look, so that nothing that happens in between is missed.
        with self._notifier.listen(watch) as listener:
            longest_s, hears = POLL_S, self._notifications.hears
            delay_s = None
            if hears and watch.job is None and not watch.news:
                longest_s, delay_s = WAIT_S_MAX, self._notifier.full_s()
            try:
                if delay_s is None:
                    delay_s = await self._call(lambda step: notify.next_wakeup(step, watch, hears))
            except StoreUnavailable:
                if self._pools is not pools:
                    return  # Closed while it looked.
                raise
            if self._pools is pools:
                await listener.sleep(min(timeout_s, longest_s, delay_s))

    # -- inside ----------------------------------------------------------------------------------

    def _mine(self) -> Pools:
        """The connections, if the store is open and opened by this very process."""
        if self._pools is None:
            raise StoreUnavailable(store=self._place, why=NOT_OPEN)
        if self._owner != os.getpid():
            why = "it was opened before a fork; open it again in the child process"
            raise StoreUnavailable(store=self._place, why=why)
        return self._pools

    async def _transact(self, act: Callable[[Step], Awaitable[T]], by: str | None = None) -> T:
        """Several statements in one transaction."""

        async def whole(step: Step) -> T:
            async with step.connection.transaction():
                answer = await act(step)
                await self._notify(step)
                return answer

        return await self._call(whole, by)

    async def _notify(self, step: Step) -> None:
        if step.channel is not None and step.wakes_all:
            await step.value(sql.NOTIFY, step.channel, "*")
        elif step.channel is not None and step.lines:
            await step.value(sql.NOTIFY, step.channel, hint(step.sender, step.lines))
        if step.channel is not None and step.ended:
            tenants, ids = [ref.tenant for ref in step.ended], [ref.id for ref in step.ended]
            await step.run(sql.NOTIFY_ENDED, tenants, ids, step.channel, step.sender)

    async def _follow(self, tenants: Collection[str] = (), completed: Collection[str] = ()) -> None:
        """Follows edges of ended jobs of these tenants, or what other calls have left. What
        it cannot do is for the next claims: whatever ended the jobs is done.
        """
        place, ended = self._place, sorted(completed)
        try:
            if ended:
                await self._call(lambda step: release_completed(step, ended, place))
            if tenants:
                await self._transact(lambda step: release(step, sorted(tenants), place))
            elif not ended:
                await self._transact(lambda step: release_left(step, self._turns))
        except HoldfastError:
            self._notifier.notify_all()
            if (channel := self._notifications.channel) is not None:
                with suppress(HoldfastError):
                    await self._call(lambda step: step.run(sql.NOTIFY, channel, "*"))

    async def _call(self, act: Callable[[Step], Awaitable[T]], by: str | None = None) -> T:
        """A call on a connection, repeated for a while when the server cannot be reached."""
        deadline = time.monotonic() + self.options.retry_s
        delays = Delays(PAUSE_S, PAUSE_S_MAX, chance=random.random)
        beaten, again = 0, False
        while True:
            try:
                return await self._once(act, again, by)
            except BaseException as error:
                beaten += is_beaten(error)
                again = time.monotonic() < deadline if is_lost(error) else is_beaten(error)
                if not again or beaten > BEATEN_MAX or self._pools is None:
                    known = ours(error, self._place)
                    if known is error:
                        raise
                    raise known from error
            again = True
            await asyncio.sleep(delays.next_s())

    async def _once(self, act: Callable[[Step], Awaitable[T]], again: bool, by: str | None) -> T:
        pool = await self._mine().pool()
        async with pool.borrow() as connection:
            now = None if self._clock is None else self._clock.now()
            step = Step(connection, self.options.schema, now, self.options.events, again)
            step.by = by
            step.channel, step.sender = self._notifications.channel, self._notifications.sender
            answer = await act(step)
        if step.awaited or step.completed:
            await self._follow(step.awaited, step.completed)
        if step.wakes_all:
            self._notifier.notify_all()
        elif step.lines or step.ended:
            self._notifier.notify(step.lines, step.ended)
        return answer
