"""What the memory store keeps, and in which order it can be reached.

    rows    (tenant, id) -> Row                    every job
    order   [seq, ...]                             first-enqueue order, for pages
    lines   (tenant, queue) -> heap(-priority, seq)  claimable now; only non-empty lines
    due     heap(run_at)                           scheduled and retrying jobs
    leases  heap(lease_until)                      held jobs
    spent   heap(lease_until)                      lapsed with no attempts left: upkeep's to fail
    ttl     heap(expires_at)                       jobs with a time to live
    finished heap(keep_until)                      terminal jobs until pruned
    keys    (tenant, queue, type, key) -> KeyHold  idempotency
    events  deque(Event)                           newest EVENTS_MAX facts

A heap entry is (instant, seq, stamp). It is stale, and dropped when met, unless the row's stamp is
the same: every change of a row's place gives it a new stamp, so nothing is ever searched for.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator

import msgspec

from holdfast.clock import Micros
from holdfast.job import TERMINAL, Event, EventKind, JobRecord, NewJob, Reason, State
from holdfast.lifecycle import seen
from holdfast.stores.bell import Line

EVENTS_MAX = 100_000

Entry = tuple[int, int, int]
Key = tuple[str, str, str, str]


class Row:
    """One job, mutable, seen only under the store's lock. Satisfies `lifecycle.Held`."""

    __slots__ = (
        "attempt",
        "created_at",
        "error",
        "expires_at",
        "fence",
        "finished_at",
        "lapses",
        "lease_until",
        "misses",
        "new",
        "priority",
        "progress",
        "reason",
        "replayed_as",
        "result",
        "run_at",
        "seq",
        "stamp",
        "state",
        "token",
        "updated_at",
        "worker",
    )

    def __init__(self, new: NewJob, seq: int, now: Micros) -> None:
        self.new = new
        self.seq = seq
        self.priority = new.priority
        self.created_at = self.updated_at = now
        self.run_at = new.run_at if new.run_at is not None else now + new.delay_us
        self.state = State.SCHEDULED if self.run_at > now else State.ENQUEUED
        self.expires_at = None if new.ttl_us is None else now + new.ttl_us
        self.attempt = self.fence = self.lapses = self.misses = self.stamp = 0
        self.token: str | None = None
        self.lease_until: Micros | None = None
        self.worker: str | None = None
        self.finished_at: Micros | None = None
        self.reason: Reason | None = None
        self.error: str | None = None
        self.result: object = None
        self.progress: str | None = None
        self.replayed_as: str | None = None

    @property
    def line(self) -> Line:
        return self.new.tenant, self.new.queue

    @property
    def max_attempts(self) -> int:
        return self.new.rules.max_attempts

    def record(self, now: Micros) -> JobRecord:
        new = self.new
        held = self.state is State.PROCESSING
        return JobRecord(
            tenant=new.tenant,
            id=new.id,
            queue=new.queue,
            envelope=new.envelope,
            rules=new.rules,
            priority=self.priority,
            key=new.key,
            group=new.group,
            tags=new.tags,
            origin=new.origin,
            seq=self.seq,
            state=seen(self.state, self.run_at, now),
            attempt=self.attempt,
            fence=self.fence,
            lapses=self.lapses,
            misses=self.misses,
            created_at=self.created_at,
            updated_at=self.updated_at,
            run_at=self.run_at,
            expires_at=self.expires_at,
            lease_until=self.lease_until if held else None,
            worker=self.worker if held else None,
            finished_at=self.finished_at,
            reason=self.reason,
            error=self.error,
            result=self.result,
            progress=self.progress,
            replayed_as=self.replayed_as,
        )


class KeyHold(msgspec.Struct, frozen=True):
    """Which job a key stands for, until its end (None) or until an instant."""

    id: str
    until: Micros | None


