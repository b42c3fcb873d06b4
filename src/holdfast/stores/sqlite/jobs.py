"""The jobs that one call changes: their rows are read together and written together.

A row that is read is changed by the rules of `core/lifecycle.py`, counted at once, and written by
`flush`. Every verb that changes existing jobs goes this way: extend, ack, cancel and change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.core.clock import Micros
from holdfast.core.job import TERMINAL, EventKind, State
from holdfast.stores.sqlite import journal_statements as journal_sql
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.bulk import listed, update_rows
from holdfast.stores.sqlite.journal import drop, weight
from holdfast.stores.sqlite.layout import INLINE_MAX
from holdfast.stores.sqlite.rows import Parent, Row, storable_text
from holdfast.stores.sqlite.transaction import Transaction

ENDED = frozenset(state.value for state in TERMINAL)
_ENDS = frozenset({EventKind.COMPLETED, EventKind.FAILED, EventKind.CANCELED, EventKind.DELETED})


class Jobs:
    """The jobs of one call by (tenant, id)."""

    def __init__(self, transaction: Transaction, tokens: Iterable[str | None] = ()) -> None:
        """`tokens` are lease tokens of the jobs: those are read in one query."""
        self._transaction = transaction
        self._rows: dict[tuple[str, str], Row | None] = {}
        self._changed: set[int] = set()
        self._saved: dict[int, tuple[Any, ...]] = {}
        self._finished: dict[int, tuple[Any, ...]] = {}
        self._removed: list[int] = []
        self._removed_bodies: list[int] = []
        self._removed_others: list[tuple[int, int]] = []
        """Removed jobs with rows in the tables of journals and edges, and about how many."""
        self._released_keys: list[tuple[Any, ...]] = []
        seqs = [seq for token in tokens if (seq := _seq_of(token))]
        if seqs:
            self.read(seqs)

    def read(self, seqs: list[int]) -> list[Row]:
        """The jobs with these sequences, read in one query; those that exist."""
        found = self._transaction.execute(sql.ROWS_BY_SEQ, (listed(seqs),)).fetchall()
        rows = [Row(columns) for columns in found]
        self._rows.update({(row.tenant, row.id): row for row in rows})
        return rows

    def get(self, tenant: str, id: str) -> Row | None:
        """The job as the changes of this call have left it; None when there is no such job."""
        try:
            row = self._rows[tenant, id]
        except KeyError:
            found = self._transaction.execute(sql.ROW_BY_ID, (tenant, id)).fetchone()
            row = self._rows[tenant, id] = None if found is None else Row(found)
        if row is not None and row.seq in self._changed:
            row.was = row.place
        return row

    def save(self, row: Row) -> None:
        """Writes a job that has not ended; it may have changed its place."""
        transaction = self._transaction
        cache = transaction.scope_cache
        gated = row.state is State.ENQUEUED and cache.gated(row.tenant, row.group, row.queue)
        row.gate = int(gated)
        if gated and row.group is not None:
            transaction.groups_to_check.add((row.tenant, row.group))  # Its order may have changed.
        self._changed.add(row.seq)
        self._saved[row.seq] = row.saved(transaction.now)
        where = (row.tenant, row.queue, row.group)
        transaction.count_move(where, row.was, row.place, type=row.type)

    def finish(self, row: Row) -> None:
        """Ends a job: frees its key, and keeps its record for its retention, or deletes it. That of
        a job with edges stays until `prune`, which looks whether a living job may read it.
        """
        now = self._transaction.now
        row.finished_at, row.gate = now, 0
        keep_until = row.keep_until()
        if keep_until <= now and not row.edges:
            self.remove(row)
            return
        if row.edges:
            state = row.state._value_
            self._transaction.parents.append(Parent(row.seq, row.tenant, row.id, state, row.edges))
        self._release_key(row)
        self._changed.add(row.seq)
        self._finished[row.seq] = row.finished(now, keep_until)
        where = (row.tenant, row.queue, row.group)
        self._transaction.count_move(where, row.was, row.place, 1, -row.size, type=row.type)

    def remove(self, row: Row) -> None:
        """Deletes a job and what belongs to it."""
        self._release_key(row)
        self._rows[row.tenant, row.id] = None
        self._removed.append(row.seq)
        if row.size > INLINE_MAX:
            self._removed_bodies.append(row.seq)
        if row.edges or row.journal is not None:
            self._remove_others(row)
        size = 0 if row.was in ENDED else -row.size
        where = (row.tenant, row.queue, row.group)
        self._transaction.count_move(where, row.was, None, 1, size, type=row.type)

    def _remove_others(self, row: Row) -> None:
        """Deletes the journal and the edges of a job, once all of its edges are followed."""
        transaction = self._transaction
        if row.edges and row.was not in ENDED:
            ended = Parent(row.seq, row.tenant, row.id, "deleted", row.edges, gone=True)
            transaction.parents.append(ended)
            return
        gone = (row.tenant, row.seq)
        if row.edges and transaction.execute(journal_sql.RELEASING_GONE, gone).rowcount:
            return
        self._removed_others.append((row.seq, weight(row.journal, row.edges)))

    def _release_key(self, row: Row) -> None:
        """Frees the key of a job that ends; a key with a time of its own stays until then."""
        if row.key is not None:
            key = (row.tenant, row.queue, row.type, row.key)
            self._released_keys.append((*key, row.id, self._transaction.now))

    def record(
        self, kind: EventKind, row: Row, until: Micros | None = None, text: str | None = None
    ) -> None:
        """Records the event, and that its group is drained if this ended the group's last job."""
        transaction = self._transaction
        name = (row.tenant, row.id, row.queue, row.type)
        note = storable_text(text)
        transaction.record_event(kind, name, row.attempt, row.fence, until=until, text=note)
        ended = kind in _ENDS and row.was not in ENDED
        if ended and transaction.group_drained(row.tenant, row.group):
            drained = EventKind.DRAINED
            transaction.record_event(drained, name, row.attempt, row.fence, text=row.group)

    def flush(self) -> None:
        """Writes what was changed."""
        connection = self._transaction.connection
        for update, rows in ((sql.SAVE, self._saved), (sql.FINISH, self._finished)):
            update_rows(connection, update, rows)
        if self._released_keys:
            connection.executemany(sql.KEY_RELEASE, self._released_keys)
        for statement, seqs in (
            (sql.REMOVE, self._removed),
            (sql.BODY_REMOVE, self._removed_bodies),
        ):
            if seqs:
                connection.execute(statement, (listed(seqs),))
        if self._removed_others:
            drop(self._transaction, self._removed_others)


def _seq_of(token: str | None) -> int:
    """The sequence of a job, which its lease token ends with; 0 for a token that is not ours."""
    digits = (token or "").rpartition(".")[2]
    return int(digits) if digits.isdecimal() and len(digits) < 19 else 0
