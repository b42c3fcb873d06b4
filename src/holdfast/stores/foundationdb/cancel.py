"""Cancel: ends jobs whatever they are doing, unless they have ended (P5)."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors import JobNotFound
from holdfast.core.job import TERMINAL, EventKind, State
from holdfast.store import Canceled, Ref
from holdfast.stores.foundationdb import limits_groups
from holdfast.stores.foundationdb.ack import load_jobs
from holdfast.stores.foundationdb.joins import release
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.foundationdb.step_ends import finish


async def cancel_jobs(step: Step, refs: Sequence[Ref]) -> list[Canceled]:
    await load_jobs(step, refs)
    canceled = [await _cancel(step, ref) for ref in refs]
    await release(step)
    await limits_groups.reopen_freed(step)
    return canceled


async def _cancel(step: Step, ref: Ref) -> Canceled:
    row = await step.row(ref.tenant, ref.id)
    if row is None:
        return Canceled(ref.id, False, JobNotFound(id=ref.id))
    if row.state not in TERMINAL:
        row.state = State.CANCELED
        row.token = row.reason = None  # A reason is for the dead letters only.
        row.updated_at = step.now
        await finish(step, row)
        step.note(EventKind.CANCELED, row)
    return Canceled(ref.id, row.state is State.CANCELED)
