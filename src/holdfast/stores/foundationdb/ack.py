"""Ack: applies transitions to held jobs."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors import JobNotFound, JournalFull
from holdfast.core.job import TERMINAL
from holdfast.core.lifecycle import Transition, apply, refusal, why
from holdfast.store import Acked, Ref
from holdfast.stores.foundationdb import limits_groups
from holdfast.stores.foundationdb.idempotency import ask_keys
from holdfast.stores.foundationdb.joins import release
from holdfast.stores.foundationdb.journal import ask_entries, awaited_key, has, write
from holdfast.stores.foundationdb.rows import plain
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.foundationdb.step_ends import finish, requeue


def ask_jobs(step: Step, jobs: Sequence[Transition | Ref]) -> None:
    """Requests what `load_jobs` reads."""
    step.settings.ask(each.tenant for each in jobs)
    step.ask_rows((each.tenant, each.id) for each in jobs)


def ask_acks(step: Step, transitions: Sequence[Transition]) -> None:
    """Requests what `ack_jobs` reads."""
    ask_jobs(step, transitions)
    for each in transitions:
        name = each.tenant, each.id
        ask_entries(step, name, each.entries)
        if each.awaits is not None:
            step.ask([awaited_key(step, name, each.awaits)])


async def load_jobs(step: Step, jobs: Sequence[Transition | Ref]) -> None:
    """Reads the jobs that an ack or a cancel names, and requests the keys that they hold."""
    await step.settings.load(each.tenant for each in jobs)
    ask_keys(step, await step.rows([(each.tenant, each.id) for each in jobs]))


async def ack_jobs(step: Step, transitions: Sequence[Transition]) -> list[Acked]:
    await load_jobs(step, transitions)
    acked = [await _ack(step, each) for each in transitions]
    await release(step)
    await limits_groups.reopen_freed(step)
    return acked


async def _ack(step: Step, change: Transition) -> Acked:
    row = await step.row(change.tenant, change.id)
    if row is None:
        return Acked(change.id, error=JobNotFound(id=change.id))
    refused = refusal(row, change.token, row.judged(step.at), change.lapsed)
    if refused is not None:
        return Acked(change.id, error=refused(id=change.id))
    if change.entries and (full := await write(step, row, change.entries)) is not None:
        return Acked(change.id, error=JournalFull(id=change.id, why=full))
    come = change.awaits is not None and await has(step, row, change.awaits)
    settled = apply(row, change, step.now, come)
    row.error = plain(row.error)
    row.updated_at = step.now
    if row.state in TERMINAL:
        await finish(step, row)
    else:
        requeue(step, row)
    until = settled.run_at if settled.run_at is not None and settled.run_at > step.now else None
    step.note(settled.kind, row, until, change.awaits or why(row))
    return Acked(change.id, row.state)
