"""What the FoundationDB store keeps as values: jobs with their index entries, settings, holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.core.clock import Micros
from holdfast.core.errors import HoldfastError
from holdfast.core.job import (
    TERMINAL,
    Envelope,
    JobRecord,
    NewJob,
    Reason,
    Rules,
    State,
    edge_bytes,
)
from holdfast.core.journal import awaits_of
from holdfast.core.lifecycle import due_state, seen
from holdfast.core.redact import Redacted
from holdfast.store import Hold
from holdfast.stores.foundationdb.clock import Instant
from holdfast.stores.foundationdb.layout import (
    INLINE_MAX,
    SEQ,
    Keys,
    Space,
    seq_bytes,
    text,
    texts,
    whole,
)
from holdfast.stores.sql_rows import rules_of, rules_text, size_of

BY_RANK = 1
BY_SEQ = 2
"""How jobs that wait for room in their group are sorted: by priority, or in an ordered one by
seq."""

AWAITING = frozenset({State.WAITING, State.SCHEDULED})
"""States in which a job may await something."""
WAITS = frozenset({State.ENQUEUED, State.SCHEDULED, State.RETRYING, State.WAITING})


def read_rules(text: str) -> tuple[Rules, str | None]:
    """The rules of a job, and why they could not be read; the usual ones then."""
    try:
        return rules_of(text), None
    except (msgspec.MsgspecError, HoldfastError, UnicodeError, ValueError, RecursionError) as error:
        return Rules(), f"its rules cannot be read: {error}"


class Row(Redacted, msgspec.Struct, array_like=True, gc=False):
    """One job, mutable, used only inside one step. Satisfies `lifecycle.Movable`.

    New fields come last: older rows do not have them.
    """

    tenant: str
    id: str
    queue: str
    type: str
    codec: str
    version: int
    body: bytes | None
    """None when it is stored in BODIES."""
    rules: str
    priority: int
    key: str | None
    group: str | None
    tags: tuple[str, ...]
    origin: str | None
    state: State
    run_at: Micros
    created_at: Micros
    updated_at: Micros
    expires_at: Micros | None
    size: int
    max_attempts: int
    attempt: int = 0
    fence: int = 0
    lapses: int = 0
    misses: int = 0
    token: str | None = None
    lease_until: Micros | None = None
    held_at: int = 0
    """Its deadline in the index of leases, by the clock that counts (`clock.py`)."""
    lease_us: Micros = 0
    worker: str | None = None
    finished_at: Micros | None = None
    reason: Reason | None = None
    error: str | None = None
    result: Any = None
    progress: str | None = None
    replayed_as: str | None = None
    gate: int = 0
    """Not 0 if it is enqueued, but its group has no room for it yet: BY_RANK or BY_SEQ."""
    granted: bool = False
    """Whether it is of a limited group and in the line."""
    late: bool = False
    """Whether it outlived its time to live while it waited: upkeep will fail it."""
    seq: int = 0
    places: tuple[int, ...] = ()
    """Of a held job: the part of its tenant's limit in which it has its place, then that of its
    queue's limit; -1 where the limit is not split."""
    aside: bool = False
    """Whether it is enqueued, but waits for room of its type over all tenants."""
    awaits: str | None = None
    journal: tuple[int, int, int, int] | None = None
    """How much its journal uses (`journal.Size`); None as long as it has none."""
    edges: int = 0
    """How many other jobs may await its end."""
    few: tuple[tuple[str, str, str], ...] = ()
    """Its edges if they are few and short; others are in EDGES."""
    edge_size: int = 0
    """Bytes of its edges, counted with the payload."""
    looked: int = 0
    """How many of its edges lead to jobs that have ended, as prune has found."""
    again: Micros = 0
    """When prune looks again whether a living job may want its result."""

    @property
    def weight(self) -> int:
        """The bytes that count while it lives."""
        return self.size + self.edge_size + (0 if self.journal is None else self.journal[2])

    @property
    def stamp(self) -> bytes:
        """Its sequence, as it is written in keys."""
        return seq_bytes(self.seq)

    @property
    def name(self) -> tuple[str, str]:
        return self.tenant, self.id

    @property
    def alive(self) -> bool:
        return self.state not in TERMINAL

    def keep_until(self) -> Micros:
        rules, _ = read_rules(self.rules)
        keep = rules.keep_failed_us if self.state is State.FAILED else rules.keep_us
        return max((self.finished_at or 0) + keep, self.again)

    @property
    def fault(self) -> str | None:
        """Why nobody can run it: the part of it that cannot be read."""
        return read_rules(self.rules)[1]

    def lapsed(self, at: Instant) -> bool:
        """Whether its lease is over."""
        assert self.lease_until is not None, "only held jobs have a lease"
        return at.lapsed(self.lease_until, self.held_at, self.lease_us)

    def judged(self, at: Instant) -> Micros:
        """The instant by which the rules judge it."""
        if self.state is not State.PROCESSING:
            return at.now
        return at.judged(self.lease_until, self.held_at, self.lease_us)

    def replay(self, id: str, now: Micros) -> Row:
        """A new job like this one, which has ended; without its key."""
        lives_us = None if self.expires_at is None else self.expires_at - self.created_at
        return Row(
            self.tenant,
            id,
            self.queue,
            self.type,
            self.codec,
            self.version,
            self.body,
            self.rules,
            self.priority,
            None,
            self.group,
            self.tags,
            self.id,
            State.ENQUEUED,
            now,
            now,
            now,
            None if lives_us is None else now + lives_us,
            self.size,
            self.max_attempts,
        )

    def record(self, now: Micros, body: bytes) -> JobRecord:
        held = self.state is State.PROCESSING
        state = seen(self.state, self.run_at, now)
        return JobRecord(
            self.tenant,
            self.id,
            self.queue,
            Envelope(self.type, self.codec, self.version, body),
            read_rules(self.rules)[0],
            self.priority,
            self.key,
            self.group,
            tuple(self.tags),
            self.origin,
            self.seq,
            state,
            self.attempt,
            self.fence,
            self.lapses,
            self.misses,
            self.created_at,
            self.updated_at,
            self.run_at,
            self.expires_at,
            self.lease_until if held else None,
            self.worker if held else None,
            self.finished_at,
            self.reason,
            self.error,
            self.result,
            self.progress,
            self.replayed_as,
            self.awaits if state in AWAITING else None,
        )


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Row)


