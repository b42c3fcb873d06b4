"""Rows: converts rows of the database to values of the contract, and back."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from holdfast.core.bounds import EDGES_MAX
from holdfast.core.clock import Micros
from holdfast.core.job import Envelope, JobRecord, NewJob, Rules, State, edge_bytes
from holdfast.core.journal import Size, awaits_of
from holdfast.stores import sql_rows
from holdfast.stores.sql_rows import REASONS, STATES, Columns, rules_of, rules_text, size_of
from holdfast.stores.sqlite.layout import INLINE_MAX

DEFAULT_RULES = Rules()
"""Rules of a job whose own cannot be read."""
NO_RULES = rules_text(DEFAULT_RULES)

AWAITING = (State.WAITING, State.SCHEDULED)
"""States in which a job may await something."""
SEQ, CREATED_AT, JOURNAL, PARENTS = 11, 16, 21, 22
"""Where `statements.CLAIMED` has them."""
RULES, TAGS, STATE, REASON = 7, 11, 14, 26
"""Where `statements.RECORD` has them."""
ROW_STATE, ROW_REASON, ROW_AWAITS = 7, 19, 26
"""Where `statements.ROW` has them."""
KNOWN_REASONS = {None, *REASONS}


def _tags(text: str) -> tuple[str, ...]:
    return tuple(msgspec.json.decode(text))


def record(row: Columns, now: Micros) -> JobRecord:
    """The job of a row with the columns of `statements.RECORD`.

    An unreadable record is shown with what can be read of it: a page must not fail because of it.
    """
    *shown, awaits = row
    try:
        job = sql_rows.record(shown, now, _tags)
    except Exception:
        shown[RULES], shown[TAGS] = NO_RULES, None
        shown[STATE] = row[STATE] if row[STATE] in STATES else State.FAILED.value
        shown[REASON] = row[REASON] if row[REASON] in REASONS else None
        job = sql_rows.record(shown, now, _tags)
    if awaits is None or job.state not in AWAITING:
        return job
    return msgspec.structs.replace(job, awaits=awaits)


def claimed(
    row: tuple[Any, ...], line: tuple[str, str], worker: str, now: Micros, until: Micros
) -> JobRecord:
    """The job of a row with the columns of `statements.CLAIMED`, as its claim leaves it."""
    (
        id, type, codec, version, payload, rules, priority, key, group, tags, origin, seq,
        attempt, fence, lapses, misses, created_at, run_at, expires_at, reason, error, _, _,
    ) = row  # fmt: skip
    tenant, queue = line
    return JobRecord(
        tenant,
        id,
        queue,
        Envelope(type, codec, version, payload),
        rules_of(rules),
        priority,
        key,
        group,
        () if tags is None else _tags(tags),
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
    """True when the payload is stored apart from the row, which is rewritten at each step."""
    return isinstance(body, bytes) and len(body) > INLINE_MAX


def new_row(job: NewJob, seq: int, run_at: Micros, now: Micros, gate: int) -> tuple[Any, ...]:
    """The values of `statements.INSERT`."""
    envelope, rules = job.envelope, job.rules
    size = size_of(envelope.body)
    return (
        seq,
        job.tenant,
        job.id,
        job.queue,
        envelope.type,
        envelope.codec,
        envelope.version,
        "waiting" if job.parents else "scheduled" if run_at > now else "enqueued",
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
        envelope.body if size <= INLINE_MAX else None,
        size + edge_bytes(job) if job.edges else size,
        gate,
    )


def in_flow(job: NewJob) -> tuple[Any, ...]:
    """What `statements.INSERT_IN_FLOW` has after the values of `new_row`."""
    edges, parents = len(job.edges) or None, job.parents
    if not parents:
        return None, None, edges, None, None, None
    awaits = awaits_of(parents, job.ends_with_parents)
    return awaits, journal_of_parents(parents), edges, parents, parents, 0


@lru_cache
def journal_of_parents(parents: int) -> str:
    """The size of the journal of a job that waits for so many parents."""
    return size_text(Size(steps=1, bytes=len(str(parents))))


def size_text(size: Size) -> str:
    """How much of its share a journal uses, as the row of its job has it."""
    return msgspec.json.encode((size.steps, size.signals, size.bytes, size.logs)).decode()


def edges_of(stored: Any) -> int:
    """How many edges a job has at most, by its row; also if that cannot be read."""
    return stored if isinstance(stored, int) and 0 <= stored <= EDGES_MAX else EDGES_MAX


class Parent(msgspec.Struct, frozen=True, gc=False):
    """A job that has ended or was deleted, whose edges have to be followed."""

    seq: int
    tenant: str
    id: str
    state: str
    edges: int
    followed: int = 0
    """How many of its edges were followed."""
    gone: bool = False
    """Whether its record is deleted."""


class Row(sql_rows.Row):
    """A job that a call changes, with the values that are written back."""

    __slots__ = ("edges", "journal")

    def __init__(self, row: Columns) -> None:
        if row[ROW_STATE] not in STATES or row[ROW_REASON] not in KNOWN_REASONS:
            shown = list(row)
            shown[ROW_STATE] = row[ROW_STATE] if row[ROW_STATE] in STATES else State.FAILED.value
            shown[ROW_REASON] = None
            row = shown
        super().__init__(row[:ROW_AWAITS])
        self.journal: str | None
        self.awaits, self.journal, edges = row[ROW_AWAITS:]
        self.edges: int | None = edges if edges is None else edges_of(edges)
        """How many jobs await its end; None for none."""

    def keep_until(self) -> Micros:
        try:
            return super().keep_until()
        except Exception:  # Rules that cannot be read.
            self.rules = NO_RULES
            return super().keep_until()

    def saved(self, now: Micros) -> tuple[Any, ...]:
        """The values of `statements.SAVE`."""
        return (
            self.state._value_,
            self.priority,
            self.attempt,
            self.lapses,
            self.misses,
            self.token,
            self.lease_until,
            None if self.reason is None else self.reason._value_,
            storable_text(self.error),
            storable_text(self.progress),
            now,
            self.gate,
            self.awaits,
            self.run_at,
        )

    def finished(self, now: Micros, keep_until: Micros) -> tuple[Any, ...]:
        """The values of `statements.FINISH`."""
        return (
            self.state._value_,
            self.attempt,
            self.lapses,
            self.misses,
            self.token,
            None if self.reason is None else self.reason._value_,
            storable_text(self.error),
            now,
            now,
            keep_until,
            self.result,
        )


def storable_text(text: str | None) -> str | None:
    """The text with lone surrogates escaped. Error texts that quote file names may have them, and
    SQLite cannot store them; an error text must not fail an ack.
    """
    if text is None or text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()
