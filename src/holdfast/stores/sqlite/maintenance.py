"""Maintenance: reads what has expired, and deletes what is kept no longer."""

from __future__ import annotations

import sqlite3

from holdfast.core.bounds import KEEP_AGAIN_S
from holdfast.core.clock import Micros, micros
from holdfast.core.job import TERMINAL
from holdfast.store import Lapsed, Pruned
from holdfast.stores.sql_rows import STATES
from holdfast.stores.sqlite import events, holds
from holdfast.stores.sqlite import journal_statements as journal_sql
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.bulk import listed
from holdfast.stores.sqlite.journal import drop, drop_leftovers, weight
from holdfast.stores.sqlite.layout import INLINE_MAX
from holdfast.stores.sqlite.rows import edges_of, record
from holdfast.stores.sqlite.transaction import Transaction

LOOK_MAX = 20_000
"""About how many edges one call looks at to see whether ended jobs are still wanted."""
LOOK_AGAIN_S = 10.0
"""When it comes back to ended jobs that it had no time for. Until then they do not keep it from
deleting others.
"""


def read_expired(connection: sqlite3.Connection, limit: int, now: Micros) -> list[Lapsed]:
    lapsed = [
        Lapsed(record(row, now), token, now - deadline)
        for statement in (*sql.LAPSED, *sql.OUTLIVED)
        for deadline, token, *row in connection.execute(statement, (now, limit))
    ]
    return sorted(lapsed, key=lambda one: -one.overdue_us)[:limit]


def prune_expired(transaction: Transaction, limit: int, events_keep_us: Micros) -> Pruned:
    jobs, looked, left = _prune_jobs(transaction, limit)
    keys = _prune_keys(transaction, limit)
    cut = events.prune_events(transaction.connection, limit, transaction.now - events_keep_us)
    holds.prune_holds(transaction, limit)
    transaction.write_counts()
    transaction.execute(sql.PRUNE_COUNTS, (limit,))
    transaction.execute(sql.PRUNE_BUCKETS, (transaction.now, limit))
    transaction.execute(sql.CLAIMS_DROP, (transaction.now, limit))
    return Pruned(jobs, cut, more=left or limit in (looked, keys) or cut >= limit)


def _prune_jobs(transaction: Transaction, limit: int) -> tuple[int, int, bool]:
    """How many jobs it has deleted, at how many it has looked, and whether it has left rows of
    journals and edges.
    """
    now = transaction.now
    found = [
        (seq, journal, None if edges is None else edges_of(edges))
        for seq, journal, edges in transaction.execute(sql.PRUNABLE, (now, limit))
    ]
    kept = _kept(transaction, [(seq, edges) for seq, _, edges in found if edges is not None])
    gone = [seq for seq, _, _ in found if seq not in kept] if kept else [seq for seq, _, _ in found]
    pruned = transaction.execute(sql.PRUNE_JOBS, (listed(gone),)).fetchall()
    large = [seq for *_, seq, size in pruned if size > INLINE_MAX]
    transaction.execute(sql.BODY_REMOVE, (listed(large),))
    for tenant, queue, type, key, id, state, group, *_ in pruned:
        transaction.count_move((tenant, queue, group), state, None)
        if key is not None:
            transaction.execute(sql.KEY_RELEASE, (tenant, queue, type, key, id, now))
    others = [
        (seq, weight(journal, edges))
        for seq, journal, edges in found
        if (journal is not None or edges is not None) and seq not in kept
    ]
    left = drop_leftovers(transaction, drop(transaction, others))
    return len(pruned), len(found), left


def _kept(transaction: Transaction, jobs: list[tuple[int, int]]) -> set[int]:
    """Those of these ended jobs with edges that stay, because a living job may read their result,
    or because there are too many edges to look at all of them now.
    """
    looked, later, left = list[int](), list[int](), LOOK_MAX
    for seq, edges in jobs:
        (looked if left > 0 else later).append(seq)
        left -= edges
    wanted = transaction.execute(journal_sql.WANTED, (listed(looked),)).fetchall() if looked else []
    kept = [seq for (seq,) in wanted]
    for seqs, again_s in ((kept, KEEP_AGAIN_S), (later, LOOK_AGAIN_S)):
        if seqs:
            again = transaction.now + micros(again_s)
            transaction.execute(sql.KEEP_LONGER, (again, listed(seqs)))
    return {*kept, *later}


def _prune_keys(transaction: Transaction, limit: int) -> int:
    past = transaction.execute(sql.PAST_KEYS, (transaction.now, limit)).fetchall()
    for *key, state in past:
        alive = state is not None and STATES[state] not in TERMINAL
        transaction.execute(sql.KEY_UNTIMED if alive else sql.KEY_DROP, key)
    return len(past)
