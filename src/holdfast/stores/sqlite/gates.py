"""What may start now, as the limits, rates, pauses and slots of scopes say; and who waits for it.

A tenant, or a line (tenant, queue), without room is closed: it leaves the index that claims walk. A
job of a group without room is gated: it leaves the index of ready jobs. What frees room is told by
the moves that are counted anyway, so that no way to end a job can forget it: `open_up` looks at the
tenants, lines and groups that they touched.
"""

from __future__ import annotations

import sqlite3

import msgspec

from holdfast.clock import Micros
from holdfast.scope import (
    Bucket,
    GroupGate,
    Rate,
    Scope,
    ScopeKind,
    ScopeSettings,
)
from holdfast.stores.sql_rows import BLOCKED
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite import turn_statements as turn_sql
from holdfast.stores.sqlite.transaction import Transaction

UNLIMITED = 1 << 60
WAKES_MAX = 64
"""Lines of a tenant whose sleepers are woken by name; of more, everybody is."""

_encode = msgspec.json.Encoder().encode


class Room:
    """How many jobs of a scope may start, as far as the scope goes."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        scope: Scope,
        gate: ScopeSettings | GroupGate,
        now: Micros,
    ) -> None:
        self.scope = scope
        self.gate = gate
        self.now = now
        self._key = key_of(scope)
        self._execute = connection.execute
        self.running = self.slots = 0
        self.bucket = Bucket()
        if gate.max_running is not None:
            self.running, self.slots = taken(connection, scope, gate.slots_count, now)
        if gate.rate is not None:
            found = self._execute(sql.BUCKET, self._key).fetchone()
            self.bucket = Bucket(found[0] if found is not None else 0)

    def left(self) -> int:
        gate, left = self.gate, UNLIMITED
        if gate.paused is not None:
            return 0
        if gate.max_running is not None:
            left = gate.max_running - self.running - self.slots
        if gate.rate is not None:
            left = min(left, self.bucket.tokens(gate.rate, self.now))
        return max(0, left)

    def start(self, number: int = 1) -> None:
        """Takes the places of jobs that start."""
        self.running += number
        if self.gate.rate is not None:
            for _ in range(number):
                self.bucket = self.bucket.take(self.gate.rate, 1, self.now)

    def save(self) -> None:
        if self.gate.rate is not None:
            self._execute(sql.BUCKET_PUT, (*self._key, self.bucket.full_at))

    def token_at(self) -> Micros | None:
        """When an empty bucket has its next token; None when it is not the bucket that is empty."""
        rate = self.gate.rate
        if rate is None or self.bucket.tokens(rate, self.now) > 0:
            return None
        return self.bucket.next_at(rate, self.now)

    def opens_at(self) -> Micros | None:
        """When time alone will make room, if it will."""
        instants = [self.token_at()]
        if self.slots:
            found = self._execute(sql.SLOT_NEXT, (self.scope.slots, self.now)).fetchone()
            instants.append(found[0] if found is not None else None)
        return min((at for at in instants if at is not None), default=None)


def key_of(scope: Scope) -> tuple[str, str, str]:
    return scope.kind.value, scope.tenant, scope.part


def taken(
    connection: sqlite3.Connection, scope: Scope, with_slots: bool, now: Micros
) -> tuple[int, int]:
    """How many jobs of a scope are held, and how many of its places outsiders hold."""
    found = connection.execute(sql.TAKEN, key_of(scope)).fetchone()
    if found is None:
        return 0, 0
    running, slots = found
    return running, live(connection, scope, slots, now) if with_slots else 0


def live(connection: sqlite3.Connection, scope: Scope, slots: int, now: Micros) -> int:
    """How many of a scope's slots are held still."""
    if not slots:
        return 0
    (past,) = connection.execute(sql.SLOTS_PAST, (scope.slots, now)).fetchone()
    return int(slots - past)


def rooms(transaction: Transaction, tenant: str, queue: str) -> list[Room]:
    """What the tenant and the queue of a line say."""
    rules, connection, now = transaction.rules, transaction.connection, transaction.now
    return [
        Room(connection, scope, rules.of(scope), now)
        for scope in (Scope(tenant), Scope(tenant, ScopeKind.QUEUE, queue))
    ]


