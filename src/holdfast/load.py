"""The backlog and the number of workers that it needs: one call for autoscalers.

    slots    = running + runnable / waiting_per_slot, rounded up
    wanted   = slots / slots of one worker, rounded up, between `at_least` and `at_most`

`runnable` counts the ready jobs that limits and pauses allow to run: a million jobs behind a limit
of two need no more workers than two jobs, also if the limit is of a tier or a default. Rates and
limits of job types are not considered. Limits of all tenants together are considered if the load of
all tenants is asked for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

import msgspec

from holdfast.core import bounds
from holdfast.core.bounds import SCOPES_MAX
from holdfast.core.check import check_whole
from holdfast.core.clock import Micros, seconds
from holdfast.core.errors import StoreError
from holdfast.core.job import State
from holdfast.core.scope import NO_SETTINGS, Scope, ScopeKind, ScopeSettings, group_settings
from holdfast.core.tiers import Defaults, effective, layers_of
from holdfast.listings import configured, tallies
from holdfast.scopes import ScopeState
from holdfast.store import Store, Tally
from holdfast.tiers import tiers
from holdfast.worker_registry import Worker, present_workers

WAITING_PER_SLOT = 10
SLOTS_PER_WORKER = 10
WANTED_MAX = 10_000
UNLIMITED = 1 << 60


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The backlog of all tenants, or of the given ones."""

    runnable: int
    """Ready jobs that no pause and no running limit blocks."""
    waiting: int
    """All ready jobs."""
    oldest_at: Micros | None
    """Since when the oldest ready job of a runnable line has been waiting."""
    oldest_wait_s: float
    workers: int
    """Present workers that serve at least one of the lines."""
    running: int
    """Their busy slots; with `own`, the running jobs of the tenants."""
    slots: int
    wanted: int
    """The number of workers needed."""
    whole: bool = True
    """False if there are more queues, groups or scopes than one call counts."""

    @property
    def busy(self) -> float:
        """The busy part of the slots, 0 to 1."""
        return self.running / self.slots if self.slots else 0.0


async def load(
    store: Store,
    *,
    tenants: Iterable[str] | None = None,
    queues: Iterable[str] | None = None,
    waiting_per_slot: int = WAITING_PER_SLOT,
    at_least: int = 0,
    at_most: int = WANTED_MAX,
    own: bool = False,
    now: Micros | None = None,
) -> Load:
    """Measures the backlog, the present workers, and the number of workers needed.

    `own` restricts the answer to what the named tenants may see: `running` counts their running
    jobs, not the busy slots of workers that serve other tenants too.
    """
    check_whole("waiting_per_slot", waiting_per_slot, 1, 1_000_000)
    check_whole("at_most", at_most, 1, WANTED_MAX)
    check_whole("at_least", at_least, 0, at_most)
    names = None if tenants is None else set(tenants)
    lines = None if queues is None else set(queues)
    counted = await _all(store, names, ScopeKind.QUEUE)
    found = [tally for tally in counted if lines is None or tally.queue in lines]
    settings = await _settings(store, names)
    rules = _Rules(settings, await _tiers(store))
    groups = await _all(store, names, ScopeKind.GROUP) if rules.grouped else []
    over_all = _Platform(counted, settings)
    runnable, oldest = _runnable(found, groups, rules, over_all)
    # A tenant must not learn about the workers of other tenants.
    alone = next(iter(names)) if names is not None and len(names) == 1 else None
    present = await present_workers(store, alone, own=own)
    workers = [one for one in present if one.note.serves_any(names, lines)]
    running = sum(_running(tally) for tally in found) if own else _busy(workers)
    slots = sum(one.note.concurrency for one in workers)
    each = slots / len(workers) if slots else SLOTS_PER_WORKER
    need = running + math.ceil(runnable / waiting_per_slot)
    at = time.time_ns() // 1000 if now is None else now
    return Load(
        runnable=runnable,
        waiting=sum(_ready(tally) for tally in found),
        oldest_at=oldest,
        oldest_wait_s=0.0 if oldest is None else max(0.0, seconds(at - oldest)),
        workers=len(workers),
        running=running,
        slots=slots,
        wanted=min(at_most, max(at_least, math.ceil(need / each))),
        whole=max(len(counted), len(groups)) < bounds.LOAD_MAX and len(settings) < SCOPES_MAX,
    )


def _busy(workers: list[Worker]) -> int:
    return sum(one.note.running for one in workers)


def _running(tally: Tally) -> int:
    return tally.counts.get(State.PROCESSING, 0)


async def _all(store: Store, tenants: set[str] | None, by: ScopeKind) -> list[Tally]:
    asked: list[str | None] = [None] if tenants is None else [*sorted(tenants)]
    found: list[Tally] = []
    for tenant in asked:
        async for tally in tallies(store, tenant, by):
            if len(found) >= bounds.LOAD_MAX:
                return found
            found.append(tally)
    return found


async def _settings(store: Store, tenants: set[str] | None) -> dict[Scope, ScopeState]:
    if tenants is None:
        return await configured(store)
    found = [await configured(store, tenant) for tenant in sorted(tenants)]
    return {scope: state for each in found for scope, state in each.items()}


