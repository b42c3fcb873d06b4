"""Jobs that wait for room: those of a limited group wait before their line, and lines without room
rest.
"""

from __future__ import annotations

from holdfast.core.clock import Micros
from holdfast.core.job import State
from holdfast.core.scope import Scope, ScopeKind
from holdfast.stores.foundationdb import limits_platform
from holdfast.stores.foundationdb.fairness_lines import drop_pointers
from holdfast.stores.foundationdb.layout import (
    STEP_BYTES_MAX,
    Space,
    after,
    number,
    text,
    texts,
    whole,
)
from holdfast.stores.foundationdb.limits import Room, ask_rooms, bound_bucket, contend, group_room
from holdfast.stores.foundationdb.rows import BY_RANK, BY_SEQ, Row
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.notifier import Line

GRANTS_MAX = 2000
"""Jobs of a group that one step moves into their lines."""
REGROUP_MAX = 500
"""Jobs that one step regroups."""
MARKS_MAX = 100
"""Marks of groups to regroup that one step looks at."""


async def reopen_freed(step: Step) -> None:
    """Uses the room that this step has made: grants jobs of groups, reopens resting lines."""
    for tenant, group in step.groups:
        ask_rooms(step, tenant, (ScopeKind.GROUP, group))
        step.ask_under(step.keys.own(tenant, Space.GROUP_WAITING, text(group)), 1)
    for tenant in step.tenants:
        step.ask_under(step.keys.all(Space.RESTING, text(tenant)), 0)
    step.ask(_resting(step, *line) for line in step.pointed if step.settings.has_any(line[0]))
    await grant(step)
    while step.tenants:
        await _reopen_lines(step, step.tenants.pop())
    lines = [line for line in step.pointed if step.settings.has_any(line[0])]
    found = await step.get_many([_resting(step, *line) for line in lines])
    for line, resting in zip(lines, found, strict=True):
        if resting is not None:
            step.pointed.discard(line)  # It has work, but no room: it keeps resting.
    if step.settings.platform:
        await limits_platform.follow(step)


# -- lines -----------------------------------------------------------------------------------------


def _resting(step: Step, tenant: str, queue: str) -> bytes:
    return step.keys.all(Space.RESTING, text(tenant), text(queue))


async def rest_lines(step: Step, lines: list[Line]) -> None:
    """Hides those of these lines from claims that still have no room."""
    await step.settings.load(tenant for tenant, _ in lines)
    for tenant, queue in lines:
        ask_rooms(step, tenant, (ScopeKind.QUEUE, queue))
    resting = [line for line in lines if await _rests(step, line)]
    await drop_pointers(step, resting)


async def _rests(step: Step, line: Line) -> bool:
    """Whether a line has no room; if so it is marked as resting."""
    tenant, queue = line
    full = []
    for scope in (Scope(tenant), Scope(tenant, ScopeKind.QUEUE, queue)):
        room = await Room.of(step, scope, step.settings.of(scope), snapshot=False)
        if room.left() == 0:
            full.append(room)
    if not full:
        return False
    step.put(_resting(step, *line), b"")
    note_resting(step, tenant)
    for room in full:
        await reopen_later(step, room)
        if room.opens_at() is not None:
            step.lines.add(line)  # Sleepers of the line may have to wake earlier.
    return True


async def _reopen_lines(step: Step, tenant: str) -> None:
    """Shows the resting lines of a tenant to claims again: there may be room."""
    prefix = step.keys.all(Space.RESTING, text(tenant))
    for key, _ in await step.under(prefix):
        [queue] = texts(key[len(prefix) :], 1)
        reopen_line(step, tenant, queue)


def reopen_line(step: Step, tenant: str, queue: str) -> None:
    """Shows a resting line to claims again."""
    step.drop(_resting(step, tenant, queue))
    step.point(tenant, queue)


def note_resting(step: Step, tenant: str) -> None:
    """Lists a tenant of which something rests or waits where a change of its tier finds it. Written
    blindly, so that no two steps conflict.
    """
    if step.settings.tiers.values:
        step.put(step.keys.tier_rests(step.settings.tier_of(tenant), tenant), b"")


# -- groups ----------------------------------------------------------------------------------------


def hold_back(step: Step, row: Row) -> None:
    """Decides where an enqueued job waits: in its line, or before it if its group is limited."""
    limited = row.state is State.ENQUEUED and step.settings.limits_group(
        row.tenant, row.group, row.queue
    )
    row.gate, row.granted, row.aside = 0, False, False
    if limited:
        assert row.group is not None
        ordered = step.settings.group(row.tenant, row.group, row.queue).ordered
        row.gate = BY_SEQ if ordered else BY_RANK


