"""Handles for schedules: `acme.schedule("sync:42")` returns one.

A schedule is one setting, changed by compare-and-set, and one waiting job, its next tick.
`firing.py` is what a tick does; `upkeep/recur.py` restores a tick that was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Unpack

import msgspec
import uuid_utils

from holdfast.core.bounds import BACKFILL_MAX, PAGE_MAX, TENANT_MAX
from holdfast.core.check import check_name, check_whole
from holdfast.core.clock import Micros, moment
from holdfast.core.cron import Timing
from holdfast.core.errors import InvalidInput, ScheduleNotFound, StaleSetting, did_you_mean
from holdfast.core.job import By
from holdfast.core.plural import many
from holdfast.core.schedule import (
    OVER_ALL,
    TYPE,
    Definition,
    Edit,
    Overlap,
    Paused,
    check_schedule,
    encode,
    name_of,
)
from holdfast.core.scope import Scope, ScopeKind
from holdfast.core.spec import JobSpec
from holdfast.core.tick import (
    GROUP,
    TAG,
    instant_of,
    instant_text,
    key_length,
    next_tick,
    target,
    tick_job,
    tick_of,
)
from holdfast.definitions import (
    ScheduleState,
    Timed,
    check_given,
    defined,
    has_room,
    instants,
    local,
    readable,
    revised,
    schedules_page,
    state_of,
    waiting_ticks,
)
from holdfast.enqueue import Enqueuer
from holdfast.scopes import ScopeHandle
from holdfast.store import Act, Change, Enqueued, Find, Put, Selection, Store
from holdfast.store_clock import StoreClock
from holdfast.typed import AnyJob

TRIES_MAX = 10
"""How often a change without `expect` is tried again after a concurrent change."""
NEXT_MAX = 1000
PAGES_MAX = 20
"""Pages of its newest jobs that a backfill reads, to make none twice."""
SET = "set"
UNNAMED = "unnamed"
"""The author of changes that name none."""


class Backfill(msgspec.Struct, frozen=True):
    """The ticks of a backfill. Without `apply=True` nothing was made."""

    ticks: tuple[datetime, ...]
    applied: bool
    created: int
    """Jobs that were made, or would be."""
    existing: int
    """Ticks whose job exists already. Each tick has at most one."""


class ScheduleHandle:
    """A handle for one schedule of a tenant. Cheap to create; it keeps no resources."""

    def __init__(
        self, store: Store, tenant: str, name: str, *, enqueuer: Enqueuer | None = None
    ) -> None:
        self.tenant = check_name("tenant", tenant, TENANT_MAX)
        self.name = check_schedule(name)
        self._store = store
        self._enqueuer = enqueuer

    # -- definition ------------------------------------------------------------------------------

    async def get(self) -> ScheduleState:
        """The schedule. Raises ScheduleNotFound."""
        found = await self._find()
        if found is None:
            near, _ = await schedules_page(self._store, self.tenant)
            hint = did_you_mean(self.name, [one.name for one in near])
            raise ScheduleNotFound(schedule=self.name, hint=hint)
        return found

    async def _find(self) -> ScheduleState | None:
        name = name_of(self.tenant, self.name)
        # The shortest name with this prefix comes first.
        for setting in await self._store.settings(under=name, limit=1):
            if setting.name == name:
                return state_of(setting)
        return None

    async def set(
        self,
        job: AnyJob[object] | None = None,
        *,
        expect: int | None = None,
        by: By | None = None,
        **given: Unpack[Timed],
    ) -> ScheduleState:
        """Makes or changes the schedule; what is not named stays. A new one needs a job and either
        `cron` or `every`. Raises StaleSetting if `expect` is not the current version (0: new).
        """
        made = None if job is None else self._scheduled(job)
        return await self.put(made, given, expect=expect, by=by)

    def _scheduled(self, job: AnyJob[object]) -> JobSpec:
        if self._enqueuer is None:
            raise InvalidInput(field="job", why="this handle knows no job types")
        return self._enqueuer.scheduled(self.tenant, job)

    async def put(
        self,
        job: JobSpec | None,
        given: Timed,
        *,
        expect: int | None = None,
        by: By | None = None,
    ) -> ScheduleState:
        """As `set`, with the job in its stored form."""
        check_given(given)

        def change(before: Definition | None, now: Micros) -> Definition:
            return defined(before, job, given, now)

        return await self._change(SET, change, expect=expect, by=by)

    async def delete(self, *, expect: int | None = None, by: By | None = None) -> None:
        """Deletes the schedule and its waiting tick. Jobs that it made stay."""
        await self.get()
        await self._change("deleted", lambda before, now: None, expect=expect, by=by)

    async def pause(self, reason: str, author: str = UNNAMED) -> ScheduleState:
        """Makes no more jobs until `resume`. What passes meanwhile is not made up for."""
        by = By(author, reason).checked()

        def change(before: Definition | None, now: Micros) -> Definition:
            paused = Paused(reason=by.reason, author=by.author, at=now)
            return msgspec.structs.replace(self._known(before), paused=paused)

        return await self._change("paused", change, by=by)

    async def resume(self, author: str = UNNAMED, reason: str = "") -> ScheduleState:
        """Ends a pause. Does nothing if there is none."""

        def change(before: Definition | None, now: Micros) -> Definition:
            return msgspec.structs.replace(self._known(before), paused=None)

        return await self._change("resumed", change, by=By(author, reason).checked())

    def _known(self, before: Definition | None) -> Definition:
        if before is None:
            why = f"{self.name!r} cannot be read; set it again"
            raise InvalidInput(field="schedule", why=why)
        return before

    async def register(self, wanted: Definition, code: str) -> bool:
        """Stores what the code says, unless it said the same before: then live changes stay.
        Returns whether anything changed. A pause stays, unless the schedule could not go on.
        """
        found = await self._find()
        if found is not None and found.definition is not None and found.definition.code == code:
            return False

        def change(before: Definition | None, now: Micros) -> Definition | None:
            if before is not None and before.code == code:
                return before
            if before is None:
                return msgspec.structs.replace(wanted, code=code)
            paused = None if before.broken else before.paused
            return msgspec.structs.replace(wanted, paused=paused, code=code, edits=before.edits)

        await self._change(SET, change, by=By("code"))
        return True

    async def _change(
        self,
        what: str,
        change: Callable[[Definition | None, Micros], Definition | None],
        *,
        expect: int | None = None,
        by: By | None = None,
        noted: bool = False,
    ) -> ScheduleState:
        """Writes the changed definition. With `noted` also one that has not changed, for the list
        of its changes.
        """
        now = await StoreClock(self._store).look()
        author, reason = (UNNAMED, "") if by is None else (by.author, by.reason)
        for left in range(TRIES_MAX - 1, -1, -1):
            found = await self._find()
            version = 0 if found is None else found.version
            if expect is not None and expect != version:
                raise self._stale(version, expect)
            if found is None and what != SET:
                await self.get()
            before = None if found is None else found.definition
            after = change(before, now)
            if found is not None and after == before and not noted:
                await self._ensure(after, now)
                return found
            if after is not None:
                after = revised(before, after, now).edited(Edit(now, author, what, reason))
                after = after.checked()
            if found is None:
                await has_room(self._store, self.tenant)
            value = None if after is None else encode(after)
            put = Put(name_of(self.tenant, self.name), value, version)
            try:
                await self._prepare(after)
                done = await self._store.settings([put], by=by)
            except StaleSetting:
                if expect is not None or left == 0:
                    raise
                continue
            await self._follow(before, after, now)
            if not done:
                return ScheduleState(self.tenant, self.name, after, 0)
            return state_of(done[0])
        raise AssertionError("the last try raises or returns")

    def _stale(self, version: int, expect: int) -> StaleSetting:
        name = name_of(self.tenant, self.name)
        return StaleSetting(field="version", name=name, version=version, expected=expect)

    async def _prepare(self, after: Definition | None) -> None:
        """Jobs that queue up are in a group that runs one at a time."""
        if after is not None and after.overlap is Overlap.QUEUE:
            if self.tenant == OVER_ALL:
                why = "'queue' is not possible over many tenants; use skip, allow or cancel"
                raise InvalidInput(field="overlap", why=why)
            group = Scope(self.tenant, ScopeKind.GROUP, f"{GROUP}{self.name}")
            await ScopeHandle(self._store, group).set(ordered=True)

    # -- ticks -----------------------------------------------------------------------------------

    async def _follow(
        self, before: Definition | None, after: Definition | None, now: Micros
    ) -> None:
        """Replaces the waiting tick of an earlier revision. If the process dies before that, the
        old tick ends quietly, and the upkeep enqueues the new one.
        """
        earlier: tuple[tuple[Micros, Micros], ...] = ()
        if before is not None and (after is None or after.revision != before.revision):
            ticks = await waiting_ticks(self._store, self.tenant, self.name)
            old = [one for one in ticks if after is None or one[1].revision != after.revision]
            earlier = next((tick.earlier for _, tick in old), ())
            if old:
                select = Selection(tenant=self.tenant, ids=tuple(ref.id for ref, _ in old))
                await self._store.change(Change(select=select, act=Act.DELETE, limit=len(old)))
        await self._ensure(after, now, earlier)

    async def _ensure(
        self,
        definition: Definition | None,
        now: Micros,
        earlier: Sequence[tuple[Micros, Micros]] = (),
    ) -> None:
        """Enqueues the next tick, if it is not waiting already."""
        if definition is None:
            return
        at = next_tick(self.tenant, self.name, definition, now)
        if at is None:
            return
        [answer] = await self._store.enqueue(
            [tick_job(self.tenant, self.name, definition, at, earlier)]
        )
        if answer.error is not None:
            raise answer.error

    async def next(self, number: int = 5) -> list[datetime]:
        """Its next instants, in its zone. Jitter is not included."""
        check_whole("number", number, 0, NEXT_MAX)
        found = await self.get()
        now = await StoreClock(self._store).look()
        return instants(found, now, number)

    async def _note(self, what: str, by: By | None) -> None:
        """Adds to the list of changes who made jobs, before they are made."""
        await self._change(what, lambda before, now: self._known(before), by=by, noted=True)

    async def run_now(self, *, by: By | None = None) -> Enqueued[object]:
        """Makes a job at once, besides the ticks and also during a pause."""
        definition = readable(await self.get())
        now = await StoreClock(self._store).look()
        if self.tenant == OVER_ALL:
            made = tick_job(self.tenant, self.name, definition, now, asked=True)
        else:
            made = target(self.tenant, self.name, definition, now, id=str(uuid_utils.uuid7()))
        await self._note("ran now", by)
        [answer] = await self._store.enqueue([made])
        if answer.error is not None:
            raise answer.error
        return answer

    async def backfill(
        self, first: datetime, last: datetime, *, apply: bool = False, by: By | None = None
    ) -> Backfill:
        """The ticks from `first` up to, but without, `last`. With `apply=True` each gets its job,
        unless it had one. At most BACKFILL_MAX; those to come make their jobs themselves.
        """
        start, end = instant_of("first", first), instant_of("last", last)
        definition = readable(await self.get())
        now = await StoreClock(self._store).look()
        if not start < end:
            raise InvalidInput(field="last", why="must be later than first")
        if end > now:
            raise InvalidInput(field="last", why="lies in the future: those ticks come themselves")
        ticks = list(_between(definition.timing, start, end))
        if len(ticks) > BACKFILL_MAX:
            why = f"has more than {BACKFILL_MAX} ticks; the first {BACKFILL_MAX} end before"
            raise InvalidInput(field="last", why=f"{why} {moment(ticks[-1]).isoformat()}")
        had = await self._made(ticks)
        missing = [at for at in ticks if at not in had]
        shown = tuple(local(definition.timing, at) for at in ticks)
        if not apply:
            return Backfill(shown, False, len(missing), len(had))
        if missing:
            told = f"{many(len(missing), 'tick')} of {instant_text(start)} to {instant_text(end)}"
            await self._note(f"backfilled {told}", by)
        key_us = key_length(definition)
        if self.tenant == OVER_ALL:
            jobs = [tick_job(self.tenant, self.name, definition, at, asked=True) for at in missing]
        else:
            jobs = [target(self.tenant, self.name, definition, at, key_us=key_us) for at in missing]
        answers = await self._store.enqueue(jobs) if jobs else []
        for answer in answers:
            if answer.error is not None:
                raise answer.error
        created = sum(answer.created for answer in answers)
        return Backfill(shown, True, created, len(ticks) - created)

    async def _made(self, ticks: Sequence[Micros]) -> frozenset[Micros]:
        """Which of the ticks have a record of their job, also by an earlier revision."""
        found: list[Micros] = []
        select = Selection(tenant=self.tenant, tags=(f"{TAG}{self.name}",))
        after = None
        for _ in range(PAGES_MAX):
            page = await self._store.find(Find(select=select, after=after, limit=PAGE_MAX))
            for job in page.jobs:
                at = tick_of(job.tags)
                if at is not None and job.type != TYPE:
                    found.append(instant_of("tick", at))
            after = page.cursor
            if after is None:
                break
        return frozenset(found).intersection(ticks)


def _between(timing: Timing, start: Micros, end: Micros) -> Iterator[Micros]:
    for at in islice(timing.after(start - 1), BACKFILL_MAX + 1):
        if at >= end:
            return
        yield at
