"""What upkeep reads and clears away."""

from __future__ import annotations

import sqlite3

from holdfast.clock import Micros
from holdfast.job import TERMINAL
from holdfast.store import Lapsed, Pruned
from holdfast.stores.sql_rows import STATES
from holdfast.stores.sqlite import log, names
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.layout import INLINE_MAX
from holdfast.stores.sqlite.rows import record
from holdfast.stores.sqlite.transaction import Transaction


def expired(connection: sqlite3.Connection, limit: int, now: Micros) -> list[Lapsed]:
    lapsed = [
        Lapsed(record(row, now), token, now - deadline)
        for statement in (*sql.LAPSED, *sql.OUTLIVED)
        for deadline, token, *row in connection.execute(statement, (now, limit))
    ]
    return sorted(lapsed, key=lambda one: -one.overdue_us)[:limit]


def prune(transaction: Transaction, limit: int, events_keep_us: Micros) -> Pruned:
    jobs = _prune_jobs(transaction, limit)
    keys = _prune_keys(transaction, limit)
    events = log.prune(transaction.connection, limit, transaction.now - events_keep_us)
    names.prune(transaction, limit)
    transaction.settle()
    transaction.execute(sql.PRUNE_COUNTS, (limit,))
    transaction.execute(sql.PRUNE_BUCKETS, (transaction.now, limit))
    transaction.execute(sql.CLAIMS_DROP, (transaction.now, limit))
    return Pruned(jobs, events, more=limit in (jobs, keys) or events >= limit)


def _prune_jobs(transaction: Transaction, limit: int) -> int:
    now = transaction.now
    pruned = transaction.execute(sql.PRUNE_JOBS, (now, limit)).fetchall()
    for tenant, queue, type, key, id, state, group, seq, size in pruned:
        if size > INLINE_MAX:
            transaction.execute(sql.BODY_REMOVE, (seq,))
        transaction.move((tenant, queue, group), state, None)
        if key is not None:
            transaction.execute(sql.KEY_RELEASE, (tenant, queue, type, key, id, now))
    return len(pruned)


def _prune_keys(transaction: Transaction, limit: int) -> int:
    past = transaction.execute(sql.PAST_KEYS, (transaction.now, limit)).fetchall()
    for *key, state in past:
        alive = state is not None and STATES[state] not in TERMINAL
        transaction.execute(sql.KEY_UNTIMED if alive else sql.KEY_DROP, key)
    return len(past)
