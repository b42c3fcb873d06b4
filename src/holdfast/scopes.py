"""How much may run, how fast, and not now: the settings, counts and slots of a scope, by handle.

`acme.scope()`, `acme.queue("mail")` and `acme.group("crawl-7")` give one. A change names the fields
it changes and leaves the others; it is compare-and-set, and takes effect in the store's very step.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, TypedDict, Unpack

import msgspec

from holdfast.clock import Micros, micros
from holdfast.errors import InvalidInput, StaleSetting, StoreUnsupported, did_you_mean
from holdfast.job import TERMINAL, By, State, check_name, check_seconds
from holdfast.limits import DELAY_S_MAX, ID_MAX, PAGE_MAX, SETTING_MAX, within
from holdfast.scope import (
    NO_RULES,
    NO_SETTINGS,
    PREFIX,
    GroupRules,
    Pause,
    Rate,
    Scope,
    ScopeKind,
    ScopeSettings,
    decode,
    encode,
    rate,
    scope_of,
)
from holdfast.store import Find, Page, Put, Ref, Selection, Store, Take, Tally

logger = logging.getLogger("holdfast")

TRIES_MAX = 10
"""How often a change without `expect` reads again after another was faster."""
STEP = 500
"""Jobs of one step of a cancel: small enough that claims go on in between."""
ALIVE = tuple(state for state in State if state not in TERMINAL)


class GroupLimits(TypedDict, total=False):
    """What a queue may say for its groups. None takes a rule away."""

    max_running: int | None
    rate: str | Rate | None
    burst: int
    ordered: bool | None


class Limits(TypedDict, total=False):
    """What `set` may change. None takes a limit away; what is not named stays."""

    max_running: int | None
    """Jobs that are held by workers at a time."""
    rate: str | Rate | None
    """How many may start in how long: `100/s`, `60/m`, `1000/h`, `5/d`."""
    burst: int
    """How many of them may start at once; as many as the rate's number unless given."""
    slots_count: bool
    """Slots that outsiders hold take places under `max_running`."""
    weight: int
    """Of a tenant: its part of a claim over many."""
    max_queued: int | None
    """Of a tenant: jobs that have not ended."""
    max_bytes: int | None
    """Of a tenant: their payloads."""
    ordered: bool | None
    """Of a group: one at a time, in the order of their first enqueue."""
    groups: GroupLimits | GroupRules | None
    """Of a queue: what its groups have unless they say otherwise."""


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

    def __init__(self, store: Store, scope: Scope) -> None:
        self.scope = scope.checked()
        self._store = store

    # -- settings --------------------------------------------------------------------------------

    async def get(self) -> ScopeState:
        """What is set, and its version."""
        name = self.scope.name
        for setting in await self._store.settings(under=name):
            if setting.name == name:
                return ScopeState(self.scope, decode(name, setting.value), setting.version)
        return ScopeState(self.scope, NO_SETTINGS, 0)

    async def set(
        self, *, expect: int | None = None, by: By | None = None, **changes: Unpack[Limits]
    ) -> ScopeState:
        """Changes the named fields. StaleSetting if `expect` is given and no longer the version."""
        if not changes:
            raise InvalidInput(field="set", why=f"say what: {', '.join(Limits.__annotations__)}")
        _known("", changes, Limits)
        return await self._change(expect, lambda before: _amended(before, dict(changes)), by)

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
        within("note", len(note), SETTING_MAX)
        length = micros(check_seconds("seconds", seconds, 0.001, DELAY_S_MAX))
        [hold] = await self._store.hold([Take(self.scope.slot(id), id, length, note)])
        return Slot(id, hold.until, note)

    async def remove_slot(self, id: str) -> None:
        """Gives a place back; one that is not held is no error."""
        supported(self._store)
        check_name("id", id, ID_MAX)
        await self._store.hold([Take(self.scope.slot(id), id, 0)])

    async def slots(self) -> list[Slot]:
        """The places that are held now."""
        supported(self._store)
        prefix = self.scope.slots
        holds = await self._store.hold(under=prefix)
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
    store: Store, tenant: str, *, queue: str | None = None, group: str | None = None
) -> ScopeHandle:
    """The handle of a tenant, or of a queue or a group of it."""
    if queue is not None and group is not None:
        raise InvalidInput(field="group", why="name a queue or a group, not both")
    if group is not None:
        return GroupHandle(store, Scope(tenant, ScopeKind.GROUP, group))
    if queue is not None:
        return ScopeHandle(store, Scope(tenant, ScopeKind.QUEUE, queue))
    return ScopeHandle(store, Scope(tenant))


