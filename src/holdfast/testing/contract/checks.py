"""Compares the store with the model: records, counts and events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from holdfast.core.clock import Micros
from holdfast.core.job import Event, EventKind, JobRecord, Lease, State
from holdfast.core.journal import AWAITS_PARENTS, REMEMBERED, EntryKind, Journal
from holdfast.core.scope import ScopeKind
from holdfast.store import Lapsed, Tally
from holdfast.testing.contract.model_item import Item, Line
from holdfast.testing.contract.model_scopes import Usage

_ENDS = (EventKind.COMPLETED, EventKind.FAILED, EventKind.CANCELED)


def check_record(record: JobRecord, item: Item, now: Micros) -> None:
    """P4 to P11: the record equals the model, as far as the promises define it."""
    assert record.state in item.faces(now)
    rescued = item.lapsed(now) and record.state is State.ENQUEUED
    assert (record.attempt, record.fence) == (item.attempt, item.fence)
    assert record.lapses - item.lapses - rescued in (0, item.unsure)
    assert (record.priority, record.created_at) == (item.priority, item.created_at)
    assert (record.expires_at, record.replayed_as) == (item.expires_at, item.replayed_as)
    assert (record.key, record.origin) == (item.new.key, item.new.origin)
    if record.state in (State.SCHEDULED, State.RETRYING):
        assert record.run_at == item.run_at
    if record.state is State.PROCESSING:
        assert record.lease_until == item.until
    else:
        assert (record.lease_until, record.worker) == (None, None)
    assert record.awaits in item.shown_awaits(now)
    if item.over:
        assert record.finished_at == item.finished_at
        assert (record.reason, record.result) == (item.reason, item.result)
    else:
        assert record.finished_at is None


def check_blame(record: JobRecord, item: Item, sources: set[str]) -> None:
    """P17: a job that ended with a parent names it."""
    if item.blames:
        words = (record.error or "").split()
        assert words[:2] == ["its", "parent"]
        assert words[2] in sources


def check_journal(journal: Journal, item: Item | None) -> None:
    """P16, P17: the entries, joins and edges of a job are those of the model."""
    assert item is not None
    item.notes.check(journal.entries, EntryKind)
    assert tuple(journal.edges) == item.new.edges


def check_counts(records: Iterable[JobRecord], tallies: Iterable[Tally]) -> None:
    """Counting the jobs of `find` gives the counts of `count`."""
    counts: dict[Line, dict[State, int]] = {}
    oldest: dict[Line, Micros] = {}
    for record in records:
        line = record.tenant, record.queue
        states = counts.setdefault(line, {})
        states[record.state] = states.get(record.state, 0) + 1
        if record.state is State.ENQUEUED:
            oldest[line] = min(record.run_at, oldest.get(line, record.run_at))
    told = {(each.tenant, each.queue): each for each in tallies if any(each.counts.values())}
    assert told.keys() == counts.keys()
    for line, tally in told.items():
        assert {state: n for state, n in tally.counts.items() if n} == counts[line]
        assert tally.oldest_at == oldest.get(line)


def check_story(events: list[Event], items: Iterable[Item]) -> None:
    """P14: the events of every job agree with its record."""
    cursors = [event.cursor for event in events]
    assert cursors == sorted(set(cursors))
    stories: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        story = stories.setdefault((event.tenant, event.job_id), [])
        if event.kind is EventKind.ENQUEUED:
            story.clear()  # An id may be used again when its record is gone.
        story.append(event)
    for item in items:
        story = stories[item.name]
        told = [event.kind for event in story]
        assert told[0] is EventKind.ENQUEUED
        assert told.count(EventKind.SIGNALED) == item.sent
        assert [event.note for event in story if event.kind is EventKind.READY].count(
            AWAITS_PARENTS
        ) == item.releases
        assert told.count(EventKind.LEASED) == item.fence
        ends = [kind for kind in told if kind in _ENDS]
        assert ends == ([EventKind(item.state.value)] if item.over else [])


def check_tallies(records: Iterable[JobRecord], kind: ScopeKind, tallies: Iterable[Tally]) -> None:
    """Counting the jobs of `find` gives the counts of tenants and groups."""
    counts: dict[tuple[str, str], Counter[State]] = {}
    for record in records:
        part = record.group if kind is ScopeKind.GROUP else ""
        if part is not None:
            counts.setdefault((record.tenant, part), Counter())[record.state] += 1
    told = {(each.tenant, each.queue): each.counts for each in tallies}
    assert list(told) == sorted(counts)
    for name, states in told.items():
        assert {state: n for state, n in states.items() if n} == counts[name]


def check_order(
    leases: list[Lease], ready: dict[Line, list[Item]], limit: int, after: Usage
) -> None:
    """P9, P13: a claim keeps the order of each line, skips no tenant, and takes all that limits
    allow.

    `after` is the use of limits after the claim. Within a claim the use only grows, so a job
    without room during the claim has none at its end.
    """
    assert len(leases) <= limit
    taken = {(each.job.tenant, each.job.id) for each in leases}
    assert taken <= {item.name for items in ready.values() for item in items}
    served = {each.job.tenant for each in leases}
    tenants = {tenant for tenant, _ in ready}
    for line, items in ready.items():
        got = [each.job.id for each in leases if (each.job.tenant, each.job.queue) == line]
        assert got == [item.new.id for item in items if item.name in taken]
        left = [item for item in items if item.name not in taken]
        if len(leases) < limit or (line[0] not in served and limit >= len(tenants)):
            assert all(after.blocked(item) for item in left)
        _check_rank(items, taken, after)
    for item in (item for items in ready.values() for item in items if item.name in taken):
        assert after.fits(item)


def _check_rank(items: list[Item], taken: set[tuple[str, str]], after: Usage) -> None:
    """P9: a claim skips only a job whose group or type is full, and takes no later job of these."""
    last = max((place for place, item in enumerate(items) if item.name in taken), default=-1)
    for place, item in enumerate(items[: last + 1]):
        if item.name not in taken:
            behind = [each for each in items[place:] if each.name in taken]
            by_group, by_type = after.blocked_by_group(item), after.blocked_by_type(item)
            assert by_group or by_type
            if not by_group:
                type = item.new.envelope.type
                assert not any(each.new.envelope.type == type for each in behind)
            elif not by_type:
                in_group = any(each.new.group == item.new.group for each in behind)
                assert after.ordered(item) or not in_group


def check_lease(lease: Lease, item: Item | None) -> None:
    """P11, P16: the attempt and the fence have grown by one; it brings the journal back."""
    assert item is not None
    assert (lease.job.attempt, lease.job.fence) == (item.attempt + 1, item.fence + 1)
    assert lease.job.state is State.PROCESSING
    assert lease.job.lease_until == lease.until
    assert lease.job.awaits is None
    item.notes.check(lease.journal, REMEMBERED)


def check_lapsed(one: Lapsed, item: Item | None, now: Micros) -> None:
    """P10: a held job is overdue by its lease, any other by its time to live."""
    assert item is not None
    if one.token is None:
        assert one.overdue_us == now - (item.expires_at or 0)
    else:
        assert (one.token, one.overdue_us) == (item.token, now - item.until)
