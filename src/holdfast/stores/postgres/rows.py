"""Rows of the database as the values of the contract, and back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from holdfast.clock import Micros
from holdfast.job import (
    TERMINAL,
    Envelope,
    Event,
    EventKind,
    JobRecord,
    Lease,
    Reason,
    Rules,
    State,
)
from holdfast.lifecycle import seen
from holdfast.store import Claim

STATES = {state.value: state for state in State}
REASONS = {reason.value: reason for reason in Reason}
KINDS = {kind.value: kind for kind in EventKind}

BLOCKED = "blocked"
"""Counted as enqueued, but in no line: it waits for its group, or outlived its time."""

TAGS_BETWEEN = "\x1f"
"""Between the tags of a job on their way to the server; no name can hold it."""

RULES_CACHE_MAX = 1024
"""Most jobs of a type share their rules; few types are alive at a time."""

_encode_rules = msgspec.json.Encoder().encode

Columns = Sequence[Any]


@lru_cache(RULES_CACHE_MAX)
def rules_of(text: str) -> Rules:
    return msgspec.json.decode(text, type=Rules)


@lru_cache(RULES_CACHE_MAX)
def rules_text(rules: Rules) -> str:
    return _encode_rules(rules).decode()


def record(row: Columns, now: Micros) -> JobRecord:
    """The job of a row with the columns of `statements.LIVE` or `DONE`, as a reader sees it now."""
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
        () if tags is None else tuple(tags),
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


def lease(row: Columns, claim: Claim) -> Lease:
    """What a row of `holdfast.lease` gives."""
    (
        _, tenant, id, queue, type, codec, version, payload, rules, priority, key, group, tags,
        origin, seq, attempt, fence, lapses, misses, created_at, updated_at, run_at, expires_at,
        lease_until, reason, error,
    ) = row  # fmt: skip
    job = record(
        (
            tenant, id, queue, type, codec, version, payload, rules, priority, key, group, tags,
            origin, seq, "processing", attempt, fence, lapses, misses, created_at, updated_at,
            run_at, expires_at, lease_until, claim.worker, None, reason, error, None, None, None,
        ),
        updated_at,
    )  # fmt: skip
    return Lease(job, f"{claim.nonce}.{seq}", lease_until)


def size_of(body: Any) -> int:
    """Bytes of a payload."""
    return len(body) if isinstance(body, bytes) else 0


def seq_of(token: str | None) -> int:
    """The job's sequence, which our tokens end with; 0 for a token that is not ours."""
    digits = (token or "").rpartition(".")[2]
    return int(digits) if digits.isdecimal() and digits.isascii() and len(digits) < 19 else 0


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

    def __init__(self, row: Columns) -> None:
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

    @property
    def lived(self) -> bool:
        """It had not ended when it was read."""
        return STATES.get(self.was) not in TERMINAL

    def keep_until(self) -> Micros:
        """Until when the record of a finished job stays."""
        assert self.finished_at is not None, "only finished jobs are kept"
        rules = rules_of(self.rules)
        failed = self.state is State.FAILED
        return self.finished_at + (rules.keep_failed_us if failed else rules.keep_us)


def event(row: Columns) -> Event:
    cursor, at, kind, *rest = row
    return Event(cursor, at, KINDS[kind], *rest)


def plain(text: str | None) -> str | None:
    """The text with what PostgreSQL cannot hold spelled out: lone surrogates, which error texts
    have when they quote file names, and zero characters. An error text must never fail an ack.
    """
    if text is None:
        return text
    if "\0" in text:
        text = text.replace("\0", "\\x00")
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()
