"""What the stores that speak SQL share: rows as the values of the contract, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from holdfast.core.clock import Micros
from holdfast.core.job import Envelope, EventKind, JobRecord, Reason, Rules, State
from holdfast.core.lifecycle import seen

STATES = {state.value: state for state in State}
REASONS = {reason.value: reason for reason in Reason}
KINDS = {kind.value: kind for kind in EventKind}

BLOCKED = "blocked"
"""Counted as enqueued, but in no line: it waits for its group, or outlived its time."""

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


def record(row: Columns, now: Micros, tags_of: Callable[[Any], tuple[str, ...]]) -> JobRecord:
    """The job of a row, as a reader sees it now; each store has its own way with tags."""
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
        () if tags is None else tags_of(tags),
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


def size_of(body: Any) -> int:
    """Bytes of a payload."""
    return len(body) if isinstance(body, bytes) else 0


class Row:
    """A job that an act is about to change, without its payload. Satisfies `lifecycle.Held`."""

    __slots__ = (
        "attempt",
        "awaits",
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
        self.awaits: str | None = None
        self.was = BLOCKED if (self.gate or self.late) and state == "enqueued" else state
        """Where it was counted when it was read."""

    @property
    def place(self) -> str:
        """Where it is counted: its state, or BLOCKED."""
        blocked = self.state is State.ENQUEUED and (self.gate or self.late)
        return BLOCKED if blocked else self.state._value_

    def keep_until(self) -> Micros:
        """Until when the record of a finished job stays."""
        assert self.finished_at is not None, "only finished jobs are kept"
        rules = rules_of(self.rules)
        failed = self.state is State.FAILED
        return self.finished_at + (rules.keep_failed_us if failed else rules.keep_us)
