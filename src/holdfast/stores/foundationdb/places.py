"""How many jobs may start now, as the limits, rates, pauses and slots of scopes say.

Counts are read by snapshot. Who takes a place of a limited scope contends for its key in GATES, so
that no two take the same one; what only frees a place need not (see layout.py, P13).

**Parts.** Where many claim from a tenant or a queue with one limit, all but one would fail. So the
limit is in parts, each with a key and a counter of its own, and a job has its place in one of them.
What is left for them (the limit, less slots, less held jobs that have no part because they began
under other settings) is dealt out evenly; a claimer begins with parts of its own, and takes no more
than is left there. As the parts together are never more than the limit, claims of different parts
need not know of each other. Slots contend for all parts, settings for RULED; and while a part has
more held jobs than its share, as after either, so does every claim.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from holdfast.clock import Micros
from holdfast.job import State
from holdfast.scope import (
    PREFIX,
    Bucket,
    GroupGate,
    Rate,
    Scope,
    ScopeKind,
    ScopeSettings,
    decode,
    scope_of,
)
from holdfast.stores.bell import Line
from holdfast.stores.foundationdb.layout import Space, number, text, whole
from holdfast.stores.foundationdb.named import hold_of, setting_of
from holdfast.stores.foundationdb.rules import Known
from holdfast.stores.foundationdb.step import SHARDS, SHARDS_MAX, STATES, Step

UNLIMITED = 1 << 60
Share = tuple[int, int]
"""Which of how many claimers."""
ALONE: Share = (0, 1)
LINES_AHEAD = 100
"""Lines that are asked about together."""


def ask(step: Step, tenants: Iterable[str]) -> None:
    """Asks whether these tenants have the settings that are known."""
    step.ask(step.keys.all(Space.RULED, text(each)) for each in dict.fromkeys(tenants))


async def learn(step: Step, known: Known, tenants: Iterable[str]) -> None:
    """Makes the settings of these tenants known to the step."""
    asked = [each for each in dict.fromkeys(tenants) if not step.rules.knows(each)]
    keys = [step.keys.all(Space.RULED, text(each)) for each in asked]
    for tenant, stamp in zip(asked, await step.get_many(keys), strict=True):
        settings = {} if stamp is None else known.get(tenant, stamp)
        if settings is None:
            assert stamp is not None
            settings = await settings_of(step, tenant)
            known.put(tenant, stamp, settings)
        step.rules.learn(tenant, settings)


async def settings_of(step: Step, tenant: str) -> dict[Scope, ScopeSettings]:
    found: dict[Scope, ScopeSettings] = {}
    for kind in ScopeKind:
        name = f"{PREFIX}{kind.value}/{len(tenant)}:{tenant}/"
        prefix = step.keys.all(Space.SETTINGS, text(name)[:-1])
        for key, value in await step.under(prefix):
            setting = setting_of(step.keys, key, value)
            scope = scope_of(setting.name) if setting.value is not None else None
            if scope is not None and setting.value is not None:
                found[scope] = decode(setting.name, setting.value)
    return found


# -- room ------------------------------------------------------------------------------------------


class Room:
    """How many jobs of a scope may start, as far as the scope goes."""

    def __init__(self, step: Step, scope: Scope, gate: ScopeSettings | GroupGate) -> None:
        self.step = step
        self.scope = scope
        self.gate = gate
        self.running = 0
        self.slots: list[Micros] = []
        """The ends of those that outsiders hold and that count."""
        self.bucket = Bucket()
        self._free: list[int] = []
        """Places left in each part; none where the limit is not in parts."""
        self._even = True
        """Whether no part has more than its share."""

    @classmethod
    async def of(
        cls, step: Step, scope: Scope, gate: ScopeSettings | GroupGate, *, earnest: bool = False
    ) -> Room:
        """As it is at this version; read in earnest, it must be so still at the commit."""
        room = cls(step, scope, gate)
        if gate.max_running is not None and gate.paused is None:
            room.running = await running(step, scope, earnest=earnest)
            if gate.slots_count:
                slots = await live_slots(step, scope, earnest=earnest)
                room.slots = [until for _, until in slots]
            await room._deal()
        if gate.rate is not None:
            room.bucket = await bucket(step, scope)
        return room

    async def _deal(self) -> None:
        """Finds what is left in each part."""
        step, parts = self.step, parts_of(self.scope, self.gate)
        assert self.gate.max_running is not None
        held = [await step.counted(step.shard_key(self.scope, part)) for part in range(parts)]
        without = self.running - sum(held)
        most = max(0, self.gate.max_running - len(self.slots) - without)
        shares = [most // parts + (part < most % parts) for part in range(parts)]
        self._free = [share - has for share, has in zip(shares, held, strict=True)]
        self._even = all(free >= 0 for free in self._free)

    def left(self) -> int:
        gate, left = self.gate, UNLIMITED
        if gate.paused is not None:
            return 0
        if gate.max_running is not None:
            left = gate.max_running - self.running - len(self.slots)
        if gate.rate is not None:
            left = min(left, self.bucket.tokens(gate.rate, self.step.now))
        return max(0, left)

    def near(self, share: Share) -> int:
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
        """Takes the place of a job that starts, in the parts of this claimer if they have one;
        gives the part, -1 where there are none.
        """
        self.running += 1
        if self.gate.rate is not None:
            self.bucket = self.bucket.take(self.gate.rate, 1, self.step.now)
            put_bucket(self.step, self.scope, self.bucket)
        if self.gate.max_running is None:
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
        """When an empty bucket has its next token; None when it is not the bucket that is empty."""
        rate = self.gate.rate
        if rate is None or self.bucket.tokens(rate, self.step.now) > 0:
            return None
        return self.bucket.next_at(rate, self.step.now)

    def opens_at(self) -> Micros | None:
        """When time alone will make room, if it will."""
        instants = [self.token_at(), *self.slots]
        return min((at for at in instants if at is not None), default=None)


def parts_of(scope: Scope, gate: ScopeSettings | GroupGate) -> int:
    """In how many parts the limit of a scope is; a group's is not."""
    most: int | None = gate.max_running
    if scope.kind is ScopeKind.GROUP or most is None:
        return 0
    return min(SHARDS_MAX, most)


