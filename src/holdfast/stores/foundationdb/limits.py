"""Limits, rates, pauses and slots: how many jobs of a scope may start now.

Counts are read by snapshot. A step that takes a place of a limited scope contends for the scope's
key in LIMIT_LOCKS, so that no two take the same place. A step that only frees one need not
(layout.py, P13).

**Parts.** If a limit were one counter, of many claimers of one tenant or queue all but one would
fail. So a limit is split into parts, each with a key and a counter of its own, and a running job
occupies a place in one of them. What is left for the parts (the limit, less slots, less running
jobs that have no part because they began under other settings) is dealt out evenly. A claimer
begins with parts of its own and takes no more than is left there. The parts together are never more
than the limit, so claims of different parts need not know of each other. Slots contend for all
parts, and settings for SCOPE_STAMPS. While a part has more running jobs than its share, as after
either, every claim contends for all parts too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from holdfast.core.clock import Micros
from holdfast.core.job import State
from holdfast.core.rate import Bucket, Rate
from holdfast.core.scope import GroupSettings, Scope, ScopeKind, ScopeSettings
from holdfast.stores.foundationdb.layout import Space, number, text, whole
from holdfast.stores.foundationdb.rows import hold_of
from holdfast.stores.foundationdb.step import SHARDS, SHARDS_MAX, STATES, Step
from holdfast.stores.notifier import Line

UNLIMITED = 1 << 60
Share = tuple[int, int]
"""Which of how many claimers."""
ALONE: Share = (0, 1)
INSTANT = 8
"""Bytes of an instant."""
LINES_AHEAD = 100
"""Lines whose limits are requested together."""


class Room:
    """How many jobs of a scope may start, as far as the scope goes."""

    def __init__(self, step: Step, scope: Scope, settings: ScopeSettings | GroupSettings) -> None:
        self.step = step
        self.scope = scope
        self.settings = settings
        self.running = 0
        self.slots: list[Micros] = []
        """The deadlines of slots that count."""
        self.bucket = Bucket()
        self.closed = False
        """Whether nothing may start until the running jobs are counted."""
        self._free: list[int] = []
        """Places left in each part; empty where the limit is not split."""
        self._even = True
        """Whether no part has more than its share."""

    @classmethod
    async def of(
        cls,
        step: Step,
        scope: Scope,
        settings: ScopeSettings | GroupSettings,
        *,
        snapshot: bool = True,
    ) -> Room:
        """As it is at this version; without `snapshot` it must still be so at the commit."""
        room = cls(step, scope, settings)
        if settings.max_running is not None and settings.paused is None:
            room.running = await running(step, scope, snapshot=snapshot)
            if settings.slots_count:
                slots = await live_slots(step, scope, snapshot=snapshot)
                room.slots = [until for _, until in slots]
            await room._deal()
        if settings.rate is not None:
            room.bucket = await bucket_of(step, scope, settings.rate)
        return room

    async def _deal(self) -> None:
        """Computes what is left in each part."""
        step, parts = self.step, parts_of(self.scope, self.settings)
        assert self.settings.max_running is not None
        held = [await step.counted(step.shard_key(self.scope, part)) for part in range(parts)]
        without = self.running - sum(held)
        most = max(0, self.settings.max_running - len(self.slots) - without)
        shares = [most // parts + (part < most % parts) for part in range(parts)]
        self._free = [share - has for share, has in zip(shares, held, strict=True)]
        self._even = all(free >= 0 for free in self._free)

    def left(self) -> int:
        settings, left = self.settings, UNLIMITED
        if settings.paused is not None or self.closed:
            return 0
        if settings.max_running is not None:
            left = settings.max_running - self.running - len(self.slots)
        if settings.rate is not None:
            left = min(left, self.bucket.tokens(settings.rate, self.step.now))
        return max(0, left)

    def left_for(self, share: Share) -> int:
        """How many may start in the parts of one claimer."""
        if not self._free:
            return self.left()
        return min(self.left(), sum(max(0, self._free[part]) for part in self._own(share)))

    def _own(self, share: Share) -> range:
        """The parts of one of several claimers."""
        rank, claimers = share
        parts = len(self._free)
        return range(rank % parts, parts, min(parts, claimers))

    def start(self, share: Share = ALONE) -> int:
        """Takes the place of a job that starts, in the claimer's own parts if they have one.

        Returns the part, or -1 where the limit is not split.
        """
        self.running += 1
        if self.settings.rate is not None:
            self.bucket = self.bucket.take(self.settings.rate, 1, self.step.now)
            put_bucket(self.step, self.scope, self.bucket)
        if self.settings.max_running is None:
            return -1
        if not self._free:
            contend(self.step, self.scope)
            return -1
        order = [*self._own(share), *range(len(self._free))]
        part: int = next((each for each in order if self._free[each] > 0), order[0])
        self._free[part] -= 1
        self.step.add(self.step.shard_key(self.scope, part), 1)
        for each in [part] if self._even else range(len(self._free)):
            self.step.contend(_part_key(self.step, self.scope, each))
        return part

    def token_at(self) -> Micros | None:
        """When an empty bucket has its next token; None when the bucket is not empty."""
        rate = self.settings.rate
        if rate is None or self.bucket.tokens(rate, self.step.now) > 0:
            return None
        return self.bucket.next_at(rate, self.step.now)

    def opens_at(self) -> Micros | None:
        """When the passing of time alone makes room, if it does."""
        instants = [self.token_at(), *self.slots]
        return min((at for at in instants if at is not None), default=None)


def start(rooms: list[Room], share: Share) -> tuple[int, ...]:
    """Takes the places of one job, in this claimer's parts if it can; returns the parts."""
    parts = tuple(room.start(share) for room in rooms)
    return parts if max(parts, default=-1) >= 0 else ()