async def configured(store: Store, tenant: str | None = None) -> dict[Scope, ScopeState]:
    """Every scope that has settings."""
    prefixes = (
        [PREFIX]
        if tenant is None
        else [f"{PREFIX}{kind.value}/{len(tenant)}:{tenant}/" for kind in ScopeKind]
    )
    found: dict[Scope, ScopeState] = {}
    for prefix in prefixes:
        for setting in await store.settings(under=prefix):
            scope = scope_of(setting.name)
            if scope is not None:
                settings = decode(setting.name, setting.value)
                found[scope] = ScopeState(scope, settings, setting.version)
    return found


async def tallies(
    store: Store, tenant: str | None, by: ScopeKind = ScopeKind.QUEUE
) -> AsyncIterator[Tally]:
    """The counts of every scope of a kind, a page at a time."""
    page = await (store.count(tenant) if by is ScopeKind.QUEUE else store.count(tenant, by=by))
    while True:
        for tally in page:
            yield tally
        if len(page) < PAGE_MAX:
            return
        page = await store.count(tenant, by=by, after=(page[-1].tenant, page[-1].queue))


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


# -- changes ---------------------------------------------------------------------------------------


def _known(prefix: str, changes: Any, kind: Any) -> None:
    for name in changes:
        if name not in kind.__annotations__:
            hint = did_you_mean(name, kind.__annotations__)
            raise InvalidInput(field=f"{prefix}{name}", why=f"there is no such setting.{hint}")


def _amended(before: ScopeSettings, changes: dict[str, Any]) -> ScopeSettings:
    """The settings with what was named changed."""
    changes = dict(changes)
    if "groups" in changes:
        changes["groups"] = _groups(before.groups, changes["groups"])
    _rated("", before.rate, changes)
    for field, kind in (("slots_count", bool), ("ordered", bool)):
        value = changes.get(field)
        if value is not None and not isinstance(value, kind):
            raise InvalidInput(field=field, why=f"must be true or false, not {value!r}")
    for field in ("slots_count", "weight"):
        if field in changes and changes[field] is None:
            changes[field] = getattr(NO_SETTINGS, field)
    return msgspec.structs.replace(before, **changes)


def _rated(prefix: str, before: Rate | None, changes: dict[str, Any]) -> None:
    """Makes one Rate of what was said of `rate` and `burst`."""
    said = changes.get("rate", before)
    burst = changes.pop("burst", None)
    if burst is not None and said is None:
        raise InvalidInput(field=f"{prefix}burst", why="is how a rate bursts; give a rate too")
    if isinstance(said, Rate):
        text = f"{said.count}/{_unit(said)}"
        changes["rate"] = rate(text, said.burst if burst is None else burst)
    elif said is not None:
        changes["rate"] = rate(said, burst)


def _unit(said: Rate) -> str:
    for unit in "smhd":
        if rate(f"1/{unit}").per_us == said.per_us:
            return unit
    raise InvalidInput(field="rate", why=f"per {said.per_us} us is no unit: s, m, h or d")


def rate_text(said: Rate) -> str:
    """`100/s`, with the burst if it is another number."""
    burst = "" if said.burst == said.count else f" burst {said.burst}"
    return f"{said.count}/{_unit(said)}{burst}"


def _groups(before: GroupRules | None, said: Any) -> GroupRules | None:
    if said is None or isinstance(said, GroupRules):
        return said
    if not isinstance(said, dict):
        raise InvalidInput(field="groups", why=f"must be GroupRules or a dict, not {said!r}")
    _known("groups.", said, GroupLimits)
    changes = dict(said)
    old = before or NO_RULES
    _rated("groups.", old.rate, changes)
    rules = msgspec.structs.replace(old, **changes)
    return None if rules == NO_RULES else rules
