"""Rows of the database as the values of the contract, and back."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from holdfast.clock import Micros
from holdfast.job import (
    Envelope,
    EventKind,
    JobRecord,
    NewJob,
    Reason,
    Rules,
    State,
)
from holdfast.lifecycle import seen
from holdfast.stores.sqlite.layout import INLINE_MAX

STATES = {state.value: state for state in State}
REASONS = {reason.value: reason for reason in Reason}
KINDS = {kind.value: kind for kind in EventKind}

BLOCKED = "blocked"
"""Counted as enqueued, but in no line: it waits for its group, or outlived its time."""

RULES_CACHE_MAX = 1024
"""Most jobs of a type share their rules; few types are alive at a time."""

_encode_rules = msgspec.json.Encoder().encode


@lru_cache(RULES_CACHE_MAX)
def rules_of(text: str) -> Rules:
    return msgspec.json.decode(text, type=Rules)


def rules_text(rules: Rules) -> str:
    return _encode_rules(rules).decode()


def record(row: tuple[Any, ...], now: Micros) -> JobRecord:
    """The job of a row with the columns of `statements.RECORD`, as a reader sees it now."""
    (
        tenant, id, queue, type, codec, version, payload, rules, priority, key, group, tags,
        origin, seq, state, attempt, fence, lapses, misses, created_at, updated_at, run_at,
        expires_at, lease_until, worker, finished_at, reason, error, result, progress, replayed_as,
    ) = row  # fmt: skip
    held = state == "processing"
    return JobRecord(
        tenant,
        id,
        queue,
        Envelope(type, codec, version, payload),
        rules_of(rules),
        priority,
        key,
        group,
        () if tags is None else tuple(msgspec.json.decode(tags)),
        origin,
        seq,
        seen(STATES[state], run_at, now),
        attempt,
        fence,
        lapses,
        misses,
        created_at,
        updated_at,
        run_at,
        expires_at,
        lease_until if held else None,
        worker if held else None,
        finished_at,
        None if reason is None else REASONS[reason],
        error,
        result,
        progress,
        replayed_as,
    )


def claimed(
    row: tuple[Any, ...], line: tuple[str, str], worker: str, now: Micros, until: Micros
) -> JobRecord:
    """The job of a row with the columns of `statements.CLAIMED`, as its claim leaves it."""
    (
        id, type, codec, version, payload, rules, priority, key, group, tags, origin, seq,
        attempt, fence, lapses, misses, created_at, run_at, expires_at, reason, error,
    ) = row  # fmt: skip
    queue, tenant = line
    return JobRecord(
        tenant,
        id,
        queue,
        Envelope(type, codec, version, payload),
        rules_of(rules),
        priority,
        key,
        group,
        () if tags is None else tuple(msgspec.json.decode(tags)),
        origin,
        seq,
        State.PROCESSING,
        attempt + 1,
        fence + 1,
        lapses,
        misses,
        created_at,
        now,
        run_at,
        expires_at,
        until,
        worker,
        None,
        None if reason is None else REASONS[reason],
        error,
    )


def is_large(body: Any) -> bool:
    """Kept apart from its row, which is written again at each step of the job."""
    return isinstance(body, bytes) and len(body) > INLINE_MAX


def size_of(body: Any) -> int:
    """Bytes of a payload."""
    return len(body) if isinstance(body, bytes) else 0


def new_row(job: NewJob, seq: int, run_at: Micros, now: Micros, gate: int) -> tuple[Any, ...]:
    """The values of `statements.INSERT`."""
    envelope, rules = job.envelope, job.rules
    return (
        seq,
        job.tenant,
        job.id,
        job.queue,
        envelope.type,
        envelope.codec,
        envelope.version,
        "scheduled" if run_at > now else "enqueued",
        job.priority,
        run_at,
        rules.max_attempts,
        now,
        now,
        None if job.ttl_us is None else now + job.ttl_us,
        rules.keep_us,
        job.key,
        job.group,
        msgspec.json.encode(job.tags).decode() if job.tags else None,
        job.origin,
        rules_text(rules),
        None if is_large(envelope.body) else envelope.body,
        size_of(envelope.body),
        gate,
    )


class Row:
    """A job that an act is about to change, without its payload. Satisfies `lifecycle.Held`."""

    __slots__ = (
        "attempt",
        "error",
        "expires_at",
        "fence",
        "finished_at",
        "gate",
        "group",
        "id",
        "key",
        "lapses",
        "late",
        "lease_until",
        "max_attempts",
        "misses",
        "priority",
        "progress",
        "queue",
        "reason",
        "result",
        "rules",
        "run_at",
        "seq",
        "size",
        "state",
        "tenant",
        "token",
        "type",
        "was",
    )

    def __init__(self, row: tuple[Any, ...]) -> None:
        state: str
        reason: str | None
        rules: str
        self.seq: int
        self.tenant: str
        self.id: str
        self.queue: str
        self.type: str
        self.key: str | None
        self.priority: int
        self.run_at: Micros
        self.attempt: int
        self.max_attempts: int
        self.fence: int
        self.lapses: int
        self.misses: int
        self.token: str | None
        self.lease_until: Micros | None
        self.expires_at: Micros | None
        self.finished_at: Micros | None
        self.error: str | None
        self.progress: str | None
        self.group: str | None
        self.size: int
        self.late: int
        self.gate: int
        (
            self.seq, self.tenant, self.id, self.queue, self.type, self.key, rules, state,
            self.priority, self.run_at, self.attempt, self.max_attempts, self.fence, self.lapses,
            self.misses, self.token, self.lease_until, self.expires_at, self.finished_at, reason,
            self.error, self.progress, self.group, self.size, self.late, self.gate,
        ) = row  # fmt: skip
        self.state = STATES[state]
        self.reason = None if reason is None else REASONS[reason]
        self.rules = rules
        self.result: Any = None
        self.was = self.place
        """Where it was counted when it was read."""

    @property
    def place(self) -> str:
        """Where it is counted: its state, or BLOCKED."""
        blocked = self.state is State.ENQUEUED and (self.gate or self.late)
        return BLOCKED if blocked else self.state.value

    def keep_until(self) -> Micros | None:
        """Until when the record of a finished job stays; None while it is not finished."""
        if self.finished_at is None:
            return None
        rules = rules_of(self.rules)
        failed = self.state is State.FAILED
        return self.finished_at + (rules.keep_failed_us if failed else rules.keep_us)

    def saved(self, now: Micros) -> tuple[Any, ...]:
        """The values of `statements.SAVE`."""
        return (
            self.state.value,
            self.priority,
            self.run_at,
            self.attempt,
            self.lapses,
            self.misses,
            self.token,
            self.lease_until,
            None if self.reason is None else self.reason.value,
            plain(self.error),
            plain(self.progress),
            self.result,
            now,
            self.finished_at,
            self.keep_until(),
            self.gate,
            self.seq,
        )


def plain(text: str | None) -> str | None:
    """The text with lone surrogates spelled out: error texts have them when they quote file names,
    SQLite cannot hold them, and an error text must never fail an ack.
    """
    if text is None or text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()