def _part_key(step: Step, scope: Scope, part: int) -> bytes:
    return step.keys.scope(Space.GATES, scope) + SHARDS[part]


def contend(step: Step, scope: Scope) -> None:
    step.contend(step.keys.scope(Space.GATES, scope))


def contend_all(step: Step, scope: Scope) -> None:
    """Contends with all who take places of a scope, of whichever part."""
    contend(step, scope)
    for part in range(parts_of(scope, step.rules.of(scope))):
        step.contend(_part_key(step, scope, part))


async def running(step: Step, scope: Scope, *, earnest: bool = False) -> int:
    """How many jobs of a scope are held."""
    return await step.counted(_running_key(step, scope), earnest=earnest)


def _running_key(step: Step, scope: Scope) -> bytes:
    return step.keys.scope(Space.COUNTS, scope) + STATES[State.PROCESSING]


async def live_slots(
    step: Step, scope: Scope, *, earnest: bool = False
) -> list[tuple[str, Micros]]:
    """The places of a scope that outsiders hold now, and until when."""
    prefix = step.keys.all(Space.HOLDS, text(scope.slots)[:-1])
    pairs = await step.under(prefix, snapshot=not earnest)
    holds = [hold_of(step.keys, *pair) for pair in pairs]
    return [
        (hold.name.removeprefix(scope.slots), hold.until) for hold in holds if hold.until > step.now
    ]


async def bucket(step: Step, scope: Scope) -> Bucket:
    found = await step.get(step.keys.scope(Space.BUCKETS, scope))
    return Bucket() if found is None else Bucket(number(found))


def put_bucket(step: Step, scope: Scope, bucket: Bucket) -> None:
    step.put(step.keys.scope(Space.BUCKETS, scope), whole(bucket.full_at))


async def bound(step: Step, scope: Scope, rate: Rate | None) -> None:
    """Lets a new rate count from now: a bucket is never emptier than empty."""
    if rate is not None:
        known = await bucket(step, scope)
        bounded = known.bounded(rate, step.now)
        if bounded != known:
            put_bucket(step, scope, bounded)


def ask_rooms(step: Step, tenant: str, *parts: tuple[ScopeKind, str]) -> None:
    """Asks for what the rooms of a tenant and of parts of it will be made of."""
    if not step.rules.ruled(tenant):
        return
    for scope in (Scope(tenant), *(Scope(tenant, kind, part) for kind, part in parts)):
        step.ask((_running_key(step, scope), step.keys.scope(Space.BUCKETS, scope)))
        count = parts_of(scope, step.rules.of(scope))
        step.ask(step.shard_key(scope, part) for part in range(count))


async def line_rooms(
    step: Step, tenant: str, queue: str, known: dict[Scope, Room] | None = None
) -> list[Room]:
    """What the tenant and the queue of a line say; nothing where nothing is set.

    The rooms that are known already must have been told of all that started in them.
    """
    if not step.rules.ruled(tenant):
        return []
    rooms = {} if known is None else known
    scopes = (Scope(tenant), Scope(tenant, ScopeKind.QUEUE, queue))
    for scope in scopes:
        if scope not in rooms:
            rooms[scope] = await Room.of(step, scope, step.rules.of(scope))
    return [rooms[scope] for scope in scopes]


async def group_room(step: Step, tenant: str, group: str, queue: str) -> Room:
    scope = Scope(tenant, ScopeKind.GROUP, group)
    return await Room.of(step, scope, step.rules.group(tenant, group, queue))


async def survey(
    step: Step, known: Known, lines: list[Line]
) -> AsyncIterator[tuple[Line, list[Room], bool]]:
    """Each line, what its tenant and queue say, and whether it has ready jobs."""
    for place, line in enumerate(lines):
        if place % LINES_AHEAD == 0:
            await _ask_ahead(step, known, lines[place : place + LINES_AHEAD])
        ready = await step.under(step.keys.ready(*line), 1, snapshot=True)
        yield line, await line_rooms(step, *line), bool(ready)


async def _ask_ahead(step: Step, known: Known, lines: list[Line]) -> None:
    for line in lines:
        step.ask_under(step.keys.ready(*line), 1)
    await learn(step, known, (tenant for tenant, _ in lines))
    for tenant, queue in lines:
        ask_rooms(step, tenant, (ScopeKind.QUEUE, queue))