def encode(row: Row) -> bytes:
    return _encoder.encode(row)


def decode(value: bytes) -> Row | None:
    """The row; None for a value that is no row, as if it were not there."""
    try:
        return _decoder.decode(value)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def new_row(job: NewJob, now: Micros) -> Row:
    """A job at its enqueue; the step sets its sequence."""
    envelope, rules = job.envelope, job.rules
    run_at = job.run_at if job.run_at is not None else now + job.delay_us
    size = size_of(envelope.body)
    row = Row(
        job.tenant,
        job.id,
        job.queue,
        envelope.type,
        envelope.codec,
        envelope.version,
        envelope.body if size <= INLINE_MAX else None,
        rules_text(rules),
        job.priority,
        job.key,
        job.group,
        job.tags,
        job.origin,
        State.WAITING if job.parents else due_state(run_at, now),
        run_at,
        now,
        now,
        None if job.ttl_us is None else now + job.ttl_us,
        size,
        rules.max_attempts,
    )
    row.awaits = awaits_of(job.parents, job.ends_with_parents)
    if job.edges:
        row.edges, row.edge_size = len(job.edges), edge_bytes(job)
        if row.edge_size <= INLINE_MAX:
            row.few = tuple((edge.target, edge.join, edge.on_failure.value) for edge in job.edges)
    return row


