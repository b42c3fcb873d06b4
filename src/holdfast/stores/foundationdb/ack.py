"""Ack: applies transitions to held jobs, and the ways in which a job waits again or ends."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors import JobNotFound
from holdfast.core.job import TERMINAL
from holdfast.core.lifecycle import Transition, apply, refusal, why
from holdfast.store import Acked, Ref
from holdfast.stores.foundationdb import limits_groups
from holdfast.stores.foundationdb.idempotency import ask_keys, release_key
from holdfast.stores.foundationdb.rows import Row, plain
from holdfast.stores.foundationdb.step import Step


def ask_jobs(step: Step, jobs: Sequence[Transition | Ref]) -> None:
    """Requests what `load_jobs` reads."""
    step.settings.ask(each.tenant for each in jobs)
    step.ask_rows((each.tenant, each.id) for each in jobs)


async def load_jobs(step: Step, jobs: Sequence[Transition | Ref]) -> None:
    """Reads the jobs that an ack or a cancel names, and requests the keys that they hold."""
    await step.settings.load(each.tenant for each in jobs)
    ask_keys(step, await step.rows([(each.tenant, each.id) for each in jobs]))


async def ack_jobs(step: Step, transitions: Sequence[Transition]) -> list[Acked]:
    await load_jobs(step, transitions)
    acked = [await _ack(step, each) for each in transitions]
    await limits_groups.reopen_freed(step)
    return acked


async def _ack(step: Step, change: Transition) -> Acked:
    row = await step.row(change.tenant, change.id)
    if row is None:
        return Acked(change.id, error=JobNotFound(id=change.id))
    refused = refusal(row, change.token, row.judged(step.at), change.lapsed)
    if refused is not None:
        return Acked(change.id, error=refused(id=change.id))
    settled = apply(row, change, step.now)
    row.error = plain(row.error)
    row.updated_at = step.now
    if row.state in TERMINAL:
        await finish(step, row)
    else:
        requeue(step, row)
    until = settled.run_at if settled.run_at is not None and settled.run_at > step.now else None
    step.note(settled.kind, row, until, why(row))
    return Acked(change.id, row.state)


def requeue(step: Step, row: Row) -> None:
    """Writes a job that waits again."""
    row.late = row.expires_at is not None and row.expires_at <= step.now and row.late
    limits_groups.hold_back(step, row)
    step.save(row)
    _wake_line(step, row)


async def finish(step: Step, row: Row) -> None:
    """Ends a job: its key is free, its record stays for its keeping, or goes at once."""
    row.finished_at = step.now
    row.gate, row.granted, row.late, row.aside = 0, False, False, False
    await release_key(step, row)
    step.ended.append(Ref(row.tenant, row.id))
    if row.keep_until() <= step.now:
        step.remove(row)
    else:
        step.save(row)
    _wake_line(step, row)


async def remove(step: Step, row: Row) -> None:
    """Deletes a job, and frees its key."""
    step.remove(row)
    await release_key(step, row)
    _wake_line(step, row)


def _wake_line(step: Step, row: Row) -> None:
    """Wakes sleepers of the job's line: a limit of the tenant may have room now."""
    if step.settings.has_any(row.tenant):
        step.lines.add((row.tenant, row.queue))
