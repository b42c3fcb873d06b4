"""What may start now, as the limits, rates, pauses and slots of scopes say; and who waits for it.

Counts are read by snapshot. Who takes a place of a limited scope contends for its key in GATES, so
that no two take the same one; what only frees a place need not (see layout.py, P13).
"""

from __future__ import annotations

from collections.abc import Iterable

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
from holdfast.stores.foundationdb.layout import (
    SEQ,
    Space,
    after,
    number,
    text,
    texts,
    whole,
)
from holdfast.stores.foundationdb.named import hold_of, setting_of
from holdfast.stores.foundationdb.rows import BY_RANK, BY_SEQ, Row
from holdfast.stores.foundationdb.rules import Known
from holdfast.stores.foundationdb.step import STATES, Step

UNLIMITED = 1 << 60
GRANTS_MAX = 2000
"""Jobs of a group that one step lets into their lines."""


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
        if gate.rate is not None:
            room.bucket = await bucket(step, scope)
        return room

    def left(self) -> int:
        gate, left = self.gate, UNLIMITED
        if gate.paused is not None:
            return 0
        if gate.max_running is not None:
            left = gate.max_running - self.running - len(self.slots)
        if gate.rate is not None:
            left = min(left, self.bucket.tokens(gate.rate, self.step.now))
        return max(0, left)

    def start(self, count: int = 1) -> None:
        """Takes the places of jobs that start."""
        if not count:
            return
        self.running += count
        if self.gate.max_running is not None:
            contend(self.step, self.scope)
        if self.gate.rate is not None:
            for _ in range(count):
                self.bucket = self.bucket.take(self.gate.rate, 1, self.step.now)
            put_bucket(self.step, self.scope, self.bucket)

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


def contend(step: Step, scope: Scope) -> None:
    step.contend(step.keys.scope(Space.GATES, scope))


async def running(step: Step, scope: Scope, *, earnest: bool = False) -> int:
    """How many jobs of a scope are held."""
    key = step.keys.scope(Space.COUNTS, scope) + STATES[State.PROCESSING]
    return await step.counted(key, earnest=earnest)


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


# -- lines -----------------------------------------------------------------------------------------


def _resting(step: Step, tenant: str, queue: str) -> bytes:
    return step.keys.all(Space.RESTING, text(tenant), text(queue))


async def close(step: Step, known: Known, line: Line) -> None:
    """Lets a line rest that has no room, if that is so still: claims do not see it then."""
    tenant, queue = line
    await learn(step, known, [tenant])
    shut = []
    for scope in (Scope(tenant), Scope(tenant, ScopeKind.QUEUE, queue)):
        room = await Room.of(step, scope, step.rules.of(scope), earnest=True)
        if room.left() == 0:
            shut.append(room)
    if not shut:
        return
    step.put(_resting(step, *line), b"")
    for key in step.keys.line(*line):
        step.drop(key)
    for room in shut:
        await reopen_later(step, room)
        if room.opens_at() is not None:
            step.lines.add(line)  # Who sleeps there may have to wake earlier.


async def _wake(step: Step, tenant: str) -> None:
    """Lets the resting lines of a tenant be seen again: there may be room."""
    prefix = step.keys.all(Space.RESTING, text(tenant))
    for key, _ in await step.under(prefix):
        [queue] = texts(key[len(prefix) :], 1)
        step.drop(key)
        step.point(tenant, queue)


# -- groups ----------------------------------------------------------------------------------------


async def open_up(step: Step) -> None:
    """Lets go on what waited for the places that this step has freed."""
    while step.groups:
        await grant(step, *step.groups.pop())
    while step.tenants:
        await _wake(step, step.tenants.pop())
    for line in [line for line in step.pointed if step.rules.ruled(line[0])]:
        if await step.get(_resting(step, *line)) is not None:
            step.pointed.discard(line)  # It has work, but no room: it rests on.


def gate(step: Step, row: Row) -> None:
    """Says where an enqueued job has to stand: before its line, if its group is limited."""
    gated = row.state is State.ENQUEUED and step.rules.gated(row.tenant, row.group, row.queue)
    row.gate, row.granted = 0, False
    if gated:
        assert row.group is not None
        ordered = step.rules.group(row.tenant, row.group, row.queue).ordered
        row.gate = BY_SEQ if ordered else BY_RANK


async def grant(step: Step, tenant: str, group: str) -> None:
    """Lets as many of a group's jobs into their lines as it has room for, the first first."""
    contend(step, Scope(tenant, ScopeKind.GROUP, group))
    for queue in await _queues(step, Space.GATED, tenant, group):
        await _grant_part(step, tenant, group, queue)
    step.groups.discard((tenant, group))


