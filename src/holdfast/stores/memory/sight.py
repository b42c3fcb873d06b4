"""What can be seen of the memory store: pages, counts, events, and why a job does not run."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast import gate
from holdfast.job import TERMINAL, Event, JobRecord, State
from holdfast.limits import AHEAD_MAX, HOLDERS_MAX
from holdfast.scope import (
    Explanation,
    Gate,
    GroupGate,
    Scope,
    ScopeKind,
    ScopeSettings,
)
from holdfast.store import EventPage, Find, Page, Tally
from holdfast.stores.memory.gates import queue_scope, tenant_scope
from holdfast.stores.memory.layout import Tables
from holdfast.stores.memory.rows import Row
from holdfast.stores.memory.selects import past, selects


def find(tables: Tables, find: Find) -> Page:
    if find.limit == 0:
        return Page([], find.after)
    rows: Iterable[Row]
    if find.select.ids and find.select.tenant is not None:
        named = (tables.rows.get((find.select.tenant, id)) for id in set(find.select.ids))
        rows = sorted(
            (row for row in named if row is not None and past(row, find)),
            key=lambda row: row.seq,
            reverse=find.newest_first,
        )
    else:
        rows = tables.pages(find.after, find.newest_first)
    jobs: list[JobRecord] = []
    for row in rows:
        if selects(find.select, row, tables.now):
            if len(jobs) == find.limit:
                return Page(jobs, jobs[-1].seq)
            jobs.append(row.record(tables.now))
    return Page(jobs, None)


def events(
    tables: Tables, tenant: str | None, after: int, limit: int, job_id: str | None
) -> EventPage:
    if after < 0:
        return EventPage([], tables.cursor, False)
    lost = after < tables.events_floor
    page: list[Event] = []
    for event in tables.events:
        if event.cursor <= after:
            continue
        if tenant is not None and event.tenant != tenant:
            continue
        if job_id is not None and event.job_id != job_id:
            continue
        if len(page) == limit:
            return EventPage(page, page[-1].cursor if page else after, lost)
        page.append(event)
    return EventPage(page, tables.cursor, lost)


# -- counts ----------------------------------------------------------------------------------------


def scopes(tables: Tables, tenant: str | None, by: ScopeKind) -> list[Scope]:
    """The scopes of a kind that have jobs or slots, in order."""
    if by is ScopeKind.QUEUE:
        found = {queue_scope(*line) for line, counts in tables.counts.items() if +counts}
    elif by is ScopeKind.GROUP:
        found = {scope for scope, group in tables.groups.items() if +group.counts}
    else:
        found = {tenant_scope(name) for name, counts in tables.tenants.items() if +counts}
    found |= {
        scope
        for scope in tables.gates.slots
        if scope.kind is by and tables.gates.live_slots(scope, tables.now)
    }
    return sorted(scope for scope in found if tenant is None or scope.tenant == tenant)


def tally(tables: Tables, scope: Scope, correction: int = 0) -> Tally:
    line = (scope.tenant, scope.part)
    counts = tables.counted(scope)
    return Tally(
        scope.tenant,
        scope.part,
        {state: number for state, number in counts.items() if number},
        tables.oldest(line) if scope.kind is ScopeKind.QUEUE else None,
        len(tables.gates.live_slots(scope, tables.now)),
        correction,
    )


# -- explain ---------------------------------------------------------------------------------------


def explain(tables: Tables, row: Row) -> Explanation:
    """Every gate of the job, the outermost first."""
    now = tables.now
    if row.state in TERMINAL:
        return gate.ended(row.state)
    if row.state is State.PROCESSING and (row.lease_until or 0) > now:
        return gate.running(row.worker, row.attempt, row.lease_until)
    gates = list(gate.own_gates(row, now))
    for scope in (tenant_scope(row.new.tenant), queue_scope(*row.line)):
        gates += _scope_gates(tables, scope, tables.gates.of(scope))
    if row.group is not None:
        rules = tables.gates.group(row.group, row.new.queue)
        if rules.ordered:
            gates += _order_gates(tables, row, row.group)
        gates += _scope_gates(tables, row.group, rules)
    tenants = tables.lines.waiting(row.new.queue)
    return gate.explanation(gates, None if gates else _ahead(tables, row), tenants)


def _scope_gates(tables: Tables, scope: Scope, rules: ScopeSettings | GroupGate) -> Iterable[Gate]:
    slots = tables.gates.live_slots(scope, tables.now) if rules.slots_count else {}
    usage = gate.Usage(
        running=tables.running(scope),
        slots=len(slots),
        holders=lambda: (*tables.holders(scope, HOLDERS_MAX), *slots)[:HOLDERS_MAX],
        token_at=tables.gates.next_token(scope, rules.rate, tables.now),
    )
    return gate.scope_gates(scope, rules, usage)


def _order_gates(tables: Tables, row: Row, scope: Scope) -> Iterable[Gate]:
    head = tables.head(tables.groups[scope])
    if head is not None and head != row.seq:
        yield gate.order_gate(scope, tables.by_seq[head].new.id)


def _ahead(tables: Tables, row: Row) -> int:
    """Ready jobs of its line that rank before it."""
    ahead = 0
    for entry in tables.lines.jobs(row.line):
        if entry[:2] < row.rank[:2] and tables.current(entry) is not None:
            ahead += 1
            if ahead >= AHEAD_MAX:
                break
    return ahead
