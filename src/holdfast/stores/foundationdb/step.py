"""One transaction of one verb: the jobs it has read, what becomes of them, and the facts of it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.clock import Micros
from holdfast.job import EventKind, State
from holdfast.scope import Scope, ScopeKind
from holdfast.store import Ref
from holdfast.stores.bell import Line
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
from holdfast.stores.foundationdb.overlay import Overlay
from holdfast.stores.foundationdb.rows import Row, decode, encode, entries, pack, plain
from holdfast.stores.foundationdb.rules import Rules

STATES = {state: bytes([place]) for place, state in enumerate(State)}
STATE_OF = {place: state for state, place in STATES.items()}
BYTES = b"\x40"
"""Beside the states: of a tenant, the bytes of its live payloads."""
SHARDS_MAX = 16
SHARDS = [bytes([0x80 + shard]) for shard in range(SHARDS_MAX)]
"""Beside them: of a scope with a large limit, the held jobs that have their places in each part."""
ENDS = frozenset({EventKind.COMPLETED, EventKind.FAILED, EventKind.CANCELED, EventKind.DELETED})
BELL_LINES = "lines"
BELL_ENDS = "ends"
BELL_NEWS = "news"
WITNESSES = 16
"""Jobs of a group that are looked at to see that it has not drained."""
SPREAD = 64
"""How many times as many sequences as are needed chance may skip."""

_chance = random.Random()


def bell_of(queue: str) -> str:
    return f"queue/{queue}"


class Step(Overlay):
    at: Instant
    now: Micros

    def __init__(self, transaction: Any, keys: Keys, first: int) -> None:
        super().__init__(transaction)
        self._first = first
        self.keys = keys
        self.rules = Rules()
        self.events = True
        self.lines: set[Line] = set()
        """Where work may have come up: sleepers are told after the commit."""
        self.tenants: set[str] = set()
        """Those with settings that may have room again."""
        self.ended: list[Ref] = []
        self.groups: set[tuple[str, str]] = set()
        """(tenant, group): of limited ones whose room may have changed."""
        self.format: bytes | None = None
        """The key of the format that it has to find as it was."""
        self.named: set[Scope] = set()
        """Queues and groups that are known to have counters, or will have them."""
        self.by: str | None = None
        """Who wanted this step: its facts say so."""
        self.born: set[tuple[str, str]] = set()
        """The jobs that this step has made."""
        self.committed: int | None = None
        """The version of its commit, once it is done and heard of."""
        self._rows: dict[tuple[str, str], Row | None] = {}
        self._before: dict[tuple[str, str], tuple[dict[bytes, bytes], State | None, int]] = {}
        self._facts: list[tuple[str, tuple[Any, ...]]] = []
        self._lasts: dict[tuple[str, str], tuple[int, tuple[Any, ...]]] = {}
        """Of groups that have lost a job: the place after its fact, and that of its draining."""
        self.pointed: set[Line] = set()
        """Lines whose pointers this step will set."""
        self._seq = self._seq_end = 0

    def begin(self, at: Instant) -> None:
        """The version is known, and with it the instant. Until then it can only be asked for."""
        self.at = at
        self.now = at.now

    # -- jobs ------------------------------------------------------------------------------------

    async def row(self, tenant: str, id: str) -> Row | None:
        return (await self.rows([(tenant, id)]))[0]

    def ask_rows(self, names: Iterable[tuple[str, str]]) -> None:
        """Asks for jobs that will be read."""
        self.ask(self.keys.row(*name) for name in names)

    async def rows(self, names: Sequence[tuple[str, str]]) -> list[Row | None]:
        """The jobs of these names, read in earnest: an act on one conflicts with every other."""
        asked = [name for name in dict.fromkeys(names) if name not in self._rows]
        keys = [self.keys.row(*name) for name in asked]
        for name, value in zip(asked, await self.get_many(keys), strict=True):
            self._meet(name, None if value is None else decode(value))
        return [self._rows[name] for name in names]

    async def peek(self, names: Sequence[tuple[str, str]]) -> list[Row | None]:
        """The jobs of these names by snapshot: to look at, not to change."""
        found = await self.get_many([self.keys.row(*name) for name in names], snapshot=True)
        return [None if value is None else decode(value) for value in found]

    def _meet(self, name: tuple[str, str], row: Row | None) -> None:
        self._rows[name] = row
        if row is not None:
            size = row.size if row.alive else 0
            self._before[name] = dict(entries(self.keys, row)), row.state, size

    def ask_last(self) -> None:
        """Asks for the highest sequence there is."""
        self.ask_range(*self._pages(), 1, reverse=True)

    async def number(self, count: int) -> None:
        """Finds so many sequences for new jobs: higher than all that were there at this version.

        They begin at some chance, so that others who look at the same version find others; of two
        who found the same one fails.
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
        prefix = self.keys.all(Space.PAGES)
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
        """Gives back the places that a held job had."""
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
            prefix = self.keys.body(row.tenant, row.id)
            self.clear_range(prefix, after(prefix))
        self._rows[row.name] = None
        self._reflect(row, {}, None)

    def _reflect(self, row: Row, now: dict[bytes, bytes], state: State | None) -> None:
        """Brings the indexes and the counts up to the row."""
        was, counted, size = self._before.pop(row.name, ({}, None, 0))
        for key in was.keys() - now.keys():
            self.drop(key)
        for key, value in now.items():
            if was.get(key) != value:
                self.put(key, value)
        lives = row.size if state is not None and row.alive else 0
        if state is not None:
            self._before[row.name] = now, state, lives
        if lives != size:
            scope = Scope(row.tenant)
            self.add(self.keys.scope(Space.COUNTS, scope) + BYTES, lives - size)
        if counted is State.PROCESSING is not state and self.rules.ruled(row.tenant):
            self.tenants.add(row.tenant)
        if counted is not state:
            for scope in self.scopes_of(row):
                self.move(scope, counted, state)
        if state is State.ENQUEUED and not row.gate and not row.late:
            self.point(row.tenant, row.queue)
        elif state in (State.SCHEDULED, State.RETRYING):
            # It may be due before what a sleeper waits for.
            self.lines.add((row.tenant, row.queue))
        if row.group is not None and self.rules.gated(row.tenant, row.group, row.queue):
            self.groups.add((row.tenant, row.group))

    def scopes_of(self, row: Row) -> list[Scope]:
        return self.scopes(row.tenant, row.queue, row.group)

    def scopes(self, tenant: str, queue: str, group: str | None) -> list[Scope]:
        """Those that a job is of: its tenant, its queue, its group."""
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
        """The line has ready jobs: both pointers say so."""
        self.pointed.add((tenant, queue))
        self.lines.add((tenant, queue))

    async def body(self, row: Row) -> bytes:
        """The payload of a job."""
        if row.body is not None or row.size <= INLINE_MAX:
            return row.body or b""
        parts = await self.under(self.keys.body(row.tenant, row.id), snapshot=True)
        return b"".join(value for _, value in parts)

    # -- facts -----------------------------------------------------------------------------------

    def note(
        self, kind: EventKind, row: Row, until: Micros | None = None, note: str | None = None
    ) -> None:
        """Records a fact of a job. That its group has drained with it is known at the end."""
        name = (row.id, row.queue, row.type)
        self.record(kind, row.tenant, name, row=row, until=until, note=note)
        ended = kind in ENDS and (kind is not EventKind.DELETED or row.alive)
        if ended and row.group is not None and self.events:
            drained = self._fact(EventKind.DRAINED, name, row=row, note=row.group)
            self._lasts[row.tenant, row.group] = len(self._facts), drained

    async def conclude(self) -> None:
        """The work is done: records which groups have drained, after the last job of each."""
        order = {name: self.keys.own(name[0], Space.ORDER, text(name[1])) for name in self._lasts}
        for prefix in order.values():
            self.ask_under(prefix, WITNESSES)
        drained = [name for name, prefix in order.items() if await self._is_empty(prefix)]
        for name in sorted(drained, key=lambda name: -self._lasts[name][0]):
            place, fact = self._lasts[name]
            self._facts.insert(place, (name[0], fact))

    async def _is_empty(self, prefix: bytes) -> bool:
        """Whether a group has no job left that has not ended.

        One that has not is witness enough: of those who end jobs of one group at once, only the
        one that ends another's witness, or the last job, is in its way.
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
            self._facts.append((tenant, self._fact(kind, name, row=row, until=until, note=note)))

    def _fact(
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
        return bool(self._facts) or self.changed

    def flush(self) -> None:
        """Hands all writes over to the transaction."""
        self._write_facts()
        self._ring()
        self.hand_over()
        since = whole(self.at.version)
        for line in self.pointed:
            for key in self.keys.pointers(*line):
                self.tr.byte_min(
                    key, since
                )  # The earliest stays: no two conflict, and none is lost.

    def _write_facts(self) -> None:
        """Writes the facts in runs, each under the place of its last one; numbered later."""
        run: list[tuple[Any, ...]] = []
        size, last = 0, len(self._facts) - 1
        for place, (tenant, fact) in enumerate(self._facts):
            run.append(fact)
            size += 64 + len(fact[2]) + len(fact[8] or "") + len(self.by or "")
            ends = place == last or self._facts[place + 1][0] != tenant
            if ends or size > EVENT_BYTES_MAX:
                stamp = PENDING + place.to_bytes(2, "big")
                self.put(self.keys.all(Space.INBOX, stamp), pack((tenant, run)))
                run, size = [], 0

    def _ring(self) -> None:
        """Rings the bells that sleepers of other processes watch."""
        names = {bell_of(queue) for _, queue in self.lines}
        if names:
            names.add(BELL_LINES)
        if self.ended:
            names.add(BELL_ENDS)
        if self._facts:
            names.add(BELL_NEWS)
        for name in names:
            self.add(self.keys.all(Space.BELLS, text(name)), 1)

    def mark(self, mark: bytes, tried: bytes) -> None:
        """Makes this step one that is done once, however often it is tried."""
        self.tr.add_read_conflict_key(mark)
        self.tr.set(mark, tried)

    def forget(self, marks: Iterable[bytes]) -> None:
        for mark in marks:
            self.tr.clear(mark)


def mark_key(keys: Keys, version: int, nonce: bytes) -> bytes:
    return keys.all(Space.MARKS, whole(version), nonce)


class Entry(msgspec.Struct, array_like=True):
    """A run of facts, as stored."""

    tenant: str
    facts: list[Any]
