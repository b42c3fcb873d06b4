"""Count: how many jobs the scopes have, by the counters that every step keeps up to date."""

from __future__ import annotations

from collections import Counter, defaultdict

from holdfast.core.clock import Micros
from holdfast.core.job import State
from holdfast.core.scope import Scope, ScopeKind
from holdfast.store import Tally
from holdfast.stores.memory.layout import Tables
from holdfast.stores.memory.limits import queue_scope


def scopes_of(tables: Tables, tenant: str | None, by: ScopeKind) -> list[Scope]:
    """The scopes of a kind that have jobs or slots, in order; of the platform: settings."""
    if tenant == "" or by in (ScopeKind.PLATFORM, ScopeKind.TYPE):
        return sorted(scope for scope in tables.limits.platform if scope.kind is by)
    if by is ScopeKind.QUEUE:
        found = {queue_scope(*line) for line, counts in tables.counts.items() if +counts}
    elif by is ScopeKind.GROUP:
        found = {scope for scope, group in tables.groups.items() if +group.counts}
    else:
        found = {Scope(name) for name, counts in tables.tenants.items() if +counts}
    found |= {
        scope
        for scope in tables.limits.slots
        if scope.kind is by and tables.limits.live_slots(scope, tables.now)
    }
    return sorted(scope for scope in found if tenant is None or scope.tenant == tenant)


def count_jobs(tables: Tables, scopes: list[Scope], correction: int) -> list[Tally]:
    """The tally of each scope. A due job counts as enqueued, though no claim has moved it yet."""
    moved: defaultdict[Scope, Counter[State]] = defaultdict(Counter)
    due: dict[Scope, Micros] = {}
    for run_at, row in tables.past(tables.due):
        for scope in row.scopes:
            moved[scope][State.ENQUEUED] += 1
            moved[scope][row.state] -= 1
            due.setdefault(scope, run_at)
    return [
        Tally(
            scope.tenant,
            scope.part,
            _counts(tables, scope, moved[scope]),
            _oldest(tables, scope, due.get(scope)),
            len(tables.limits.live_slots(scope, tables.now)),
            correction,
        )
        for scope in scopes
    ]


def _counts(tables: Tables, scope: Scope, moved: Counter[State]) -> dict[State, int]:
    if scope.of_platform:
        return {State.PROCESSING: tables.running(scope)}
    return dict(tables.counted(scope) + moved)


def _oldest(tables: Tables, scope: Scope, due: Micros | None) -> Micros | None:
    """Since when the longest-waiting job of a queue could have run; `due` is that of due jobs."""
    if scope.kind is not ScopeKind.QUEUE or scope.of_platform:
        return None
    ready = tables.ages.oldest((scope.tenant, scope.part))
    return min((at for at in (ready, due) if at is not None), default=None)


def recount(tables: Tables) -> int:
    """Counts every row anew; returns how many held jobs the counters were off by."""
    held = {line: counts[State.PROCESSING] for line, counts in tables.counts.items()}
    groups = [group.counts for group in tables.groups.values()]
    for counter in (*tables.counts.values(), *tables.tenants.values(), *groups):
        counter.clear()
    for row in tables.rows.values():
        for counter in row.counters:
            counter[row.state] += 1
    tables.count_running(tables.limits.platform)
    after = {line: counts[State.PROCESSING] for line, counts in tables.counts.items()}
    return sum(abs(after.get(line, 0) - held.get(line, 0)) for line in held | after)
