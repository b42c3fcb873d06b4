"""Maintenance: `expired` reads what has lapsed; `prune` drops what has outlived its keeping."""

from __future__ import annotations

import heapq
from itertools import chain, islice, takewhile

from holdfast.core.bounds import KEEP_AGAIN_S
from holdfast.core.clock import Micros, micros
from holdfast.core.job import TERMINAL, State
from holdfast.store import Lapsed, Pruned
from holdfast.stores.memory.fairness import Entry
from holdfast.stores.memory.layout import Tables
from holdfast.stores.memory.rows import Row, ordered


def expired(tables: Tables, limit: int) -> list[Lapsed]:
    now = tables.now
    held = chain(
        islice(tables.past(tables.spent), limit), islice(tables.past(tables.leases), limit)
    )
    lapsed = [Lapsed(row.record(now), row.token, now - deadline) for deadline, row in held]
    waiting = 0
    for entry in takewhile(lambda entry: entry[0] <= now, ordered(tables.ttl)):
        row = tables.by_seq.get(entry[1])
        if row is None or row.state in TERMINAL or row.state is State.PROCESSING:
            continue
        lapsed.append(Lapsed(row.record(now), None, now - entry[0]))
        waiting += 1
        if waiting == limit:
            break
    return sorted(lapsed, key=lambda one: -one.overdue_us)[:limit]


def prune(tables: Tables, limit: int, events_keep_us: Micros) -> Pruned:
    now, jobs, looked = tables.now, 0, 0
    while tables.finished and tables.finished[0][0] <= now and looked < limit:
        row = tables.current(heapq.heappop(tables.finished))
        if row is None:
            continue
        looked += 1
        if _is_wanted(tables, row):
            again = now + micros(KEEP_AGAIN_S)
            heapq.heappush(tables.finished, (again, row.seq, row.stamp))
        else:
            tables.remove(row, now)
            jobs += 1
    _drop_ended(tables, tables.ttl)
    tables.prune_keys(now)
    tables.forget_empty()
    events = tables.prune_events(limit, now - events_keep_us)
    return Pruned(jobs, events, more=limit in (looked, events))


def _is_wanted(tables: Tables, row: Row) -> bool:
    """Whether a living job may still read the result of this one."""
    targets = (tables.rows.get((row.new.tenant, edge.target)) for edge in row.new.edges)
    return any(target is not None and target.state not in TERMINAL for target in targets)


def _drop_ended(tables: Tables, heap: list[Entry]) -> None:
    """Drops the entries of ended jobs at the head of a heap."""
    while heap and heap[0][0] <= tables.now:
        row = tables.by_seq.get(heap[0][1])
        if row is not None and row.state not in TERMINAL:
            return
        heapq.heappop(heap)