async def _queues(step: Step, space: Space, tenant: str, group: str) -> list[str]:
    """The queues in which a group has such entries."""
    prefix = step.keys.own(tenant, space, text(group))
    begin, end, found = prefix, after(prefix), list[str]()
    while pairs := await step.range(begin, end, 1):
        [queue] = texts(pairs[0][0][len(prefix) :], 1)
        found.append(queue)
        begin = after(prefix + text(queue))
    return found


async def _grant_part(step: Step, tenant: str, group: str, queue: str) -> None:
    rules = step.rules.group(tenant, group, queue)
    room = await group_room(step, tenant, group, queue)
    left = room.left()
    if left == 0:
        await reopen_later(step, room)
        return
    if rules.ordered:
        waiting = await _head(step, tenant, group, queue)
    else:
        waiting = await _first(step, (tenant, group, queue), left)
    for row in await step.rows([(tenant, id) for id in waiting]):
        assert row is not None, "an entry of a group leads to a job"
        row.gate, row.granted = 0, not rules.open
        step.save(row)
    if len(waiting) >= left:
        await reopen_later(step, room)


async def _head(step: Step, tenant: str, group: str, queue: str) -> list[str]:
    """The first job of an ordered group, if it waits in this queue."""
    found = await step.under(step.keys.own(tenant, Space.ORDER, text(group)), 1)
    if not found:
        return []
    row = await step.row(tenant, found[0][1].decode())
    waits = row is not None and row.state is State.ENQUEUED and row.gate and not row.late
    return [row.id] if row is not None and waits and row.queue == queue else []


async def _first(step: Step, part: tuple[str, str, str], left: int) -> list[str]:
    """The jobs of a part that fill its room, and those that come before one that stands in the line
    already: the claim will see that together they do not exceed it.
    """
    tenant, group, queue = part
    place = text(group) + text(queue)
    most = min(left, GRANTS_MAX)
    waits, stands = (step.keys.own(tenant, space, place) for space in (Space.GATED, Space.GRANTED))
    waiting = [(key[len(waits) :], value) for key, value in await step.under(waits, most)]
    granted = await step.under(stands, most)
    if not granted:
        return [value.decode() for _, value in waiting]
    [(key, _)] = await step.under(stands, 1, reverse=True)
    worst, free = key[len(stands) :], left - len(granted)
    return [
        value.decode()
        for place_, (rank, value) in enumerate(waiting)
        if place_ < free or rank < worst
    ]


async def regrant(step: Step, tenant: str, group: str) -> None:
    """Sorts a group anew after its rules have changed."""
    found = await step.under(step.keys.own(tenant, Space.ORDER, text(group)))
    names = [(tenant, value.decode()) for _, value in found]
    for row in await step.rows(names):
        if row is not None and row.state is State.ENQUEUED and not row.late:
            gate(step, row)
            step.save(row)
    step.groups.add((tenant, group))


async def groups_of(step: Step, tenant: str) -> list[str]:
    """The groups of a tenant that have jobs which have not ended."""
    prefix = step.keys.own(tenant, Space.ORDER)
    begin, end, found = prefix, after(prefix), list[str]()
    while pairs := await step.range(begin, end, 1):
        [group] = texts(pairs[0][0][len(prefix) : -SEQ], 1)
        found.append(group)
        begin = after(prefix + text(group))
    return found


# -- what time opens -------------------------------------------------------------------------------


async def reopen_later(step: Step, room: Room) -> None:
    """Remembers when time alone will let a group go on, for claims and sleepers to look then."""
    at = room.opens_at()
    if at is None:
        return
    opens = step.keys.scope(Space.OPENS, room.scope)
    found = await step.get(opens)
    known = None if found is None else number(found)
    if known is not None and step.now < known <= at:
        return
    if known is not None:
        step.drop(_reopen_key(step, known, room.scope))
    step.put(opens, whole(at))
    step.put(_reopen_key(step, at, room.scope), b"")
    if room.scope.kind is ScopeKind.GROUP:
        for queue in await _queues(step, Space.GATED, room.scope.tenant, room.scope.part):
            step.lines.add((room.scope.tenant, queue))


def _reopen_key(step: Step, at: Micros, scope: Scope) -> bytes:
    return step.keys.all(Space.REOPEN, whole(at), step.keys.scope(Space.OPENS, scope))


async def reopen(step: Step, known: Known, limit: int) -> int:
    """Looks again at the groups that time may have opened; returns how many."""
    begin = step.keys.all(Space.REOPEN)
    past = await step.range(begin, begin + whole(step.now + 1), limit, snapshot=True)
    skip = 8 + len(step.keys.all(Space.OPENS))
    for key, _ in past:
        scope, _ = step.keys.scope_of(Space.REOPEN, key, skip)
        step.drop(key)
        step.drop(step.keys.scope(Space.OPENS, scope))
        await learn(step, known, [scope.tenant])
        if scope.kind is ScopeKind.GROUP:
            step.groups.add((scope.tenant, scope.part))
        else:
            step.tenants.add(scope.tenant)
    return len(past)