def group_room(transaction: Transaction, tenant: str, group: str, queue: str) -> Room:
    gate = transaction.rules.group(tenant, group, queue)
    scope = Scope(tenant, ScopeKind.GROUP, group)
    return Room(transaction.connection, scope, gate, transaction.now)


# -- opening and closing ---------------------------------------------------------------------------


def open_up(transaction: Transaction) -> None:
    """Lets go on what has room now, and closes what has none: jobs of groups, then lines."""
    transaction.settle()
    while transaction.groups:
        grant(transaction, *transaction.groups.pop())
    transaction.settle()
    while transaction.tenants:
        refresh_tenant(transaction, transaction.tenants.pop())
    while transaction.visits:
        refresh_line(transaction, *transaction.visits.pop())


def refresh_tenant(transaction: Transaction, tenant: str) -> None:
    """Opens or closes a tenant: its lines stay as they are, however many it has."""
    if _refresh(transaction, Scope(tenant)):
        transaction.execute(turn_sql.RING_BACK, (tenant,))
        _ring(transaction, tenant, None)


def refresh_line(transaction: Transaction, tenant: str, queue: str) -> None:
    """Opens or closes a line, as its queue says."""
    if _refresh(transaction, Scope(tenant, ScopeKind.QUEUE, queue)):
        transaction.lines.add((tenant, queue))


def _refresh(transaction: Transaction, scope: Scope) -> bool:
    """Opens or closes a scope; True when it has just been opened."""
    rules = transaction.rules.of(scope)
    room = Room(transaction.connection, scope, rules, transaction.now)
    is_open = room.left() > 0
    if not is_open:
        reopen_later(transaction, room)
    key = key_of(scope)
    found = transaction.execute(sql.SCOPE_OPEN, key).fetchone()
    if found is None or found[0] == is_open:
        return False
    transaction.turn += 1
    transaction.execute(sql.SCOPE_SET, (int(is_open), transaction.turn, *key))
    return is_open


def reopen_later(transaction: Transaction, room: Room) -> None:
    """Remembers when time alone will make room, for claims and sleepers to look then."""
    at = room.opens_at()
    if at is None:
        return
    key = key_of(room.scope)
    found = transaction.execute(sql.REOPEN_AT, key).fetchone()
    if found is None or found[0] > at:
        transaction.execute(sql.REOPEN_PUT, (*key, at))
        part = room.scope.part if room.scope.kind is ScopeKind.QUEUE else None
        _ring(transaction, room.scope.tenant, part)


def _ring(transaction: Transaction, tenant: str, queue: str | None) -> None:
    """Wakes sleepers, for they may have to wake earlier than they think."""
    if queue is not None:
        transaction.lines.add((tenant, queue))
        return
    names = transaction.execute(turn_sql.LINES, (tenant, WAKES_MAX + 1)).fetchall()
    transaction.lines |= {(tenant, name) for (name,) in names}
    transaction.wakes_all |= len(names) > WAKES_MAX


def reopen(transaction: Transaction, limit: int) -> int:
    """Looks again at the scopes that time may have opened; returns how many."""
    past = transaction.execute(sql.REOPEN_PAST, (transaction.now, limit)).fetchall()
    for kind, tenant, part in past:
        transaction.execute(sql.REOPEN_DROP, (kind, tenant, part))
        changed(transaction, Scope(tenant, ScopeKind(kind), part))
    return len(past)


def changed(transaction: Transaction, scope: Scope) -> None:
    """The room of a scope may have changed by other things than jobs."""
    gone = transaction.execute(sql.SLOTS_DROP, (scope.slots, transaction.now)).rowcount
    if gone > 0:
        transaction.execute(sql.SLOT_ADD, (*key_of(scope), -gone))
    if scope.kind is ScopeKind.GROUP:
        transaction.groups.add((scope.tenant, scope.part))
    elif scope.kind is ScopeKind.QUEUE:
        transaction.visits.add((scope.tenant, scope.part))
    else:
        transaction.tenants.add(scope.tenant)


# -- groups ----------------------------------------------------------------------------------------


def grant(transaction: Transaction, tenant: str, group: str) -> None:
    """Lets as many of a group's jobs into their lines as it has room for, the first first."""
    queue = ""
    while (queue := _queue_after(transaction, sql.WAITING_QUEUE, tenant, group, queue)) != "":
        _grant_part(transaction, tenant, group, queue)