class Tables:
    """The rows and their indexes, kept in step."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Row] = {}
        self.by_seq: dict[int, Row] = {}
        self.order: list[int] = []
        self.lines: dict[Line, list[Entry]] = {}
        self.due: list[Entry] = []
        self.leases: list[Entry] = []
        self.spent: list[Entry] = []
        self.ttl: list[Entry] = []
        self.finished: list[Entry] = []
        self.keys: dict[Key, KeyHold] = {}
        self.key_ends: list[tuple[Micros, Key]] = []
        self.events: deque[Event] = deque()
        self.events_floor = 0
        self.cursor = 0
        self._seq = 0

    # -- rows ------------------------------------------------------------------------------------

    def insert(self, new: NewJob, now: Micros) -> Row:
        self._seq += 1
        row = Row(new, self._seq, now)
        self.rows[new.tenant, new.id] = row
        self.by_seq[row.seq] = row
        self.order.append(row.seq)
        if row.expires_at is not None:
            heapq.heappush(self.ttl, (row.expires_at, row.seq, 0))
        self.place(row)
        return row

    def remove(self, row: Row, now: Micros) -> None:
        del self.rows[row.new.tenant, row.new.id]
        del self.by_seq[row.seq]
        self.release_key(row, now)
        if len(self.order) > 64 + 2 * len(self.by_seq):
            self.order = list(self.by_seq)

    def place(self, row: Row) -> None:
        """Puts the row where its state belongs; what pointed to it before is stale from now on."""
        row.stamp += 1
        state = row.state
        if state is State.ENQUEUED:
            entry = (-row.priority, row.seq, row.stamp)
            heapq.heappush(self.lines.setdefault(row.line, []), entry)
        elif state is State.PROCESSING:
            assert row.lease_until is not None
            heapq.heappush(self.leases, (row.lease_until, row.seq, row.stamp))
        elif state in TERMINAL:
            assert row.finished_at is not None
            heapq.heappush(self.finished, (self.keep_until(row), row.seq, row.stamp))
        else:
            heapq.heappush(self.due, (row.run_at, row.seq, row.stamp))

    def keep_until(self, row: Row) -> Micros:
        rules = row.new.rules
        keep = rules.keep_failed_us if row.state is State.FAILED else rules.keep_us
        return (row.finished_at or 0) + keep

    def current(self, entry: Entry) -> Row | None:
        """The row an entry of `lines`, `due`, `leases`, `spent` or `finished` points to; None if
        stale.
        """
        row = self.by_seq.get(entry[1])
        return row if row is not None and row.stamp == entry[2] else None

    def pages(self, after: int | None, newest_first: bool) -> Iterator[Row]:
        """Rows past a cursor, in or against first-enqueue order."""
        order = self.order  # Deleting while walking may put a shorter list in its place.
        if newest_first:
            end = len(order) if after is None else bisect_left(order, after)
            seqs = iter(order[i] for i in range(end - 1, -1, -1))
        else:
            start = 0 if after is None else bisect_right(order, after)
            seqs = iter(order[i] for i in range(start, len(order)))
        return (row for seq in seqs if (row := self.by_seq.get(seq)) is not None)

    # -- keys ------------------------------------------------------------------------------------

    def held_key(self, key: Key, now: Micros) -> str | None:
        hold = self.keys.get(key)
        if hold is None:
            return None
        row = self.rows.get((key[0], hold.id))
        # The id may have been pruned and used again, for a job without this key.
        if row is not None and row.state not in TERMINAL and key_of(row.new) == key:
            return hold.id
        return hold.id if hold.until is not None and hold.until > now else None

    def take_key(self, row: Row, now: Micros) -> None:
        key = key_of(row.new)
        if key is not None:
            length = row.new.rules.key_us
            until = None if length is None else now + length
            self.keys[key] = KeyHold(row.new.id, until)
            if until is not None:
                heapq.heappush(self.key_ends, (until, key))

    def release_key(self, row: Row, now: Micros) -> None:
        """Frees the key of a finished job; a timed one stays until its time."""
        key = key_of(row.new)
        if key is None:
            return
        hold = self.keys.get(key)
        if hold is not None and hold.id == row.new.id and (hold.until or 0) <= now:
            del self.keys[key]

    # -- events ----------------------------------------------------------------------------------

    def note(
        self,
        kind: EventKind,
        row: Row,
        now: Micros,
        until: Micros | None = None,
        note: str | None = None,
    ) -> None:
        self.cursor += 1
        new = row.new
        self.events.append(
            Event(
                self.cursor,
                now,
                kind,
                new.tenant,
                new.id,
                new.queue,
                new.envelope.type,
                row.attempt,
                row.fence,
                until,
                note,
            )
        )
        if len(self.events) > EVENTS_MAX:
            self.events_floor = self.events.popleft().cursor


def key_of(new: NewJob) -> Key | None:
    return None if new.key is None else (new.tenant, new.queue, new.envelope.type, new.key)
