"""How much may run, how fast, and not now: the settings, counts and slots of a scope, by handle.

`acme.scope()`, `acme.queue("mail")` and `acme.group("crawl-7")` give one. A change names the fields
it changes and leaves the others; it is compare-and-set, and takes effect in the store's very step.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Unpack

import msgspec

from holdfast.amend import Limits, amended
from holdfast.ceiling import allowed
from holdfast.check import check_name, check_seconds
from holdfast.clock import Micros, micros
from holdfast.errors import InvalidInput, StaleSetting, StoreUnsupported, did_you_mean
from holdfast.job import TERMINAL, By, State
from holdfast.limits import HOLD_S_MAX, ID_MAX, NOTE_MAX, PAGE_MAX, within
from holdfast.scope import (
    NO_SETTINGS,
    Pause,
    Rate,
    Scope,
    ScopeKind,
    ScopeSettings,
    decode,
    encode,
)
from holdfast.store import Find, Page, Put, Ref, Selection, Store, Take, Tally

logger = logging.getLogger("holdfast")

TRIES_MAX = 10
"""How often a change without `expect` reads again after another was faster."""
STEP = 500
"""Jobs of one step of a cancel: small enough that claims go on in between."""
ALIVE = tuple(state for state in State if state not in TERMINAL)


class ScopeState(msgspec.Struct, frozen=True):
    """The settings of a scope, and the version to hand to `set` as `expect`; 0 is none set."""

    scope: Scope
    settings: ScopeSettings
    version: int


class Slot(msgspec.Struct, frozen=True):
    """A place that an outsider holds."""

    id: str
    until: Micros
    note: str = ""


class Canceling(msgspec.Struct, frozen=True):
    """How far the cancel of a group has come."""

    done: int
    total: int
    """How many there were at its begin; more may have come since."""


class ScopeHandle:
    """A tenant, or a queue of it. Cheap; holds nothing."""

    def __init__(self, store: Store, scope: Scope, *, platform: bool = True) -> None:
        """`platform`: who holds it acts for the platform, as code in this process does, and not
        for the tenant alone; see `ceiling.allowed`.
        """
        self.scope = scope.checked()
        self._store = store
        self._platform = platform

    # -- settings --------------------------------------------------------------------------------

    async def get(self) -> ScopeState:
        """What is set, and its version."""
        name = self.scope.name
        # The shortest of the names that begin so comes first.
        for setting in await self._store.settings(under=name, limit=1):
            if setting.name == name:
                return ScopeState(self.scope, decode(name, setting.value), setting.version)
        return ScopeState(self.scope, NO_SETTINGS, 0)

    async def set(
        self, *, expect: int | None = None, by: By | None = None, **changes: Unpack[Limits]
    ) -> ScopeState:
        """Changes the named fields. StaleSetting if `expect` is given and no longer the version,
        InvalidInput above a ceiling, PlatformOnly for what the tenant may not change.
        """
        if not changes:
            raise InvalidInput(field="set", why=f"say what: {', '.join(Limits.__annotations__)}")
        return await self._change(expect, lambda before: amended(before, dict(changes)), by)

    async def pause(self, reason: str, author: str) -> ScopeState:
        """Nothing of the scope is claimed until `resume`; what runs may end."""
        pause = Pause(reason, author)
        ScopeSettings(paused=pause).checked(self.scope.kind)
        await self.exists()
        return await self._change(
            None,
            lambda before: msgspec.structs.replace(before, paused=pause),
            By(author, reason),
        )

    async def resume(self, author: str, reason: str = "") -> ScopeState:
        """Ends a pause; changes nothing when there is none."""
        ScopeSettings(paused=Pause("resume", author)).checked(self.scope.kind)
        await self.exists()
        after = await self._change(
            None,
            lambda before: msgspec.structs.replace(before, paused=None),
            By(author, reason).checked(),
        )
        logger.info("%s: resumed by %s", words(self.scope), author)
        return after

    async def _change(
        self,
        expect: int | None,
        change: Callable[[ScopeSettings], ScopeSettings],
        by: By | None = None,
    ) -> ScopeState:
        supported(self._store)
        name = self.scope.name
        for left in range(TRIES_MAX - 1, -1, -1):
            found = await self.get()
            wanted = change(found.settings).checked(self.scope.kind)
            wanted = allowed(found.settings, wanted, platform=self._platform)
            if expect is not None and expect != found.version:
                raise StaleSetting(
                    field="version", name=name, version=found.version, expected=expect
                )
            if wanted == found.settings:
                return found
            value = None if wanted == NO_SETTINGS else encode(wanted)
            try:
                done = await self._store.settings([Put(name, value, found.version)], by=by)
            except StaleSetting:
                if expect is not None or left == 0:
                    raise
                continue
            if value is not None:
                # As it was stored: a service may know better than its client for whom it acts.
                wanted = decode(name, done[0].value)
            return ScopeState(self.scope, wanted, done[0].version if done else 0)
        raise AssertionError("the last try raises or returns")

    async def exists(self) -> None:
        """InvalidInput unless the scope has jobs, slots or settings."""
        supported(self._store)
        scope = self.scope
        if await self._tally() is not None or (await self.get()).version:
            return
        near = await self._store.count(scope.tenant, by=scope.kind)
        hint = did_you_mean(scope.part, [tally.queue for tally in near]) if scope.part else ""
        raise InvalidInput(
            field=scope.kind.value,
            why=f"there is no {words(scope)}: it has no jobs, no slots and no settings.{hint}",
        )

    # -- counts ----------------------------------------------------------------------------------

    async def counts(self) -> Tally:
        """How many of its jobs are in each state, and its slots; constant time."""
        found = await self._tally()
        return Tally(self.scope.tenant, self.scope.part, {}) if found is None else found

    async def _tally(self) -> Tally | None:
        scope = self.scope
        found = await self._store.count(scope.tenant, by=scope.kind, part=scope.part, limit=1)
        return found[0] if found else None

    # -- slots -----------------------------------------------------------------------------------

    async def push_slot(self, id: str, seconds: float, *, note: str = "") -> Slot:
        """Takes a place for a time, or renews it."""
        supported(self._store)
        check_name("id", id, ID_MAX)
        within("note", len(note.encode()), NOTE_MAX)
        length = micros(check_seconds("seconds", seconds, 0.001, HOLD_S_MAX))
        [hold] = await self._store.hold([Take(self.scope.slot(id), id, length, note)])
        return Slot(id, hold.until, note)

    async def remove_slot(self, id: str) -> None:
        """Gives a place back; one that is not held is no error."""
        supported(self._store)
        check_name("id", id, ID_MAX)
        await self._store.hold([Take(self.scope.slot(id), id, 0)])

    async def slots(self) -> list[Slot]:
        """The places that are held now, SLOTS_MAX at most."""
        return [slot async for slot in self.each_slot()]

    async def each_slot(self) -> AsyncIterator[Slot]:
        """The same, one by one, read a page at a time."""
        page = await self.slot_page()
        while page:
            for slot in page:
                yield slot
            page = [] if len(page) < PAGE_MAX else await self.slot_page(page[-1].id)

    async def slot_page(self, after: str = "", limit: int = PAGE_MAX) -> list[Slot]:
        """A page of them, by id, on from an id."""
        supported(self._store)
        prefix = self.scope.slots
        start = prefix + after if after else ""
        holds = await self._store.hold(under=prefix, after=start, limit=limit)
        return [Slot(hold.name.removeprefix(prefix), hold.until, hold.note) for hold in holds]

    async def count_slots(self) -> int:
        """How many places are held now."""
        return (await self.counts()).slots


class GroupHandle(ScopeHandle):
    """A group of a tenant's jobs, as `enqueue(..., group="crawl-7")` made it."""

    async def jobs(
        self,
        *,
        states: Iterable[State] = (),
        after: int | None = None,
        limit: int = 100,
        newest_first: bool = False,
    ) -> Page:
        """A page of its jobs; pass its cursor as `after` for the next."""
        select = Selection(
            tenant=self.scope.tenant, groups=(self.scope.part,), states=tuple(states)
        )
        find = Find(select=select, after=after, limit=limit, newest_first=newest_first)
        return await self._store.find(find)

    async def count_alive(self) -> int:
        """How many of its jobs have not ended."""
        counts = (await self.counts()).counts
        return sum(number for state, number in counts.items() if state in ALIVE)

    async def cancel(self, *, by: By | None = None) -> AsyncIterator[Canceling]:
        """Cancels all its jobs that have not ended, in bounded steps; tells how far it is."""
        total = await self.count_alive()
        done, after = 0, None
        while True:
            page = await self.jobs(states=ALIVE, after=after, limit=STEP)
            refs = [Ref(job.tenant, job.id) for job in page.jobs]
            if refs:
                done += sum(one.canceled for one in await self._store.cancel(refs, by=by))
            yield Canceling(done, max(done, total))
            if page.cursor is None:
                return
            after = page.cursor