# -- places ----------------------------------------------------------------------------------------


def parts_of(scope: Scope, settings: ScopeSettings | GroupSettings) -> int:
    """Into how many parts the limit of a scope is split; a group's and the platform's are not."""
    most: int | None = settings.max_running
    if scope.kind is ScopeKind.GROUP or scope.of_platform or most is None:
        return 0
    return min(SHARDS_MAX, most)


def _part_key(step: Step, scope: Scope, part: int) -> bytes:
    return step.keys.scope(Space.LIMIT_LOCKS, scope) + SHARDS[part]


def contend(step: Step, scope: Scope) -> None:
    step.contend(step.keys.scope(Space.LIMIT_LOCKS, scope))


def contend_all(step: Step, scope: Scope) -> None:
    """Contends with every step that takes a place of a scope, in any part."""
    contend(step, scope)
    for part in range(parts_of(scope, step.settings.of(scope))):
        step.contend(_part_key(step, scope, part))


async def running(step: Step, scope: Scope, *, snapshot: bool = True) -> int:
    """How many jobs of a scope are held."""
    return await step.counted(running_key(step, scope), snapshot=snapshot)


def running_key(step: Step, scope: Scope) -> bytes:
    return step.keys.scope(Space.COUNTS, scope) + STATES[State.PROCESSING]


async def live_slots(
    step: Step, scope: Scope, *, snapshot: bool = True
) -> list[tuple[str, Micros]]:
    """The slots of a scope that are held now, and until when."""
    prefix = step.keys.all(Space.HOLDS, text(scope.slots)[:-1])
    pairs = await step.under(prefix, snapshot=snapshot)
    holds = [hold_of(step.keys, *pair) for pair in pairs]
    return [
        (hold.name.removeprefix(scope.slots), hold.until) for hold in holds if hold.until > step.now
    ]


# -- rates -----------------------------------------------------------------------------------------


async def bucket_of(step: Step, scope: Scope, rate: Rate | None) -> Bucket:
    """The bucket of a scope. Where a tier has changed its rate since it was written, the new rate
    counts from that change on.
    """
    found = await step.get(step.keys.scope(Space.BUCKETS, scope))
    if found is None:
        return Bucket()
    bucket, change = Bucket(number(found)), step.settings.rates_change(scope.tenant)
    if rate is None or change.number <= _known(found):
        return bucket
    return bucket.bounded(rate, change.at)


def _known(value: bytes) -> int:
    """The change of rates that the writer of a bucket knew of."""
    return number(value[INSTANT:]) if len(value) > INSTANT else 0


def put_bucket(step: Step, scope: Scope, bucket: Bucket) -> None:
    change = step.settings.rates_change(scope.tenant).number
    value = whole(bucket.full_at) + (whole(change) if change else b"")
    step.put(step.keys.scope(Space.BUCKETS, scope), value)


async def bound_bucket(step: Step, scope: Scope, rate: Rate | None) -> None:
    """Applies a new rate from now on: a bucket is never emptier than empty."""
    if rate is not None:
        before = await bucket_of(step, scope, rate)
        bounded = before.bounded(rate, step.now)
        if bounded != before:
            put_bucket(step, scope, bounded)


# -- lines and groups ------------------------------------------------------------------------------


def ask_rooms(step: Step, tenant: str, *parts: tuple[ScopeKind, str]) -> None:
    """Requests what the rooms of a tenant and of parts of it are computed from."""
    if not step.settings.has_any(tenant):
        return
    for scope in (Scope(tenant), *(Scope(tenant, kind, part) for kind, part in parts)):
        ask_room(step, scope)
        count = parts_of(scope, step.settings.of(scope))
        step.ask(step.shard_key(scope, part) for part in range(count))


def ask_room(step: Step, scope: Scope) -> None:
    """Requests the running jobs and the bucket of a scope."""
    step.ask((running_key(step, scope), step.keys.scope(Space.BUCKETS, scope)))


async def line_rooms(
    step: Step, tenant: str, queue: str, known: dict[Scope, Room] | None = None
) -> list[Room]:
    """The rooms of a line's tenant and queue; none where nothing is set.

    `known` are rooms of this step that count every job that it started in them.
    """
    if not step.settings.has_any(tenant):
        return []
    rooms = {} if known is None else known
    scopes = (Scope(tenant), Scope(tenant, ScopeKind.QUEUE, queue))
    for scope in scopes:
        if scope not in rooms:
            rooms[scope] = await Room.of(step, scope, step.settings.of(scope))
    return [rooms[scope] for scope in scopes]


async def group_room(step: Step, tenant: str, group: str, queue: str) -> Room:
    scope = Scope(tenant, ScopeKind.GROUP, group)
    return await Room.of(step, scope, step.settings.group(tenant, group, queue))


async def survey(step: Step, lines: list[Line]) -> AsyncIterator[tuple[Line, list[Room], bool]]:
    """Each line, the rooms of its tenant and queue, and whether it has ready jobs."""
    for place, line in enumerate(lines):
        if place % LINES_AHEAD == 0:
            await _ask_ahead(step, lines[place : place + LINES_AHEAD])
        ready = await step.under(step.keys.ready(*line), 1, snapshot=True)
        yield line, await line_rooms(step, *line), bool(ready)


async def _ask_ahead(step: Step, lines: list[Line]) -> None:
    for line in lines:
        step.ask_under(step.keys.ready(*line), 1)
    await step.settings.load(tenant for tenant, _ in lines)
    for tenant, queue in lines:
        ask_rooms(step, tenant, (ScopeKind.QUEUE, queue))