async def _tiers(store: Store) -> dict[str, Defaults]:
    """The tiers and the defaults. None for a caller of a service who may not read them."""
    if not store.capabilities.tiers:
        return {}
    try:
        return {one.tier: one.defaults for one in await tiers(store)}
    except StoreError as error:
        if type(error) is not StoreError:  # The store is away or damaged.
            raise
        return {}


class _Rules:
    """What counts for each scope: its own settings, and what its layers fill in."""

    def __init__(self, settings: dict[Scope, ScopeState], tiers: dict[str, Defaults]) -> None:
        self._settings = settings
        self._tiers = tiers
        self._found: dict[Scope, ScopeSettings] = {}
        """What was asked for already: each queue is, once per group of its tenant."""

    @property
    def grouped(self) -> bool:
        """Whether any group has a limit or a pause. Only then its counts are needed."""
        return any(
            scope.kind is ScopeKind.GROUP or state.settings.groups is not None
            for scope, state in self._settings.items()
        ) or any(one.group is not None for one in self._tiers.values())

    def of(self, scope: Scope) -> ScopeSettings:
        if not self._tiers:
            return self._own(scope)
        if scope not in self._found:
            layers = layers_of(self._own(Scope(scope.tenant)).tier, self._tiers)
            self._found[scope] = effective(self._own(scope), scope.kind, layers)
        return self._found[scope]

    def _own(self, scope: Scope) -> ScopeSettings:
        state = self._settings.get(scope)
        return NO_SETTINGS if state is None else state.settings


class _Platform:
    """The room that the limits and pauses over all tenants leave. The settings of some tenants
    contain none of these, and leave all room.
    """

    def __init__(self, counted: list[Tally], settings: dict[Scope, ScopeState]) -> None:
        self._rooms: dict[str, int] = {}
        """By queue; the store's by an empty name."""
        for scope, state in settings.items():
            if scope.of_platform and scope.kind is not ScopeKind.TYPE:
                mine = [one for one in counted if not scope.part or one.queue == scope.part]
                running = {State.PROCESSING: sum(map(_running, mine))}
                self._rooms[scope.part] = _room(Tally("", scope.part, running), state.settings)

    @property
    def room(self) -> int:
        """The room of the whole store."""
        return self._rooms.get("", UNLIMITED)

    def of(self, queue: str) -> int:
        """The room of a queue over all tenants."""
        return min(self.room, self._rooms.get(queue, UNLIMITED))

    def allows(self, ready: dict[str, int]) -> int:
        """How many of the ready jobs, by queue, it allows to run."""
        return min(self.room, sum(min(count, self.of(queue)) for queue, count in ready.items()))


def _runnable(
    lines: list[Tally],
    groups: list[Tally],
    rules: _Rules,
    over_all: _Platform,
) -> tuple[int, Micros | None]:
    """How many of the ready jobs may run, and since when the oldest of them waits."""
    of = rules.of
    by_tenant: dict[str, list[Tally]] = {}
    for line in lines:
        by_tenant.setdefault(line.tenant, []).append(line)
    stuck: dict[str, int] = {}
    for group in groups:
        of_queues = [
            of(Scope(line.tenant, ScopeKind.QUEUE, line.queue))
            for line in by_tenant.get(group.tenant, [])
            if _ready(line)
        ]
        own = of(Scope(group.tenant, ScopeKind.GROUP, group.queue))
        room = max((_group_room(group, own, queue) for queue in of_queues), default=UNLIMITED)
        stuck[group.tenant] = stuck.get(group.tenant, 0) + max(0, _ready(group) - room)
    total, ages = 0, []
    by_queue: dict[str, int] = {}
    for tenant, mine in by_tenant.items():
        queues = [of(Scope(tenant, ScopeKind.QUEUE, line.queue)) for line in mine]
        rooms = [
            min(_room(line, queue), over_all.of(line.queue))
            for line, queue in zip(mine, queues, strict=True)
        ]
        for line, room in zip(mine, rooms, strict=True):
            by_queue[line.queue] = by_queue.get(line.queue, 0) + min(_ready(line), room)
        may = sum(min(_ready(line), room) for line, room in zip(mine, rooms, strict=True))
        unstuck = sum(map(_ready, mine)) - stuck.get(tenant, 0)
        running = {State.PROCESSING: sum(map(_running, mine))}
        whole = _room(Tally(tenant, "", running), of(Scope(tenant)))
        part = max(0, min(may, unstuck, whole))
        total += part
        if part:
            ages += [line.oldest_at for line, room in zip(mine, rooms, strict=True) if room]
    oldest = min((age for age in ages if age is not None), default=None)
    return min(total, over_all.allows(by_queue)), oldest


def _ready(tally: Tally) -> int:
    return tally.counts.get(State.ENQUEUED, 0)


def _room(tally: Tally, rules: ScopeSettings) -> int:
    if rules.paused is not None:
        return 0
    return _left(tally, rules.max_running, rules.slots_count)


def _group_room(tally: Tally, own: ScopeSettings, queue: ScopeSettings) -> int:
    """A group may have jobs in several queues. Its tally does not say in which."""
    settings = group_settings(own, queue)
    if settings.paused is not None:
        return 0
    return _left(tally, settings.max_running, settings.slots_count)


def _left(tally: Tally, most: int | None, slots_count: bool) -> int:
    if most is None:
        return UNLIMITED
    taken = tally.counts.get(State.PROCESSING, 0) + (tally.slots if slots_count else 0)
    return max(0, most - taken)