async def grant(step: Step) -> None:
    """Uses the room that this step has made in groups."""
    while step.groups:
        await grant_group(step, *step.groups.pop())


async def grant_group(step: Step, tenant: str, group: str) -> bool:
    """Moves as many of a group's jobs into their lines as it has room for, in their order; True
    where there is room for more than one step moves.
    """
    contend(step, Scope(tenant, ScopeKind.GROUP, group))
    queues = await _waiting_queues(step, tenant, group)
    more = [await _grant_queue(step, tenant, group, queue) for queue in queues]
    if queues:
        note_resting(step, tenant)
    step.groups.discard((tenant, group))
    return any(more)


async def _waiting_queues(step: Step, tenant: str, group: str) -> list[str]:
    """The queues in which jobs of a group wait before their line."""
    prefix = step.keys.own(tenant, Space.GROUP_WAITING, text(group))
    begin, end, found = prefix, after(prefix), list[str]()
    while pairs := await step.range(begin, end, 1):
        [queue] = texts(pairs[0][0][len(prefix) :], 1)
        found.append(queue)
        begin = after(prefix + text(queue))
    return found


async def _grant_queue(step: Step, tenant: str, group: str, queue: str) -> bool:
    settings = step.settings.group(tenant, group, queue)
    room = await group_room(step, tenant, group, queue)
    left = room.left()
    if left == 0:
        await reopen_later(step, room)
        return False
    if settings.ordered:
        granted = await _waiting_head(step, tenant, group, queue)
    else:
        granted = await _next_waiting(step, (tenant, group, queue), left)
    # A record that cannot be read stops its group alone.
    rows = [row for row in await step.rows([(tenant, id) for id in granted]) if row is not None]
    for row in rows:
        row.gate, row.granted = 0, not settings.open
        step.save(row)
    if len(granted) >= left:
        await reopen_later(step, room)
    return bool(rows) and left > len(granted) >= GRANTS_MAX


async def _waiting_head(step: Step, tenant: str, group: str, queue: str) -> list[str]:
    """The first job of an ordered group, if it waits in this queue."""
    first = await head(step, tenant, group)
    if first is None:
        return []
    row = await step.row(tenant, first)
    waits = row is not None and row.state is State.ENQUEUED and row.gate and not row.late
    return [row.id] if row is not None and waits and row.queue == queue else []


async def head(step: Step, tenant: str, group: str) -> str | None:
    """The id of the first job of a group that has not ended."""
    found = await step.under(step.keys.own(tenant, Space.GROUP_ORDER, text(group)), 1)
    return found[0][1].decode() if found else None


async def room_for(step: Step, row: Row) -> Room | None:
    """The room of a job's limited group, if the job may start in it now."""
    assert row.group is not None, "asked of groups only"
    room = await group_room(step, row.tenant, row.group, row.queue)
    if room.left() == 0:
        return None
    ordered = step.settings.group(row.tenant, row.group, row.queue).ordered
    # A group that became ordered a moment ago may still have others in the line.
    if ordered and await head(step, row.tenant, row.group) != row.id:
        return None
    return room


async def _next_waiting(step: Step, part: tuple[str, str, str], left: int) -> list[str]:
    """The jobs of a group in one queue that fill its room, and those that rank before one that is
    already in the line: the claim checks that together they do not exceed the room.
    """
    tenant, group, queue = part
    place = text(group) + text(queue)
    most = min(left, GRANTS_MAX)
    waits = step.keys.own(tenant, Space.GROUP_WAITING, place)
    ready = step.keys.own(tenant, Space.GROUP_READY, place)
    for prefix in (waits, ready):
        step.ask_under(prefix, most)
    step.ask_range(ready, after(ready), 1, reverse=True)
    waiting = [(key[len(waits) :], value) for key, value in await step.under(waits, most)]
    granted = await step.under(ready, most)
    if not granted:
        return [value.decode() for _, value in waiting]
    [(key, _)] = await step.under(ready, 1, reverse=True)
    worst, free = key[len(ready) :], left - len(granted)
    return [
        value.decode()
        for place_, (rank, value) in enumerate(waiting)
        if place_ < free or rank < worst
    ]


# -- reopening by time -----------------------------------------------------------------------------