def entries(keys: Keys, row: Row) -> Iterator[tuple[bytes, bytes]]:
    """Every index entry of this job, as it is now."""
    tenant, id, state = row.tenant, row.id, row.state
    named = id.encode()
    yield keys.own(tenant, Space.JOBS, row.stamp), named
    yield keys.all(Space.ALL_JOBS, row.stamp), text(tenant) + text(id)
    if state is State.ENQUEUED:
        if not row.late:
            yield from _line_entries(keys, row)
        yield keys.own(tenant, Space.AGES, text(row.queue), whole(row.run_at), row.stamp), b""
    elif state in (State.SCHEDULED, State.RETRYING):
        yield keys.named(Space.DUE, row.run_at, tenant, id), b""
    elif state is State.PROCESSING:
        space = Space.SPENT if row.attempt >= row.max_attempts else Space.HELD
        value = _encoder.encode((row.lease_until, row.lease_us))
        yield keys.named(space, row.held_at, tenant, id), value
    elif state in TERMINAL:
        yield keys.named(Space.DONE, row.keep_until(), tenant, id), b""
        if state is State.FAILED:
            yield keys.own(tenant, Space.DEAD, row.stamp), named
    if row.expires_at is not None and state in WAITS:
        space = Space.LATE if row.late else Space.TTL
        yield keys.named(space, row.expires_at, tenant, id), b""
    if row.key is not None:
        yield keys.own(tenant, Space.KEY_JOBS, text(row.key), row.stamp), named
    if row.group is not None:
        yield keys.own(tenant, Space.GROUP_JOBS, text(row.group), row.stamp), named
        if row.alive:
            yield keys.own(tenant, Space.GROUP_ORDER, text(row.group), row.stamp), named


def _line_entries(keys: Keys, row: Row) -> Iterator[tuple[bytes, bytes]]:
    """The entries of an enqueued job: in its line, or before it."""
    tenant, rank = row.tenant, whole(-row.priority)
    if row.gate:
        assert row.group is not None, "only jobs of groups wait before their line"
        place = rank if row.gate == BY_RANK else whole(0)
        part = text(row.group) + text(row.queue)
        yield keys.own(tenant, Space.GROUP_WAITING, part, place, row.stamp), row.id.encode()
        return
    value = _encoder.encode((row.id, row.group, row.expires_at))
    if row.aside:
        yield keys.aside_jobs(tenant, row.queue, row.type) + rank + row.stamp, value
        return
    yield keys.ready(tenant, row.queue) + rank + row.stamp, value
    if row.granted and row.group is not None:
        part = text(row.group) + text(row.queue)
        yield keys.own(tenant, Space.GROUP_READY, part, rank, row.stamp), row.id.encode()


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """An entry of a line."""

    id: str
    group: str | None
    expires_at: Micros | None
    stamp: bytes


_ready = msgspec.msgpack.Decoder(tuple[str, str | None, int | None])
_held = msgspec.msgpack.Decoder(tuple[int, int])


def candidate(key: bytes, value: bytes) -> Candidate:
    return Candidate(*_ready.decode(value), key[-SEQ:])


def lease_of(value: bytes) -> tuple[Micros, Micros]:
    """The end and the length of a lease, from its entry."""
    return _held.decode(value)


# -- settings and holds ----------------------------------------------------------------------------


class StoredSetting(msgspec.Struct, frozen=True):
    """A setting as stored. A deleted one keeps its version, so that none is used twice."""

    name: str
    value: bytes | None
    version: int


_setting = msgspec.msgpack.Decoder(tuple[bytes | None, int])
_hold = msgspec.msgpack.Decoder(tuple[str, int, str])


def setting_key(keys: Keys, name: str) -> bytes:
    return keys.all(Space.SETTINGS, text(name))


def setting_of(keys: Keys, key: bytes, value: bytes) -> StoredSetting:
    [name] = texts(key[len(keys.all(Space.SETTINGS)) :], 1)
    return StoredSetting(name, *_setting.decode(value))


def hold_key(keys: Keys, name: str) -> bytes:
    return keys.all(Space.HOLDS, text(name))


def hold_of(keys: Keys, key: bytes, value: bytes) -> Hold:
    [name] = texts(key[len(keys.all(Space.HOLDS)) :], 1)
    return Hold(name, *_hold.decode(value))


# -- texts -----------------------------------------------------------------------------------------


def plain(text: str | None) -> str | None:
    """The text with lone surrogates escaped: error texts have them when they quote file names, and
    an error text must never fail an ack.
    """
    if text is None or text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()


def pack(value: Any) -> bytes:
    return _encoder.encode(value)
