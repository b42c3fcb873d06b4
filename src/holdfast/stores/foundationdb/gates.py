"""Who waits for a place: lines without room rest, and jobs of limited groups stand before their
line until there is one.
"""

from __future__ import annotations

from holdfast.clock import Micros
from holdfast.job import State
from holdfast.scope import Scope, ScopeKind
from holdfast.stores.bell import Line
from holdfast.stores.foundationdb.layout import Space, after, number, text, texts, whole
from holdfast.stores.foundationdb.lines import unpoint
from holdfast.stores.foundationdb.places import Room, ask_rooms, contend, group_room, learn
from holdfast.stores.foundationdb.rows import BY_RANK, BY_SEQ, Row
from holdfast.stores.foundationdb.rules import Known
from holdfast.stores.foundationdb.step import Step

GRANTS_MAX = 2000
"""Jobs of a group that one step lets into their lines."""

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
    await unpoint(step, [line])
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
    for tenant, group in step.groups:
        ask_rooms(step, tenant, (ScopeKind.GROUP, group))
        step.ask_under(step.keys.own(tenant, Space.GATED, text(group)), 1)
    for tenant in step.tenants:
        step.ask_under(step.keys.all(Space.RESTING, text(tenant)), 0)
    step.ask(_resting(step, *line) for line in step.pointed if step.rules.ruled(line[0]))
    while step.groups:
        await grant(step, *step.groups.pop())
    while step.tenants:
        await _wake(step, step.tenants.pop())
    lines = [line for line in step.pointed if step.rules.ruled(line[0])]
    found = await step.get_many([_resting(step, *line) for line in lines])
    for line, resting in zip(lines, found, strict=True):
        if resting is not None:
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
    first = await head(step, tenant, group)
    if first is None:
        return []
    row = await step.row(tenant, first)
    waits = row is not None and row.state is State.ENQUEUED and row.gate and not row.late
    return [row.id] if row is not None and waits and row.queue == queue else []


async def head(step: Step, tenant: str, group: str) -> str | None:
    """The id of the first job of a group that has not ended."""
    found = await step.under(step.keys.own(tenant, Space.ORDER, text(group)), 1)
    return found[0][1].decode() if found else None


async def may_start(step: Step, row: Row) -> Room | None:
    """The room of a job's limited group, if it has one for this job now."""
    assert row.group is not None, "asked of groups only"
    room = await group_room(step, row.tenant, row.group, row.queue)
    if room.left() == 0:
        return None
    ordered = step.rules.group(row.tenant, row.group, row.queue).ordered
    # A group that has become ordered just now may still have others in the line.
    if ordered and await head(step, row.tenant, row.group) != row.id:
        return None
    return room


async def _first(step: Step, part: tuple[str, str, str], left: int) -> list[str]:
    """The jobs of a part that fill its room, and those that come before one that stands in the line
    already: the claim will see that together they do not exceed it.
    """
    tenant, group, queue = part
    place = text(group) + text(queue)
    most = min(left, GRANTS_MAX)
    waits, stands = (step.keys.own(tenant, space, place) for space in (Space.GATED, Space.GRANTED))
    for prefix in (waits, stands):
        step.ask_under(prefix, most)
    step.ask_range(stands, after(stands), 1, reverse=True)
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
