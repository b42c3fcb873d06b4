"""Rows as the scripts keep and tell them, as the values of the contract, and back."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence, Set
from functools import lru_cache
from typing import Any

import msgspec

from holdfast.core.clock import Micros
from holdfast.core.errors import HoldfastError, InvalidInput
from holdfast.core.job import (
    By,
    Envelope,
    Event,
    EventKind,
    JobRecord,
    Lease,
    NewJob,
    Reason,
    Rules,
    State,
    edge_bytes,
)
from holdfast.core.journal import Entry, Join, awaits_of, join_entry
from holdfast.core.lifecycle import Transition, seen
from holdfast.stores.redis.journal import Stored, edge_texts, remembered
from holdfast.stores.redis.rows_text import LENGTH, TEXT_CACHE_MAX, sized, text_at

STATES = (
    State.WAITING,
    State.SCHEDULED,
    State.ENQUEUED,
    State.PROCESSING,
    State.RETRYING,
    State.COMPLETED,
    State.FAILED,
    State.CANCELED,
)
"""The code of a state is its position here, from 1; `scripts.py` gives the codes to the scripts."""
STATE_CODES = {state: code for code, state in enumerate(STATES, 1)}
REASONS = (
    Reason.MAX_ATTEMPTS,
    Reason.LEASE_EXPIRED,
    Reason.PERMANENT,
    Reason.TIMEOUT,
    Reason.DECODE,
    Reason.UNKNOWN_TYPE,
    Reason.EXPIRED,
    Reason.PARENT_FAILED,
)
REASON_CODES = {reason: code for code, reason in enumerate(REASONS, 1)}
FLAGS = {
    name: 1 << bit
    for bit, name in enumerate(
        (
            *("WAITS", "GRANTED", "LATE", "AGED", "ERROR", "RESULT", "PROGRESS", "REPLAYED"),
            *("AWAITS", "JOURNAL", "NOTES", "PARENTS", "EDGES", "FOLLOWING", "ENDS_WITH_PARENTS"),
            *("ROW_EDGES", "ROW_JOIN", "ROW_JOIN_DONE", "ROW_JOIN_FAILED"),
        )
    )
}
"""The flags of a row, in two parts: which index entries an enqueued job has and which optional
values; then what it has of a journal and of edges, whether it ends with its parents, whether its
edges are in the row, and the join of one parent: whether it has one, it is complete, it failed.
"""
KINDS = {kind.value: kind for kind in EventKind}

EVENT_SIZE = 10
"""Values of an event in the log; all events of an entry are one flat list."""

EXACT_MAX = 2**53
"""Numbers of the scripts are doubles: whole ones are exact up to here."""

RULES_CACHE_MAX = 1024
"""Most jobs of a type share their rules; few types are alive at a time."""

_HEAD = struct.Struct(">BBBIIIHH7dH")
_FIXED = struct.Struct(">I4d")
LENGTH_SIZE = LENGTH.size
FIXED_SIZE = _FIXED.size + 6 * LENGTH_SIZE
"""Bytes of the fixed part of a row without its texts."""
HEAD_SIZE = _HEAD.size - LENGTH_SIZE
"""Bytes of a row before its nonce and worker."""

pack = msgspec.msgpack.Encoder().encode
unpack = msgspec.msgpack.Decoder().decode
rules_text = lru_cache(RULES_CACHE_MAX)(msgspec.json.Encoder().encode)


@lru_cache(RULES_CACHE_MAX)
def rules_of(text: bytes) -> Rules:
    return msgspec.json.decode(text, type=Rules)


def new_row(job: NewJob, single: Set[str]) -> tuple[str, bytes, bytes, Any]:
    """A job as enqueue.lua takes it: its name, the fixed part of its row, its body, its options.

    `single` are ids of jobs of the same call that have one parent.
    """
    envelope, rules, body = job.envelope, job.rules, job.envelope.body
    if body is not None and not isinstance(body, bytes):
        why = f"cannot be stored: must be bytes, not {type(body).__name__}"
        raise InvalidInput(field="value", why=why)
    id = job.id.encode()
    fixed = [
        _FIXED.pack(
            rules.max_attempts,
            rules.keep_us,
            rules.keep_failed_us,
            -1 if rules.key_us is None else rules.key_us,
            (0 if body is None else len(body)) + edge_bytes(job),
        ),
        sized(job.tenant),
        LENGTH.pack(len(id)),
        id,
        sized(job.queue),
        sized(envelope.type),
        sized(job.group or ""),
        sized(job.key or ""),
    ]
    edges = edge_texts(job.edges, single)
    if isinstance(edges, bytes):
        fixed.append(LENGTH.pack(len(edges)) + edges)
    if job.tags or job.origin is not None:
        fixed.append(pack((job.tags or None, job.origin)))
    kept = pack((envelope.codec, envelope.version, rules_text(rules), body))
    options: Any = job.priority
    if job.delay_us or job.run_at is not None or job.ttl_us is not None:
        options = (job.priority, job.delay_us, job.run_at, job.ttl_us)
    if job.parents or job.edges:
        times = (job.delay_us, job.run_at, job.ttl_us)
        stored = True if isinstance(edges, bytes) else edges
        options = (job.priority, *times, job.parents, stored, job.ends_with_parents)
    return name_of(job.tenant, job.id), b"".join(fixed), kept, options


def name_of(tenant: str, id: str) -> str:
    """The field of a job in `names`; as `rows.name` of the scripts."""
    return _start(tenant) + id


@lru_cache(TEXT_CACHE_MAX)
def _start(tenant: str) -> str:
    """What the names of a tenant's jobs start with."""
    return f"{len(tenant.encode())}:{tenant}"


