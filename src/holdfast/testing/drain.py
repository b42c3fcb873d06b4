"""Runs the due jobs of an app in the current task: no worker, no waiting, threads only for plain
handlers.

It uses the Runner and the Acker of the worker.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

import msgspec

from holdfast.ack import Acker, PendingAck
from holdfast.app import App
from holdfast.core.clock import micros
from holdfast.core.job import JobRecord, Lease, Outcome
from holdfast.lifespan import opened
from holdfast.store import Acked, Claim
from holdfast.worker.closing import closing_entries
from holdfast.worker.lease import ActiveJob
from holdfast.worker.pool import Threads
from holdfast.worker.run import Runner

DRAIN_MAX = 10_000
"""Default maximum of runs, so that a job that snoozes for ever does not hang a test."""
NAME = "drain"


class Drained(msgspec.Struct, frozen=True):
    """One run: the job as claimed, the outcome of its handler, and the answer of the store."""

    job: JobRecord
    outcome: Outcome
    answer: Acked


async def drain(
    app: App,
    *,
    tenants: Sequence[str] | None = None,
    queues: Sequence[str] | None = None,
    max_jobs: int = DRAIN_MAX,
) -> list[Drained]:
    """Runs every job that can be claimed now, one after another, until none is left.

    None means every tenant or every queue. Jobs that are due later are not run: move the clock and
    drain again. It opens the app if it is not open, and the app's lifespan.
    """
    threads = Threads(1)
    async with app, opened(app.lifespan, app) as state:
        await app.register_schedules()
        await app.register_sources()
        runner = Runner(app, threads, state=state)
        acker = Acker(app.store, app.announcer)
        done: list[Drained] = []
        try:
            while len(done) < max_jobs and (lease := await _next(app, tenants, queues)):
                done.append(await _one(runner, acker, lease, app.config.lease_s))
        finally:
            threads.close()
    return done


async def _next(
    app: App, tenants: Sequence[str] | None, queues: Sequence[str] | None
) -> Lease | None:
    claim = Claim(
        worker=NAME,
        nonce=secrets.token_hex(16),
        limit=1,
        lease_us=micros(app.config.lease_s),
        tenants=None if tenants is None else tuple(tenants),
        queues=None if queues is None else tuple(queues),
    )
    leases = await app.store.claim(claim)
    return leases[0] if leases else None


async def _one(runner: Runner, acker: Acker, lease: Lease, lease_s: float) -> Drained:
    active = ActiveJob(lease, time.monotonic() + lease_s)
    outcome = await runner.run(active)
    assert outcome is not None, "a drain cannot lose a lease"
    answers: list[Acked] = []
    entries = closing_entries(active, outcome)
    pending = PendingAck(lease, outcome, active.end_s, answers.append, entries)
    if active.answer is not None:
        acker.answered(pending, active.answer)
    else:
        acker.submit(pending)
    await runner.afterwards(active)
    await acker.idle()
    return Drained(lease.job, outcome, answers[0])