async def reopen_later(step: Step, room: Room) -> None:
    """Remembers when time alone will make room in a scope, for claims and sleepers to look then."""
    at = room.opens_at()
    if at is None:
        return
    opens = step.keys.scope(Space.OPENS, room.scope)
    found = await step.get(opens)
    planned = None if found is None else number(found)
    if planned is not None and step.now < planned <= at:
        return
    if planned is not None:
        step.drop(_reopen_key(step, planned, room.scope))
    step.put(opens, whole(at))
    step.put(_reopen_key(step, at, room.scope), b"")
    if room.scope.kind is ScopeKind.GROUP:
        for queue in await _waiting_queues(step, room.scope.tenant, room.scope.part):
            step.lines.add((room.scope.tenant, queue))


def _reopen_key(step: Step, at: Micros, scope: Scope) -> bytes:
    return step.keys.all(Space.REOPEN, whole(at), step.keys.scope(Space.OPENS, scope))


async def reopen_due(step: Step, limit: int) -> int:
    """Looks again at the scopes that time may have opened; returns how many."""
    begin = step.keys.all(Space.REOPEN)
    span = begin + whole(1), begin + whole(step.now + 1)
    past = await step.range(*span, limit, snapshot=True)
    skip = 8 + len(step.keys.all(Space.OPENS))
    for key, _ in past:
        scope, _ = step.keys.scope_of(Space.REOPEN, key, skip)
        step.drop(key)
        step.drop(step.keys.scope(Space.OPENS, scope))
        await step.settings.load([scope.tenant])
        if scope.kind is ScopeKind.GROUP:
            step.groups.add((scope.tenant, scope.part))
        else:
            step.tenants.add(scope.tenant)
    return len(past)


# -- regrouping after a change of settings ---------------------------------------------------------
# The step that changes settings of a group leaves a mark in REGROUPS and regroups as many jobs as
# one transaction can take. Further steps go on from the place that the mark names, and the last one
# drops it. Any process that finds a mark may go on with it, and prune looks for marks, so a process
# that ends in the middle leaves nothing undone. The new settings hold from the first step on: a
# claim checks the group of each job that it is about to take, and puts back what may not start.


def mark_regroup(step: Step, tenant: str, group: str | None) -> None:
    """Marks the jobs of a group, or those of all groups of the tenant, to be regrouped."""
    step.put(step.keys.all(Space.REGROUPS, text(tenant), text(group or "")), b"")


async def has_marks(step: Step) -> bool:
    return bool(await step.under(step.keys.all(Space.REGROUPS), 1, snapshot=True))


async def regroup(step: Step) -> None:
    """Regroups as many of the marked jobs as one step can take."""
    prefix, left = step.keys.all(Space.REGROUPS), REGROUP_MAX
    for mark, place in await step.under(prefix, MARKS_MAX):
        tenant, group = texts(mark[len(prefix) :], 2)
        await step.settings.load([tenant])
        left -= await _regroup_some(step, (tenant, group), (mark, place), left)
        if left <= 0:
            break
    await reopen_freed(step)


async def _regroup_some(
    step: Step, part: tuple[str, str], marked: tuple[bytes, bytes], most: int
) -> int:
    """Goes on at the place of a mark; returns how many jobs it looked at."""
    (tenant, group), (mark, place) = part, marked
    prefix = step.keys.own(tenant, Space.GROUP_ORDER)
    everything = prefix + text(group) if group else prefix
    start = prefix + place + b"\0" if place else everything
    pairs = await step.range(start, after(everything), most, snapshot=True)
    rows = await step.rows([(tenant, value.decode()) for _, value in pairs])
    bounded: set[tuple[str, str]] = set()
    for (key, _), row in zip(pairs, rows, strict=True):
        if row is not None:
            await _regroup_job(step, row, bounded)
        if step.bytes >= STEP_BYTES_MAX:
            step.put(mark, key[len(prefix) :])
            return most
    if len(pairs) < most:
        step.drop(mark)
    else:
        step.put(mark, pairs[-1][0][len(prefix) :])
    return len(pairs)


async def _regroup_job(step: Step, row: Row, bounded: set[tuple[str, str]]) -> None:
    """Moves one job where the settings of its group want it."""
    assert row.group is not None, "only jobs of groups are in order"
    if (row.group, row.queue) not in bounded:
        bounded.add((row.group, row.queue))
        rate = step.settings.group(row.tenant, row.group, row.queue).rate
        await bound_bucket(step, Scope(row.tenant, ScopeKind.GROUP, row.group), rate)
    if row.state is State.ENQUEUED and not row.late:
        hold_back(step, row)
        step.save(row)
    step.groups.add((row.tenant, row.group))
