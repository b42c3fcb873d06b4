"""Maintenance: reads what has expired, and deletes what is kept no longer."""

from __future__ import annotations

import sqlite3

from holdfast.core.clock import Micros
from holdfast.core.job import TERMINAL
from holdfast.store import Lapsed, Pruned
from holdfast.stores.sql_rows import STATES
from holdfast.stores.sqlite import events, holds
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.bulk import listed
from holdfast.stores.sqlite.layout import INLINE_MAX
from holdfast.stores.sqlite.rows import record
from holdfast.stores.sqlite.transaction import Transaction


def read_expired(connection: sqlite3.Connection, limit: int, now: Micros) -> list[Lapsed]:
    lapsed = [
        Lapsed(record(row, now), token, now - deadline)
        for statement in (*sql.LAPSED, *sql.OUTLIVED)
        for deadline, token, *row in connection.execute(statement, (now, limit))
    ]
    return sorted(lapsed, key=lambda one: -one.overdue_us)[:limit]


def prune_expired(transaction: Transaction, limit: int, events_keep_us: Micros) -> Pruned:
    jobs = _prune_jobs(transaction, limit)
    keys = _prune_keys(transaction, limit)
    cut = events.prune_events(transaction.connection, limit, transaction.now - events_keep_us)
    holds.prune_holds(transaction, limit)
    transaction.write_counts()
    transaction.execute(sql.PRUNE_COUNTS, (limit,))
    transaction.execute(sql.PRUNE_BUCKETS, (transaction.now, limit))
    transaction.execute(sql.CLAIMS_DROP, (transaction.now, limit))
    return Pruned(jobs, cut, more=limit in (jobs, keys) or cut >= limit)


def _prune_jobs(transaction: Transaction, limit: int) -> int:
    now = transaction.now
    pruned = transaction.execute(sql.PRUNE_JOBS, (now, limit)).fetchall()
    large = [seq for *_, seq, size in pruned if size > INLINE_MAX]
    transaction.execute(sql.BODY_REMOVE, (listed(large),))
    for tenant, queue, type, key, id, state, group, *_ in pruned:
        transaction.count_move((tenant, queue, group), state, None)
        if key is not None:
            transaction.execute(sql.KEY_RELEASE, (tenant, queue, type, key, id, now))
    return len(pruned)


def _prune_keys(transaction: Transaction, limit: int) -> int:
    past = transaction.execute(sql.PAST_KEYS, (transaction.now, limit)).fetchall()
    for *key, state in past:
        alive = state is not None and STATES[state] not in TERMINAL
        transaction.execute(sql.KEY_UNTIMED if alive else sql.KEY_DROP, key)
    return len(past)
