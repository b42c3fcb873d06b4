"""One transaction of one verb: the jobs it has read, how it changes them, and its events."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.core.clock import Micros
from holdfast.core.job import EventKind, State
from holdfast.core.scope import Scope, ScopeKind
from holdfast.store import Ref
from holdfast.stores.foundationdb.clock import Instant
from holdfast.stores.foundationdb.layout import (
    EVENT_BYTES_MAX,
    INLINE_MAX,
    PART_MAX,
    PENDING,
    SEQS_PER_VERSION,
    Keys,
    Space,
    after,
    seq_bytes,
    seq_number,
    text,
    whole,
)
from holdfast.stores.foundationdb.overlay import Overlay, Pair
from holdfast.stores.foundationdb.rows import Row, decode, encode, entries, pack, plain
from holdfast.stores.foundationdb.rows_parent import Parent
from holdfast.stores.foundationdb.scope_cache import ScopeCache, StepSettings
from holdfast.stores.notifier import Line

STATES = {state: bytes([place]) for place, state in enumerate(State)}
STATE_OF = {place: state for state, place in STATES.items()}
BYTES = b"\x40"
"""Beside the states: of a tenant, the bytes of its live payloads."""
SHARDS_MAX = 16
SHARDS = [bytes([0x80 + shard]) for shard in range(SHARDS_MAX)]
"""Beside them: of a scope with a limit, the held jobs that have their places in each part of it."""
ENDS = frozenset({EventKind.COMPLETED, EventKind.FAILED, EventKind.CANCELED, EventKind.DELETED})
TOPIC_LINES = "lines"
TOPIC_ENDS = "ends"
TOPIC_NEWS = "news"
TOPIC_PLATFORM = "platform"
WITNESSES = 16
"""Jobs of a group that are read to see that it has not drained."""
SPREAD = 64
"""How many times as many sequences as are needed may be skipped at random."""

_chance = random.Random()


def topic_of(queue: str) -> str:
    return f"queue/{queue}"


class Step(Overlay):
    at: Instant
    now: Micros

    def __init__(self, transaction: Any, keys: Keys, first: int, cache: ScopeCache) -> None:
        super().__init__(transaction)
        self._first = first
        self.keys = keys
        self.settings = StepSettings(self, keys, cache)
        self.events = True
        self.tries = 0
        """How often its call was tried in vain before."""
        self.lines: set[Line] = set()
        """Where there may be work now: their sleepers are woken after the commit."""
        self.tenants: set[str] = set()
        """Those with settings that may have room again, for `limits_groups.reopen_freed`."""
        self.ended: list[Ref] = []
        self.parents: list[Parent] = []
        """Ended jobs whose edges are to be followed, for `joins.release`."""
        self.groups: set[tuple[str, str]] = set()
        """(tenant, group) of limited groups whose room may have changed."""
        self.format: bytes | None = None
        """The key of the format, which must not change before the commit."""
        self.named: set[Scope] = set()
        """Queues and groups that have counters, or will have them."""
        self.by: str | None = None
        """Who wanted this step: its events say so."""
        self.born: set[tuple[str, str]] = set()
        """The jobs that this step has made."""
        self.committed: int | None = None
        """The version of its commit, once that is known."""
        self._rows: dict[tuple[str, str], Row | None] = {}
        self._before: dict[tuple[str, str], tuple[dict[bytes, bytes], State | None, int]] = {}
        self._events: list[tuple[str, tuple[Any, ...]]] = []
        self.batches = 0
        """Batches of events that it has written."""
        self._lasts: dict[tuple[str, str], tuple[int, tuple[Any, ...]]] = {}
        """Of groups in which a job ended: the place after its event, and the event of draining."""
        self.pointed: set[Line] = set()
        """Lines whose pointers this step will set."""
        self.least: dict[bytes, bytes] = {}
        """Keys of which the least value stays."""
        self.freed: Counter[Scope] = Counter()
        """Scopes of the platform, and how many places came free in each."""
        self.wakes_all = False
        """Whether there may be work for any sleeper."""
        self._seq = self._seq_end = 0

    def begin(self, at: Instant) -> None:
        """Sets the instant, once the version is known. Until then the step can only request."""
        self.at = at
        self.now = at.now

    # -- jobs ------------------------------------------------------------------------------------

    async def row(self, tenant: str, id: str) -> Row | None:
        return (await self.rows([(tenant, id)]))[0]

    def ask_rows(self, names: Iterable[tuple[str, str]]) -> None:
        """Requests jobs that will be read."""
        self.ask(self.keys.row(*name) for name in names)

    async def rows(self, names: Sequence[tuple[str, str]]) -> list[Row | None]:
        """The jobs of these names, read with conflict ranges: two changes of one job conflict."""
        asked = [name for name in dict.fromkeys(names) if name not in self._rows]
        keys = [self.keys.row(*name) for name in asked]
        for name, value in zip(asked, await self.get_many(keys), strict=True):
            self._add_row(name, None if value is None else decode(value))
        return [self._rows[name] for name in names]

    async def peek(self, names: Sequence[tuple[str, str]]) -> list[Row | None]:
        """Copies of the jobs of these names, by snapshot: to read, not to change."""
        found = await self.get_many([self.keys.row(*name) for name in names], snapshot=True)
        return [None if value is None else decode(value) for value in found]

    def _add_row(self, name: tuple[str, str], row: Row | None) -> None:
        self._rows[name] = row
        if row is not None:
            size = row.weight if row.alive else 0
            self._before[name] = dict(entries(self.keys, row)), row.state, size

    def ask_last_seq(self) -> None:
        """Requests the highest sequence there is."""
        self.ask_range(*self._pages(), 1, reverse=True)

    async def find_seqs(self, count: int) -> None:
        """Finds so many sequences for new jobs: higher than all that were there at this version.

        They begin at a random place, so that steps at the same version find different ones. Of two
        that found the same, one fails.
        """
        prefix, end = self._pages()
        found = await self.range(prefix, end, 1, reverse=True, snapshot=True)
        last = seq_number(found[0][0][len(prefix) :]) if found else 0
        low = max((self.at.version - self._first) * SEQS_PER_VERSION, last, self._seq_end) + 1
        start = low + _chance.randrange(SPREAD * count)
        taken = prefix + seq_bytes(start), prefix + seq_bytes(start + count)
        self.tr.add_read_conflict_range(*taken)
        self._seq, self._seq_end = start, start + count

    def _pages(self) -> tuple[bytes, bytes]:
        prefix = self.keys.all(Space.ALL_JOBS)
        return prefix, after(prefix)

    def insert(self, row: Row, body: bytes) -> None:
        """A new job, with the next of the sequences that were found."""
        assert self._seq < self._seq_end, "a sequence is found before it is needed"
        row.seq = self._seq
        self._seq += 1
        self.born.add(row.name)
        self._rows[row.name] = row
        if row.size > INLINE_MAX:
            prefix = self.keys.body(row.tenant, row.id)
            for place, start in enumerate(range(0, len(body), PART_MAX)):
                self.put(prefix + place.to_bytes(2, "big"), body[start : start + PART_MAX])
        self.save(row)

    def save(self, row: Row) -> None:
        """Writes a job, and its entries where they have changed."""
        if row.state is not State.PROCESSING:
            self._free(row)
        self.put(self.keys.row(row.tenant, row.id), encode(row))
        self._rows[row.name] = row
        self._reflect(row, dict(entries(self.keys, row)), row.state)

    def _free(self, row: Row) -> None:
        """Gives back the places under limits that a held job had."""
        for scope, shard in zip(self.scopes_of(row), row.places, strict=False):
            if shard >= 0:
                self.add(self.shard_key(scope, shard), -1)
        row.places = ()

    def shard_key(self, scope: Scope, shard: int) -> bytes:
        return self.keys.scope(Space.COUNTS, scope) + SHARDS[shard]

    def remove(self, row: Row) -> None:
        self._free(row)
        self.drop(self.keys.row(row.tenant, row.id))
        if row.size > INLINE_MAX:
            self.clear_under(self.keys.body(row.tenant, row.id))
        if row.journal is not None:
            self.clear_under(self.keys.journal(row.tenant, row.id))
        self._rows[row.name] = None
        self._reflect(row, {}, None)

    def _reflect(self, row: Row, now: dict[bytes, bytes], state: State | None) -> None:
        """Updates the indexes and the counters to the row."""
        was, counted, size = self._before.pop(row.name, ({}, None, 0))
        for key in was.keys() - now.keys():
            self.drop(key)
        for key, value in now.items():
            if was.get(key) != value:
                self.put(key, value)
        lives = row.weight if state is not None and row.alive else 0
        if state is not None:
            self._before[row.name] = now, state, lives
        if lives != size:
            scope = Scope(row.tenant)
            self.add(self.keys.scope(Space.COUNTS, scope) + BYTES, lives - size)
        if counted is State.PROCESSING is not state and self.settings.has_any(row.tenant):
            self.tenants.add(row.tenant)
        if counted is not state:
            for scope in self.scopes_of(row):
                self.move(scope, counted, state)
            self._count_over_all(row, (state is State.PROCESSING) - (counted is State.PROCESSING))
        if state is State.ENQUEUED and not (row.gate or row.late or row.aside):
            self.point(row.tenant, row.queue)
        elif state in (State.SCHEDULED, State.RETRYING):
            # It may be due before what a sleeper waits for.
            self.lines.add((row.tenant, row.queue))
        if row.group is not None and self.settings.limits_group(row.tenant, row.group, row.queue):
            self.groups.add((row.tenant, row.group))

    def _count_over_all(self, row: Row, number: int) -> None:
        """Counts a job that starts or ends in the scopes of the platform."""
        for scope in self.settings.counting(row.queue, row.type) if number else ():
            self.add(self.keys.scope(Space.COUNTS, scope) + STATES[State.PROCESSING], number)
            if number < 0:
                self.freed[scope] += 1

    def scopes_of(self, row: Row) -> list[Scope]:
        return self.scopes(row.tenant, row.queue, row.group)

    def scopes(self, tenant: str, queue: str, group: str | None) -> list[Scope]:
        """The scopes of a job: its tenant, its queue, its group."""
        found = [Scope(tenant), Scope(tenant, ScopeKind.QUEUE, queue)]
        if group is not None:
            found.append(Scope(tenant, ScopeKind.GROUP, group))
        return found

    def move(self, scope: Scope, before: State | None, now: State | None) -> None:
        prefix = self.keys.scope(Space.COUNTS, scope)
        if before is not None:
            self.add(prefix + STATES[before], -1)
        if now is not None:
            self.add(prefix + STATES[now], 1)

    def point(self, tenant: str, queue: str) -> None:
        """Records that the line has ready jobs, in its pointers."""
        self.pointed.add((tenant, queue))
        self.lines.add((tenant, queue))

    async def names(self, space: Space, under: str, after_: str, limit: int) -> list[Pair]:
        """Entries of SETTINGS or HOLDS under a prefix and after a name. By snapshot: a process
        that renews its own name must not fail because others renew theirs.
        """
        prefix = self.keys.all(space, text(under)[:-1])
        behind = self.keys.all(space, text(after_)) + b"\0" if after_ else b""
        begin, end = max(prefix, behind), after(prefix)
        return await self.range(begin, end, limit, snapshot=True) if begin < end else []

    async def body(self, row: Row) -> bytes:
        """The payload of a job."""
        if row.body is not None or row.size <= INLINE_MAX:
            return row.body or b""
        parts = await self.under(self.keys.body(row.tenant, row.id), snapshot=True)
        return b"".join(value for _, value in parts)

    # -- events ----------------------------------------------------------------------------------

    def note(
        self, kind: EventKind, row: Row, until: Micros | None = None, note: str | None = None
    ) -> None:
        """Records an event of a job. Whether its group has drained with it is known at the end."""
        name = (row.id, row.queue, row.type)
        self.record(kind, row.tenant, name, row=row, until=until, note=note)
        ended = kind in ENDS and (kind is not EventKind.DELETED or row.alive)
        if ended and row.group is not None and self.events:
            drained = self._event(EventKind.DRAINED, name, row=row, note=row.group)
            self._lasts[row.tenant, row.group] = len(self._events), drained

    async def conclude(self) -> None:
        """Ends the work: records which groups have drained, after the last job of each."""
        order = {
            name: self.keys.own(name[0], Space.GROUP_ORDER, text(name[1])) for name in self._lasts
        }
        for prefix in order.values():
            self.ask_under(prefix, WITNESSES)
        drained = [name for name, prefix in order.items() if await self._is_empty(prefix)]
        for name in sorted(drained, key=lambda name: -self._lasts[name][0]):
            place, event = self._lasts[name]
            self._events.insert(place, (name[0], event))

    async def _is_empty(self, prefix: bytes) -> bool:
        """Whether a group has no job left that has not ended.

        If there are some, the step conflicts with a change of one of them only, chosen at random:
        steps that end jobs of one group at once rarely conflict.
        """
        left = await self.under(prefix, WITNESSES, snapshot=True)
        if left:
            self.tr.add_read_conflict_key(_chance.choice(left)[0])
        else:
            self.tr.add_read_conflict_range(prefix, after(prefix))
        return not left

    def record(
        self,
        kind: EventKind,
        tenant: str,
        name: tuple[str, str, str],
        *,
        row: Row | None = None,
        until: Micros | None = None,
        note: str | None = None,
    ) -> None:
        if self.events:
            self._events.append((tenant, self._event(kind, name, row=row, until=until, note=note)))

    def _event(
        self,
        kind: EventKind,
        name: tuple[str, str, str],
        *,
        row: Row | None,
        until: Micros | None = None,
        note: str | None = None,
    ) -> tuple[Any, ...]:
        counts = (0, 0) if row is None else (row.attempt, row.fence)
        signed = () if self.by is None else (self.by,)
        return (self.now, kind.value, *name, *counts, until, plain(note), *signed)

    # -- handing over ----------------------------------------------------------------------------

    @property
    def wrote(self) -> bool:
        return not self.void and (bool(self._events) or self.changed)

    def flush(self) -> None:
        """Hands all writes over to the transaction."""
        self._write_events()
        self._notify()
        self.hand_over()
        since = whole(self.at.version)
        for line in self.pointed:
            for key in self.keys.pointers(*line):
                # The earliest version stays: no two steps conflict, and none is lost.
                self.tr.byte_min(key, since)
        for key, value in self.least.items():
            self.tr.byte_min(key, value)

    def _write_events(self) -> None:
        """Writes the events in batches of one tenant, each under the place of its last event."""
        batch: list[tuple[Any, ...]] = []
        size, last = 0, len(self._events) - 1
        for place, (tenant, event) in enumerate(self._events):
            batch.append(event)
            size += 64 + len(event[2]) + len(event[8] or "") + len(self.by or "")
            ends = place == last or self._events[place + 1][0] != tenant
            if ends or size > EVENT_BYTES_MAX:
                stamp = PENDING + place.to_bytes(2, "big")
                self.put(self.keys.all(Space.INBOX, stamp), pack((tenant, batch)))
                self.batches += 1
                batch, size = [], 0

    def _notify(self) -> None:
        """Adds to the counters that other processes watch for their sleepers."""
        names = {topic_of(queue) for _, queue in self.lines}
        if names:
            names.add(TOPIC_LINES)
        if self.wakes_all:
            names.add(TOPIC_PLATFORM)
        if self.ended:
            names.add(TOPIC_ENDS)
        if self._events:
            names.add(TOPIC_NEWS)
        for name in names:
            self.add(self.keys.all(Space.WAKEUPS, text(name)), 1)

    def mark(self, mark: bytes, tried: bytes) -> None:
        """Marks the call as done, so that it is done once, however often it is tried."""
        self.tr.add_read_conflict_key(mark)
        self.tr.set(mark, tried)

    def forget(self, marks: Iterable[bytes]) -> None:
        for mark in marks:
            self.tr.clear(mark)


def mark_key(keys: Keys, version: int, nonce: bytes) -> bytes:
    return keys.all(Space.MARKS, whole(version), nonce)
