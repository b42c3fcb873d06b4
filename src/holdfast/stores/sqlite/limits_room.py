"""How many jobs of a scope may start now, and when time alone makes room.

A scope may have a limit of running jobs, a rate (a token bucket, kept as one instant) and a pause;
slots that outsiders hold may count against the limit.
"""

from __future__ import annotations

import sqlite3

from holdfast.core.clock import Micros
from holdfast.core.rate import Bucket, Rate
from holdfast.core.scope import GroupSettings, Scope, ScopeKind, ScopeSettings
from holdfast.stores.sqlite import scope_statements as scope_sql
from holdfast.stores.sqlite.scope_cache import NEVER, RatesChange
from holdfast.stores.sqlite.transaction import Transaction

UNLIMITED = 1 << 60
WAKES_MAX = 64
"""Lines of a tenant whose sleepers are woken by name; with more lines, all sleepers are woken."""


class Room:
    """How many jobs of a scope may start, as far as the scope goes."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        scope: Scope,
        gate: ScopeSettings | GroupSettings,
        now: Micros,
        rates: RatesChange = NEVER,
    ) -> None:
        """`rates` is the last change of rates by a tier: `ScopeCache.rates_change`."""
        self.scope = scope
        self.gate = gate
        self.now = now
        self._key = key_of(scope)
        self._execute = connection.execute
        self.running = self.slots = 0
        self.bucket = Bucket()
        self._rated = rates[0]
        if gate.max_running is not None:
            self.running, self.slots = taken(connection, scope, gate.slots_count, now)
        if gate.rate is not None:
            found = self._execute(scope_sql.BUCKET, self._key).fetchone()
            if found is not None:
                self._read_bucket(gate.rate, rates, *found)

    def _read_bucket(self, rate: Rate, rates: RatesChange, full_at: Micros, rated: int) -> None:
        """A tier that has changed its rates did not write the buckets: that is done here."""
        self.bucket = Bucket(full_at)
        if rated < rates[0]:
            self.bucket = self.bucket.bounded(rate, rates[1])
        else:
            self._rated = rated

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
        """Counts jobs that start."""
        self.running += number
        if self.gate.rate is not None:
            for _ in range(number):
                self.bucket = self.bucket.take(self.gate.rate, 1, self.now)

    def save(self) -> None:
        if self.gate.rate is not None:
            self._execute(scope_sql.BUCKET_PUT, (*self._key, self.bucket.full_at, self._rated))

    def token_at(self) -> Micros | None:
        """When the bucket has its next token; None when it has one now, or there is no rate."""
        rate = self.gate.rate
        if rate is None or self.bucket.tokens(rate, self.now) > 0:
            return None
        return self.bucket.next_at(rate, self.now)

    def opens_at(self) -> Micros | None:
        """When time alone makes room; None when it does not."""
        instants = [self.token_at()]
        if self.slots:
            found = self._execute(scope_sql.SLOT_NEXT, (self.scope.slots, self.now)).fetchone()
            instants.append(found[0] if found is not None else None)
        return min((at for at in instants if at is not None), default=None)


def key_of(scope: Scope) -> tuple[str, str, str]:
    return scope.kind.value, scope.tenant, scope.part


def taken(
    connection: sqlite3.Connection, scope: Scope, with_slots: bool, now: Micros
) -> tuple[int, int]:
    """How many jobs of a scope run, and how many of its slots are held."""
    found = connection.execute(scope_sql.TAKEN, key_of(scope)).fetchone()
    if found is None:
        return 0, 0
    running, slots = found
    return running, live(connection, scope, slots, now) if with_slots else 0


def live(connection: sqlite3.Connection, scope: Scope, slots: int, now: Micros) -> int:
    """How many of a scope's slots have not expired."""
    if not slots:
        return 0
    (past,) = connection.execute(scope_sql.SLOTS_PAST, (scope.slots, now)).fetchone()
    return int(slots - past)


def line_rooms(transaction: Transaction, tenant: str, queue: str) -> list[Room]:
    """The room of the tenant and of the queue of a line."""
    cache, connection, now = transaction.scope_cache, transaction.connection, transaction.now
    rates = cache.rates_change(tenant)
    return [
        Room(connection, scope, cache.of(scope), now, rates)
        for scope in (Scope(tenant), Scope(tenant, ScopeKind.QUEUE, queue))
    ]


def group_room(transaction: Transaction, tenant: str, group: str, queue: str) -> Room:
    cache = transaction.scope_cache
    gate = cache.group(tenant, group, queue)
    scope = Scope(tenant, ScopeKind.GROUP, group)
    rates = cache.rates_change(tenant)
    return Room(transaction.connection, scope, gate, transaction.now, rates)


def bound_bucket(transaction: Transaction, scope: Scope, rate: Rate | None) -> None:
    """Applies a new rate from now on: no bucket may be emptier than empty."""
    if rate is not None:
        emptiest = Bucket(UNLIMITED).bounded(rate, transaction.now)
        values = (*key_of(scope), emptiest.full_at, transaction.scopes_version)
        transaction.execute(scope_sql.BUCKET_BOUND, values)


def reopen_later(transaction: Transaction, room: Room) -> None:
    """Stores when time alone makes room: claims and sleepers check the scope then."""
    at = room.opens_at()
    if at is None:
        return
    key = key_of(room.scope)
    found = transaction.execute(scope_sql.REOPEN_AT, key).fetchone()
    if found is None or found[0] > at:
        transaction.execute(scope_sql.REOPEN_PUT, (*key, at))
        if room.scope.of_platform:
            return  # Nobody who sleeps waits for it: it had room until now.
        part = room.scope.part if room.scope.kind is ScopeKind.QUEUE else None
        wake_lines(transaction, room.scope.tenant, part)


def wake_lines(transaction: Transaction, tenant: str, queue: str | None) -> None:
    """Wakes the sleepers of these lines: they may have to sleep less long."""
    if queue is not None:
        transaction.ready_lines.add((tenant, queue))
        return
    names = transaction.execute(scope_sql.OPEN_LINES, (tenant, WAKES_MAX + 1)).fetchall()
    transaction.ready_lines |= {(tenant, name) for (name,) in names}
    transaction.wake_all |= len(names) > WAKES_MAX