def _queue_after(
    transaction: Transaction, statement: str, tenant: str, group: str, queue: str
) -> str:
    found = transaction.execute(statement, (tenant, group, queue)).fetchone()
    return "" if found is None else found[0]


def _grant_part(transaction: Transaction, tenant: str, group: str, queue: str) -> None:
    gate = transaction.rules.group(tenant, group, queue)
    if gate.open:
        _set_part(transaction, tenant, group, queue, gate=0)
        return
    room = group_room(transaction, tenant, group, queue)
    left = room.left()
    if left == 0:
        reopen_later(transaction, room)
        return
    if gate.ordered:
        seqs = _head(transaction, tenant, group, queue)
    else:
        seqs = _first(transaction, (tenant, group, queue), left)
    if seqs:
        transaction.execute(sql.GRANT, (_encode(seqs).decode(),))
        transaction.move((tenant, queue, None), BLOCKED, "enqueued", len(seqs))
        transaction.lines.add((tenant, queue))


def _head(transaction: Transaction, tenant: str, group: str, queue: str) -> list[int]:
    """The first job of an ordered group, if it waits in this queue."""
    found = transaction.execute(sql.HEAD, (tenant, group)).fetchone()
    if found is None:
        return []
    seq, _, its_queue, state, gate, late = found
    waits = state == "enqueued" and gate == 1 and late == 0 and its_queue == queue
    return [seq] if waits else []


def _first(transaction: Transaction, part: tuple[str, str, str], left: int) -> list[int]:
    """The jobs of a part that fill its room, and those that come before one that stands in the line
    already: the claim will see that together they do not exceed it.
    """
    execute, most = transaction.execute, min(left, UNLIMITED - 1)
    waiting = execute(sql.GRANTABLE, (*part, most)).fetchall()
    (granted,) = execute(sql.GRANTED, (*part, most)).fetchone()
    if not granted:
        return [seq for _, seq in waiting]
    priority, last = execute(sql.GRANTED_LAST, part).fetchone()
    free = left - granted
    return [
        seq
        for index, (its_priority, seq) in enumerate(waiting)
        if index < free or (-its_priority, seq) < (-priority, last)
    ]


def _set_part(transaction: Transaction, tenant: str, group: str, queue: str, *, gate: int) -> None:
    """Puts all jobs of a part into their line, or out of it."""
    number = transaction.execute(sql.REGATE, (gate, tenant, group, queue)).rowcount
    before, after = ("enqueued", BLOCKED) if gate else (BLOCKED, "enqueued")
    transaction.move((tenant, queue, None), before, after, number)
    if not gate:
        transaction.lines.add((tenant, queue))


def regrant(transaction: Transaction, tenant: str, group: str) -> None:
    """Sorts a group anew after its rules have changed."""
    queue = ""
    while (queue := _queue_after(transaction, sql.GRANTED_QUEUE, tenant, group, queue)) != "":
        if transaction.rules.gated(tenant, group, queue):
            _set_part(transaction, tenant, group, queue, gate=1)
    transaction.groups.add((tenant, group))


def regrant_queue(transaction: Transaction, queue: Scope) -> None:
    """Sorts the groups of a tenant anew after the rules for groups of a queue have changed."""
    tenant, execute = queue.tenant, transaction.execute
    for (part,) in execute(sql.BUCKETS_OF, (tenant,)).fetchall():
        rate = transaction.rules.group(tenant, part, queue.part).rate
        bound(transaction, Scope(tenant, ScopeKind.GROUP, part), rate)
    found = execute(sql.GROUP_AFTER, (tenant, "")).fetchone()
    while found is not None:
        regrant(transaction, tenant, found[0])
        found = execute(sql.GROUP_AFTER, (tenant, found[0])).fetchone()


def bound(transaction: Transaction, scope: Scope, rate: Rate | None) -> None:
    """Lets a new rate count from now: a bucket is never emptier than empty."""
    if rate is not None:
        emptiest = Bucket(UNLIMITED).bounded(rate, transaction.now)
        transaction.execute(sql.BUCKET_BOUND, (*key_of(scope), emptiest.full_at))


def gate_again(transaction: Transaction, tenant: str, queue: str, seqs: list[int]) -> None:
    """Puts granted jobs back: their group has no place for them after all."""
    if seqs:
        transaction.execute(sql.GATE, (_encode(seqs).decode(),))
        transaction.move((tenant, queue, None), "enqueued", BLOCKED, len(seqs))