# -- many ------------------------------------------------------------------------------------------


def handle(
    store: Store,
    tenant: str,
    *,
    queue: str | None = None,
    group: str | None = None,
    platform: bool = True,
) -> ScopeHandle:
    """The handle of a tenant, or of a queue or a group of it."""
    if queue is not None and group is not None:
        raise InvalidInput(field="group", why="name a queue or a group, not both")
    if group is not None:
        return GroupHandle(store, Scope(tenant, ScopeKind.GROUP, group), platform=platform)
    if queue is not None:
        return ScopeHandle(store, Scope(tenant, ScopeKind.QUEUE, queue), platform=platform)
    return ScopeHandle(store, Scope(tenant), platform=platform)


async def recount(store: Store) -> int:
    """Counts the jobs themselves and mends what differs; by how much `running` was off."""
    supported(store)
    found = await store.count(None, limit=1, recount=True)
    return found[0].correction if found else 0


def words(scope: Scope) -> str:
    """The scope as people name it."""
    if scope.kind is ScopeKind.TENANT:
        return f"tenant {scope.tenant!r}"
    return f"{scope.kind.value} {scope.part!r} of tenant {scope.tenant!r}"


def supported(store: Store) -> None:
    """StoreUnsupported where limits, pauses, groups' counts and slots are not kept."""
    if not store.capabilities.scopes:
        raise StoreUnsupported(store=type(store).__name__, feature="limits and pauses of scopes")


def rate_text(said: Rate) -> str:
    """`100/s`, with the burst if it is another number."""
    return said.words
