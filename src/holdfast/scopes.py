"""Handles for scopes: limits, rates, pauses, counts and slots.

`acme.scope()`, `acme.queue("mail")` and `acme.group("crawl-7")` return one, and `platform.py` has
those over all tenants. A change names the fields that it changes and keeps the others. It uses
compare-and-set and takes effect at once.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Unpack

import msgspec

from holdfast.core.amend import Limits, amended
from holdfast.core.bounds import HOLD_S_MAX, ID_MAX, NOTE_MAX, PAGE_MAX, TENANT_MAX, within
from holdfast.core.ceiling import allowed
from holdfast.core.check import check_name, check_seconds
from holdfast.core.clock import Micros, micros
from holdfast.core.errors import InvalidInput, StaleSetting, StoreUnsupported, did_you_mean
from holdfast.core.job import TERMINAL, By, State
from holdfast.core.rate import Rate
from holdfast.core.scope import NO_SETTINGS, Pause, Scope, ScopeKind, ScopeSettings, decode, encode
from holdfast.core.tiers import Effective
from holdfast.dispatch import name_of
from holdfast.store import Find, Page, Put, Ref, Selection, Store, Take, Tally
from holdfast.tiers import effective

logger = logging.getLogger("holdfast")

TRIES_MAX = 10
"""How often a change without `expect` is tried again after a concurrent change."""
STEP = 500
"""Jobs in one step of a cancel. Small, so that claims can run between steps."""
ALIVE = tuple(state for state in State if state not in TERMINAL)


class ScopeState(msgspec.Struct, frozen=True):
    """The settings of a scope, and their version for `set(expect=...)`. Version 0: none are set."""

    scope: Scope
    settings: ScopeSettings
    version: int


class Slot(msgspec.Struct, frozen=True):
    """A slot that something outside the queue holds."""

    id: str
    until: Micros
    note: str = ""


class Canceling(msgspec.Struct, frozen=True):
    """The progress of canceling a group."""

    done: int
    total: int
    """The number of jobs at the start; more may have been added since."""


class ScopeHandle:
    """A handle for a tenant, a queue or the platform. Cheap to create; it keeps no resources."""

    def __init__(self, store: Store, scope: Scope, *, platform: bool = True) -> None:
        """`platform`: the handle acts for the platform, as code in this process does, and not only
        for the tenant; see `ceiling.allowed`.
        """
        self.scope = scope.checked()
        self._store = store
        self._platform = platform

    # -- settings --------------------------------------------------------------------------------

    async def get(self) -> ScopeState:
        """The settings and their version."""
        name = self.scope.name
        # The shortest name with this prefix comes first.
        for setting in await self._store.settings(under=name, limit=1):
            if setting.name == name:
                return ScopeState(self.scope, decode(name, setting.value), setting.version)
        return ScopeState(self.scope, NO_SETTINGS, 0)

    async def effective(self) -> dict[str, Effective]:
        """Each value that counts, with the layer that gave it; see `tiers.effective`."""
        return await effective(self._store, self.scope)

    async def set(
        self, *, expect: int | None = None, by: By | None = None, **changes: Unpack[Limits]
    ) -> ScopeState:
        """Changes the named fields. Raises StaleSetting if `expect` is not the current version,
        InvalidInput above a ceiling, PlatformOnly for what the tenant may not change.
        """
        if not changes:
            raise InvalidInput(
                field="set", why=f"name at least one of: {', '.join(Limits.__annotations__)}"
            )
        return await self._change(expect, lambda before: amended(before, dict(changes)), by)

    async def pause(self, reason: str, author: str) -> ScopeState:
        """Stops claims from the scope until `resume`. Running jobs continue."""
        pause = Pause(reason, author)
        ScopeSettings(paused=pause).checked(self.scope)
        await self.exists()
        return await self._change(
            None,
            lambda before: msgspec.structs.replace(before, paused=pause),
            By(author, reason),
        )

    async def resume(self, author: str, reason: str = "") -> ScopeState:
        """Ends a pause. Does nothing if there is none."""
        ScopeSettings(paused=Pause("resume", author)).checked(self.scope)
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
            wanted = change(found.settings).checked(self.scope)
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
                # As stored: a service may have replaced the author by the caller's own name.
                wanted = decode(name, done[0].value)
            return ScopeState(self.scope, wanted, done[0].version if done else 0)
        raise AssertionError("the last try raises or returns")

    async def exists(self) -> None:
        """Raises InvalidInput unless the scope has jobs, slots or settings. A scope of the platform
        may be limited before its first job.
        """
        supported(self._store)
        scope = self.scope
        if scope.of_platform:
            return
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
        """The number of its jobs in each state, and of its slots, in constant time."""
        found = await self._tally()
        return Tally(self.scope.tenant, self.scope.part, {}) if found is None else found

    async def _tally(self) -> Tally | None:
        scope = self.scope
        found = await self._store.count(scope.tenant, by=scope.kind, part=scope.part, limit=1)
        return found[0] if found else None

    # -- slots -----------------------------------------------------------------------------------

    async def push_slot(self, id: str, seconds: float, *, note: str = "") -> Slot:
        """Takes a slot for a time, or renews it."""
        supported(self._store)
        check_name("id", id, ID_MAX)
        within("note", len(note.encode()), NOTE_MAX)
        length = micros(check_seconds("seconds", seconds, 0.001, HOLD_S_MAX))
        [hold] = await self._store.hold([Take(self.scope.slot(id), id, length, note)])
        return Slot(id, hold.until, note)

    async def remove_slot(self, id: str) -> None:
        """Gives a slot back. It is no error if the slot is not held."""
        supported(self._store)
        check_name("id", id, ID_MAX)
        await self._store.hold([Take(self.scope.slot(id), id, 0)])

    async def slots(self) -> list[Slot]:
        """The slots that are held now, at most SLOTS_MAX."""
        return [slot async for slot in self.each_slot()]

    async def each_slot(self) -> AsyncIterator[Slot]:
        """Yields the slots that are held now, read page by page."""
        page = await self.slot_page()
        while page:
            for slot in page:
                yield slot
            page = [] if len(page) < PAGE_MAX else await self.slot_page(page[-1].id)

    async def slot_page(self, after: str = "", limit: int = PAGE_MAX) -> list[Slot]:
        """A page of slots, in order of their ids, after a given id."""
        supported(self._store)
        prefix = self.scope.slots
        start = prefix + after if after else ""
        holds = await self._store.hold(under=prefix, after=start, limit=limit)
        return [Slot(hold.name.removeprefix(prefix), hold.until, hold.note) for hold in holds]

    async def count_slots(self) -> int:
        """The number of slots that are held now."""
        return (await self.counts()).slots


class GroupHandle(ScopeHandle):
    """A handle for a group of a tenant's jobs, made by `enqueue(..., group="crawl-7")`."""

    async def jobs(
        self,
        *,
        states: Iterable[State] = (),
        after: int | None = None,
        limit: int = 100,
        newest_first: bool = False,
    ) -> Page:
        """A page of its jobs. Pass its cursor as `after` to get the next page."""
        select = Selection(
            tenant=self.scope.tenant, groups=(self.scope.part,), states=tuple(states)
        )
        find = Find(select=select, after=after, limit=limit, newest_first=newest_first)
        return await self._store.find(find)

    async def count_alive(self) -> int:
        """The number of its jobs that have not ended."""
        counts = (await self.counts()).counts
        return sum(number for state, number in counts.items() if state in ALIVE)

    async def cancel(self, *, by: By | None = None) -> AsyncIterator[Canceling]:
        """Cancels all its jobs that have not ended, in bounded steps. Yields the progress."""
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
    """A handle for a tenant, or for one of its queues or groups."""
    if queue is not None and group is not None:
        raise InvalidInput(field="group", why="name a queue or a group, not both")
    check_name("tenant", tenant, TENANT_MAX)  # Without one it would be a scope of the platform.
    if group is not None:
        return GroupHandle(store, Scope(tenant, ScopeKind.GROUP, group), platform=platform)
    if queue is not None:
        return ScopeHandle(store, Scope(tenant, ScopeKind.QUEUE, queue), platform=platform)
    return ScopeHandle(store, Scope(tenant), platform=platform)


async def recount(store: Store) -> int:
    """Recounts the jobs and corrects the counts. Returns by how much `running` was wrong."""
    supported(store)
    found = await store.count(None, limit=1, recount=True)
    return found[0].correction if found else 0


def words(scope: Scope) -> str:
    """The scope as text for people."""
    if scope.kind is ScopeKind.PLATFORM:
        return "the platform"
    if scope.of_platform:
        return f"{scope.kind.value} {scope.part!r} of the platform"
    if scope.kind is ScopeKind.TENANT:
        return f"tenant {scope.tenant!r}"
    return f"{scope.kind.value} {scope.part!r} of tenant {scope.tenant!r}"


def supported(store: Store) -> None:
    """Raises StoreUnsupported if the store keeps no limits, pauses, group counts and slots."""
    if not store.capabilities.scopes:
        raise StoreUnsupported(store=name_of(store), feature="limits and pauses of scopes")


def rate_text(said: Rate) -> str:
    """The rate as text, `100/s`, with the burst if that differs."""
    return said.words
