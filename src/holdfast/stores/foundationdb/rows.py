"""One job as the FoundationDB store keeps it, and every index entry that follows from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.clock import Micros
from holdfast.errors import HoldfastError
from holdfast.job import TERMINAL, Envelope, JobRecord, NewJob, Reason, Rules, State
from holdfast.lifecycle import seen
from holdfast.redact import Redacted
from holdfast.stores.foundationdb.clock import Instant
from holdfast.stores.foundationdb.layout import (
    INLINE_MAX,
    SEQ,
    Keys,
    Space,
    seq_bytes,
    text,
    whole,
)
from holdfast.stores.sql_rows import rules_of, rules_text, size_of

BY_RANK = 1
BY_SEQ = 2
"""How a gated job stands among those of its group: by priority, or in an ordered one by seq."""

WAITS = frozenset({State.ENQUEUED, State.SCHEDULED, State.RETRYING, State.WAITING})


def read_rules(text: str) -> tuple[Rules, str | None]:
    """The rules of a job; those of a record that cannot be read are the usual ones, and why."""
    try:
        return rules_of(text), None
    except (msgspec.MsgspecError, HoldfastError, UnicodeError, ValueError, RecursionError) as error:
        return Rules(), f"its rules cannot be read: {error}"


class Row(Redacted, msgspec.Struct, array_like=True, gc=False):
    """One job, mutable, seen only inside one step. Satisfies `lifecycle.Movable`.

    New fields come last: older rows do not have them.
    """

    tenant: str
    id: str
    queue: str
    type: str
    codec: str
    version: int
    body: bytes | None
    """None when it is in parts of its own."""
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
    """Its place in the index of leases, by the clock that counts."""
    lease_us: Micros = 0
    worker: str | None = None
    finished_at: Micros | None = None
    reason: Reason | None = None
    error: str | None = None
    result: Any = None
    progress: str | None = None
    replayed_as: str | None = None
    gate: int = 0
    """Enqueued, but its group has no place for it yet: BY_RANK or BY_SEQ."""
    granted: bool = False
    """Of a limited group, in the line."""
    late: bool = False
    """Outlived its time to live while waiting: upkeep's to fail."""
    seq: int = 0
    places: tuple[int, ...] = ()
    """Of a held job: in which part of its tenant's limit it has its place, and of its queue's; -1
    where the limit is not in parts."""

    @property
    def stamp(self) -> bytes:
        """Its sequence, as it stands in keys."""
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
        return (self.finished_at or 0) + keep

    @property
    def fault(self) -> str | None:
        """Why nobody can run it: what of it cannot be read."""
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

    def record(self, now: Micros, body: bytes) -> JobRecord:
        held = self.state is State.PROCESSING
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
            seen(self.state, self.run_at, now),
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
        )


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Row)


def encode(row: Row) -> bytes:
    return _encoder.encode(row)


def decode(value: bytes) -> Row | None:
    """None for what is no record at all: as if it were not there."""
    try:
        return _decoder.decode(value)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def new_row(job: NewJob, now: Micros) -> Row:
    """A job at its enqueue; its sequence is the step's to give."""
    envelope, rules = job.envelope, job.rules
    run_at = job.run_at if job.run_at is not None else now + job.delay_us
    size = size_of(envelope.body)
    return Row(
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
        State.SCHEDULED if run_at > now else State.ENQUEUED,
        run_at,
        now,
        now,
        None if job.ttl_us is None else now + job.ttl_us,
        size,
        rules.max_attempts,
    )


def entries(keys: Keys, row: Row) -> Iterator[tuple[bytes, bytes]]:
    """Every entry of an index that leads to this job, as it is now."""
    tenant, id, state = row.tenant, row.id, row.state
    named = id.encode()
    yield keys.own(tenant, Space.OF, row.stamp), named
    yield keys.all(Space.PAGES, row.stamp), text(tenant) + text(id)
    if state is State.ENQUEUED:
        if not row.late:
            yield from _standing(keys, row)
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
        yield keys.own(tenant, Space.KEYED, text(row.key), row.stamp), named
    if row.group is not None:
        yield keys.own(tenant, Space.GROUPED, text(row.group), row.stamp), named
        if row.alive:
            yield keys.own(tenant, Space.ORDER, text(row.group), row.stamp), named


def _standing(keys: Keys, row: Row) -> Iterator[tuple[bytes, bytes]]:
    """Where an enqueued job stands: in its line, or before it."""
    tenant, rank = row.tenant, whole(-row.priority)
    if row.gate:
        assert row.group is not None, "only groups gate jobs"
        place = rank if row.gate == BY_RANK else whole(0)
        part = text(row.group) + text(row.queue)
        yield keys.own(tenant, Space.GATED, part, place, row.stamp), row.id.encode()
        return
    value = _encoder.encode((row.id, row.group, row.expires_at))
    yield keys.ready(tenant, row.queue) + rank + row.stamp, value
    if row.granted and row.group is not None:
        part = text(row.group) + text(row.queue)
        yield keys.own(tenant, Space.GRANTED, part, rank, row.stamp), row.id.encode()


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


def plain(text: str | None) -> str | None:
    """The text with lone surrogates spelled out: error texts have them when they quote file names,
    and an error text must never fail an ack.
    """
    if text is None or text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()


def pack(value: Any) -> bytes:
    return _encoder.encode(value)
