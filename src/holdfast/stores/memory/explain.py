"""Explain: why a job does not run now, with every blocker, the outermost first.

Due jobs and lapsed leases that no claim has made ready yet are taken as ready: what a claim does
first is no blocker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice

import msgspec

from holdfast.core import blockers
from holdfast.core.bounds import AHEAD_MAX, HOLDERS_MAX, REPAIR_MAX
from holdfast.core.job import TERMINAL, State
from holdfast.core.scope import (
    Blocker,
    Explanation,
    GroupSettings,
    Scope,
    ScopeSettings,
    platform_scopes,
)
from holdfast.stores.memory.layout import Tables
from holdfast.stores.memory.limits import queue_scope
from holdfast.stores.memory.rows import Row


def explain_job(tables: Tables, row: Row) -> Explanation:
    now = tables.now
    if row.state in TERMINAL:
        return blockers.ended(row.state)
    if row.state is State.PROCESSING and (row.lease_until or 0) > now:
        return blockers.running(row.worker, row.attempt, row.lease_until)
    lapsed = [each for _, each in islice(tables.past(tables.leases), REPAIR_MAX) if each.may_retry]
    if row.state is State.PROCESSING and row.may_retry:
        row = msgspec.structs.replace(row, state=State.ENQUEUED)
    found = list(blockers.own_blockers(row, now))
    over_all = platform_scopes(row.new.queue, row.new.envelope.type)
    for scope in (*over_all, Scope(row.new.tenant), queue_scope(*row.line)):
        found += _scope_blockers(tables, scope, tables.limits.of(scope), lapsed)
    if row.group is not None:
        settings = tables.limits.group(row.group, row.new.queue)
        if settings.ordered:
            found += _order_blockers(tables, row, row.group)
        found += _scope_blockers(tables, row.group, settings, lapsed)
    unready = [*lapsed, *(each for _, each in islice(tables.past(tables.due), REPAIR_MAX))]
    ahead = None if found else _ahead(tables, row, unready)
    return blockers.explanation(found, ahead, _tenants(tables, row, [] if found else unready))


def _scope_blockers(
    tables: Tables, scope: Scope, settings: ScopeSettings | GroupSettings, lapsed: list[Row]
) -> Iterable[Blocker]:
    slots = tables.limits.live_slots(scope, tables.now) if settings.slots_count else {}
    inside = {row.seq for row in lapsed if row.inside(scope)}
    usage = blockers.Usage(
        running=tables.running(scope) - len(inside),
        slots=len(slots),
        holders=lambda: (*_holders(tables, scope, inside), *slots)[:HOLDERS_MAX],
        token_at=tables.limits.next_token(scope, settings.rate, tables.now),
    )
    return blockers.scope_blockers(scope, settings, usage)


def _holders(tables: Tables, scope: Scope, lapsed: set[int]) -> list[str]:
    """The ids of the jobs that take a scope's places; over all tenants, how many each has."""
    rows = (tables.current(entry) for entry in (*tables.leases, *tables.spent))
    held = (row for row in rows if row is not None and row.seq not in lapsed and row.inside(scope))
    if scope.of_platform:
        return blockers.by_tenant(Counter(row.new.tenant for row in held))
    return [row.new.id for row in islice(held, HOLDERS_MAX)]


def _order_blockers(tables: Tables, row: Row, scope: Scope) -> Iterable[Blocker]:
    head = tables.head(tables.groups[scope])
    if head is not None and head != row.seq:
        yield blockers.order_blocker(scope, tables.by_seq[head].new.id)


def _ahead(tables: Tables, row: Row, unready: list[Row]) -> int:
    """Ready jobs of its line that rank before it."""
    entries = (*tables.lines.jobs(row.line), *tables.platform.aside(row.line))
    current = map(tables.current, entries)
    ready = [each for each in current if each is not None and not each.is_late(tables.now)]
    before = (
        each
        for each in (*ready, *unready)
        if each.line == row.line and each.rank[:2] < row.rank[:2]
    )
    return sum(1 for _ in islice(before, AHEAD_MAX))


def _tenants(tables: Tables, row: Row, unready: list[Row]) -> int:
    """Tenants that take turns in the job's queue."""
    queue = row.new.queue
    more = {each.line for each in unready if each.new.queue == queue}
    return tables.lines.waiting(queue) + sum(not tables.lines.is_open(line) for line in more)