def exact(field: str, number: int | None) -> int | None:
    """The number, if the scripts can count to it."""
    if number is not None and (refusal := inexact(field, number)) is not None:
        raise refusal
    return number


def inexact(field: str, number: int) -> InvalidInput | None:
    """Why the scripts cannot count to a number; None if they can."""
    if -EXACT_MAX < number < EXACT_MAX:
        return None
    # A number of thousands of digits is not written out.
    return InvalidInput(field=field, why=f"must be within {EXACT_MAX}")


def rows_of(answer: list[Any]) -> Iterator[Sequence[Any]]:
    """The rows that a script returned (lib_values.lua): sequence, row, body, optional values."""
    each = iter(answer)
    for seq, row, body, optional in zip(each, each, each, each, strict=True):
        yield (seq, row, body, *optional) if optional else (seq, row, body)


class Unreadable(msgspec.Struct, frozen=True):
    """A leased job whose record cannot be read."""

    tenant: str
    id: str
    token: str
    why: str

    def failed(self) -> Transition:
        """What becomes of it."""
        return Transition(
            tenant=self.tenant,
            id=self.id,
            token=self.token,
            to=State.FAILED,
            reason=Reason.DECODE,
            error=f"its stored record cannot be read: {self.why}",
        )


BROKEN = (
    msgspec.MsgspecError,
    HoldfastError,
    ValueError,
    TypeError,
    LookupError,
    RecursionError,
    struct.error,
)
"""What reading damaged bytes may raise."""


def record(answer: Sequence[Any], now: Micros) -> JobRecord:
    """The job of a row, as a reader sees it now. Where its rules, its tags or its payload
    cannot be read, it is shown without them.
    """
    return _read(answer, now)[0]


def lease(answer: Sequence[Any]) -> Lease | Unreadable:
    """The same with the token and the deadline of its lease."""
    job, nonce, more, why = _read(answer, 0)
    journal: tuple[Entry, ...] = ()
    left_out = 0
    if why is None and (stored := journal_of(answer)) is not None:
        try:
            journal, left_out = remembered(stored)
        except BROKEN as broken:
            why = f"its journal: {str(broken) or repr(broken)}"
    elif more & _ROW_JOIN:
        journal = (_join_in_row(more, job.created_at),)
    secret = f"{nonce}.{job.seq}"
    if why is not None:
        return Unreadable(job.tenant, job.id, secret, why)
    assert job.lease_until is not None
    return Lease(job, secret, job.lease_until, journal, left_out)


def journal_of(answer: Sequence[Any]) -> Stored | None:
    """The journal of a job, if it was asked for and the job has one."""
    return answer[8] if len(answer) > 8 else None


_NO_VALUES = (None, None, None, None, None)
_NOTHING = (None, None), "json", 1, Rules(), b"null"


