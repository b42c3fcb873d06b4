"""Ack: completions are one function of the server, all other transitions follow Python's rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from holdfast.core.errors import JobNotFound, JournalFull
from holdfast.core.job import TERMINAL, State
from holdfast.core.lifecycle import Transition, apply, refusal, why
from holdfast.store import Acked, Ref
from holdfast.stores.postgres import statements as sql
from holdfast.stores.postgres.joins import SERVER_MAX
from holdfast.stores.postgres.journal import Journals
from holdfast.stores.postgres.rows import Row, asked, column, seq_of
from holdfast.stores.postgres.step import Step


def is_completion(change: Transition) -> bool:
    """A plain success, which the server can apply by itself."""
    return (
        change.to is State.COMPLETED
        and not (change.lapsed or change.give_back or change.miss)
        and change.reason is None
        and change.error is None
        and not change.entries
    )


def completions(transitions: Sequence[Transition]) -> list[int]:
    """The places of completions whose jobs the call names once: their order does not matter."""
    if len({(change.tenant, change.id) for change in transitions}) == len(transitions):
        return [place for place, change in enumerate(transitions) if is_completion(change)]
    times = Counter((change.tenant, change.id) for change in transitions)
    return [
        place
        for place, change in enumerate(transitions)
        if is_completion(change) and times[change.tenant, change.id] == 1
    ]


async def complete_jobs(step: Step, changes: Sequence[Transition]) -> set[int]:
    """The places of the transitions that were applied; the others are for `apply_transitions`."""
    found = await step.row(
        sql.COMPLETE,
        [seq_of(change.token) for change in changes],
        [asked(change.token or "") for change in changes],
        [asked(change.tenant) for change in changes],
        [asked(change.id) for change in changes],
        column([change.result for change in changes]),
        step.given,
        step.events_on,
        step.channel,
        step.sender,
        SERVER_MAX,
    )
    assert found is not None
    places, tenants, queues, named, unnamed, ended_tenants, ended_ids, _ = found
    done = set(range(len(changes))) if places is None else {place - 1 for place in places}
    step.ended += [Ref(changes[place].tenant, changes[place].id) for place in done]
    step.ended += map(Ref, ended_tenants or (), ended_ids or ())
    step.came_up(zip(tenants or (), queues or (), strict=True))
    step.awaited.update(named or ())
    step.completed.update(unnamed or ())
    return done


async def apply_transitions(step: Step, transitions: Sequence[Transition]) -> list[Acked]:
    """Applies transitions by the rules of lifecycle.py, one after the other."""
    await step.begin()
    rows = await step.lock_jobs((change.tenant, change.id) for change in transitions)
    changed: dict[int, Row] = {}
    journals = Journals(step)
    await journals.read(
        (rows[change.tenant, change.id], change.entries, change.awaits)
        for change in transitions
        if (change.entries or change.awaits is not None) and (change.tenant, change.id) in rows
    )
    acked = [_apply(step, rows, journals, change, changed) for change in transitions]
    await journals.flush()
    await step.write(list(changed.values()))
    await step.flush()
    return acked


def _apply(
    step: Step,
    rows: dict[tuple[str, str], Row],
    journals: Journals,
    change: Transition,
    changed: dict[int, Row],
) -> Acked:
    now, row = step.now, rows.get((change.tenant, change.id))
    refused = None if row is None else refusal(row, change.token, now, change.lapsed)
    if row is None or refused is not None:
        return Acked(change.id, error=(refused or JobNotFound)(id=change.id))
    if change.entries and (full := journals.write(row, change.entries)) is not None:
        return Acked(change.id, error=JournalFull(id=change.id, why=full))
    come = change.awaits is not None and journals.has(row, change.awaits)
    settled = apply(row, change, now, come)
    changed[row.seq] = row
    if row.state in TERMINAL:
        row.finished_at = now
        if row.keep_until() <= now and row.edges is None:
            del rows[change.tenant, change.id]  # Gone: whoever comes next does not find it.
    until = settled.run_at if settled.run_at is not None and settled.run_at > now else None
    step.record(settled.kind, row, until, change.awaits or why(row))
    return Acked(change.id, row.state)
