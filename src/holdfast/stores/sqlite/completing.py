"""Plain completions, nearly every ack: read and written a batch at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.job import EventKind, State
from holdfast.lifecycle import Transition
from holdfast.store import Ref
from holdfast.stores.sqlite import chunks
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.layout import INLINE_MAX
from holdfast.stores.sqlite.transaction import Transaction, Where


class Completing:
    """The held jobs that a batch of transitions completes. What it does not take, the rules must
    look at.
    """

    def __init__(self, transaction: Transaction, transitions: Sequence[Transition]) -> None:
        self._transaction = transaction
        self._updates: list[tuple[Any, ...]] = []
        self._removals: list[int] = []
        self._bodies: list[tuple[int]] = []
        self._keys: list[tuple[Any, ...]] = []
        self._moves: dict[tuple[Where, str | None], tuple[int, int]] = {}
        """(where, place after) -> jobs, bytes"""
        seqs = [_seq(change) for change in transitions if _is_plain(change)]
        found: list[tuple[Any, ...]] = []
        if seqs:
            query = sql.COMPLETING.format(marks=", ".join("?" * len(seqs)))
            found = transaction.execute(query, (*seqs, transaction.now)).fetchall()
        self._held = {row[0]: row for row in found}

    def take(self, change: Transition) -> bool:
        """True when the job is completed by this, as of the next `flush`."""
        # Whatever this transition does, a later one on the same job must look at it anew.
        seq = _seq(change)
        row = self._held.pop(seq, None)
        if row is None or not _is_plain(change):
            return False
        seq, tenant, id, token, queue, type, attempt, fence, key, keep_us, group, size = row
        if (tenant, id, token) != (change.tenant, change.id, change.token):
            return False
        transaction = self._transaction
        now = transaction.now
        if keep_us > 0:
            self._updates.append((change.result, now, now, now + keep_us, seq))
        else:
            self._removals.append(seq)
            if size > INLINE_MAX:
                self._bodies.append((seq,))
        if key is not None:
            self._keys.append((tenant, queue, type, key, id, now))
        transaction.ended.append(Ref(tenant, id))
        way = (tenant, queue, group), "completed" if keep_us > 0 else None
        jobs, total = self._moves.get(way, (0, 0))
        self._moves[way] = jobs + 1, total + size
        name = (tenant, id, queue, type)
        transaction.note(EventKind.COMPLETED, name, attempt, fence)
        if group is not None:
            self._count()  # Whether the group is drained by this, the counts must tell.
            if transaction.drained(tenant, group):
                transaction.note(EventKind.DRAINED, name, attempt, fence, text=group)
        return True

    def flush(self) -> None:
        """Writes what was taken."""
        connection = self._transaction.connection
        self._count()
        for statement, values in (
            (sql.COMPLETE, self._updates),
            (sql.KEY_RELEASE, self._keys),
            (sql.BODY_REMOVE, self._bodies),
        ):
            if values:
                connection.executemany(statement, values)
                values.clear()
        if self._removals:
            chunks.each_of(connection, sql.REMOVE_ALL, self._removals)
            self._removals.clear()

    def _count(self) -> None:
        for (where, after), (jobs, size) in self._moves.items():
            self._transaction.move(where, "processing", after, jobs, -size)
        self._moves.clear()


def _is_plain(change: Transition) -> bool:
    return (
        change.to is State.COMPLETED
        and not (change.lapsed or change.give_back or change.miss)
        and change.reason is None
        and change.error is None
    )


def _seq(change: Transition) -> int:
    """The job's sequence, which our tokens end with; 0 for a token that is not ours."""
    digits = (change.token or "").rpartition(".")[2]
    return int(digits) if digits.isdecimal() and len(digits) < 19 else 0