def _contents(tail: bytes, body: bytes) -> tuple[Any, str, int, Rules, bytes | None]:
    """What scripts do not look into: tags and origin, and what is in the body."""
    codec, version, rules, payload = unpack(body)
    tags, origin = unpack(tail) if tail else (None, None)
    return (tags, origin), codec, version, rules_of(rules), payload


def _read(answer: Sequence[Any], now: Micros) -> tuple[JobRecord, str, int, str | None]:
    """The job, the nonce of its lease, its further flags, and why not all of it could be read."""
    row: bytes = answer[1]
    (
        state, _, reason, attempt, fence, lapses, more, misses, priority, created, updated, run_at,
        expires, lease, _, length,
    ) = _HEAD.unpack_from(row)  # fmt: skip
    at = _HEAD.size + length
    nonce = row[_HEAD.size : at].decode()
    worker, at = text_at(row, at)
    at += _FIXED.size
    tenant, at = text_at(row, at)
    id, at = text_at(row, at)
    queue, at = text_at(row, at)
    type, at = text_at(row, at)
    group, at = text_at(row, at)
    key, at = text_at(row, at)
    why = None
    try:
        if more & _ROW_EDGES:
            at += LENGTH_SIZE + (row[at] << 8 | row[at + 1])
        (tags, origin), codec, version, rules, body = _contents(row[at:], answer[2])
    except BROKEN as broken:
        (tags, origin), codec, version, rules, body = _NOTHING
        why = str(broken) or repr(broken)
    error, result, progress, replayed, awaits = answer[3:8] if len(answer) > 3 else _NO_VALUES
    kind, run_at = seen(STATES[state - 1], int(run_at), now), int(run_at)
    held = state == _PROCESSING
    job = JobRecord(
        tenant,
        id,
        queue,
        Envelope(type, codec, version, body),
        rules,
        int(priority),
        key or None,
        group or None,
        tuple(tags) if tags else (),
        origin,
        int(answer[0]),
        kind,
        attempt,
        fence,
        lapses,
        misses,
        int(created),
        int(updated),
        run_at,
        int(expires) or None,
        int(lease) if held else None,
        worker if held else None,
        int(updated) if state >= _ENDED else None,
        REASONS[reason - 1] if reason else None,
        _text(error),
        result,
        _text(progress),
        _text(replayed),
        _awaited(kind, more, awaits),
    )
    return job, nonce, more, why


def _join_in_row(more: int, created: Micros) -> Entry:
    """The join of the one parent of a job, as its flags tell it."""
    done, failed = bool(more & _ROW_JOIN_DONE), bool(more & _ROW_JOIN_FAILED)
    return join_entry("", Join(1, 0 if done else 1, int(failed)), created)


_ROW_EDGES, _ROW_JOIN, _ROW_JOIN_DONE, _ROW_JOIN_FAILED = (
    FLAGS[name] >> 8 for name in ("ROW_EDGES", "ROW_JOIN", "ROW_JOIN_DONE", "ROW_JOIN_FAILED")
)
_PROCESSING = STATE_CODES[State.PROCESSING]
_ENDED = STATE_CODES[State.COMPLETED]


def words(by: By | None) -> str | None:
    """Who acts and why, as events store it."""
    return None if by is None else by.words


def event(cursor: int, at: int, values: list[Any]) -> Event:
    kind, tenant, id, queue, type, attempt, fence, until, note, _ = values
    note, by = note if isinstance(note, list) else (note, None)
    return Event(
        cursor,
        at,
        KINDS[kind],
        tenant,
        id,
        queue,
        type,
        attempt,
        fence,
        until or None,
        None if note is False else note,
        by,
    )


def plain(text: str | None) -> str | None:
    """The text with lone surrogates spelled out: error texts have them when they quote file names,
    and an error text must never fail an ack.
    """
    if text is None or text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()


def _awaited(state: State, more: int, awaits: bytes | None) -> str | None:
    """What a job awaits that is seen in this state."""
    if state is State.WAITING:
        return awaits_of(1, bool(more & FLAGS["ENDS_WITH_PARENTS"] >> 8))
    return _text(awaits) if state is State.SCHEDULED else None


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
