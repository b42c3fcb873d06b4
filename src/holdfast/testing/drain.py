"""Runs an app's due jobs right here: no worker, no threads but those of plain handlers, no waiting.

What runs a job and what settles it are the worker's own: the Runner and the Acker.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

import msgspec

from holdfast.ack import Acker, Settlement
from holdfast.app import App
from holdfast.clock import micros
from holdfast.job import JobRecord, Lease, Outcome
from holdfast.store import Acked, Claim
from holdfast.worker.lease import Holding
from holdfast.worker.pool import Threads
from holdfast.worker.run import Runner

DRAIN_MAX = 10_000
"""Runs of one drain, unless told otherwise: a job that snoozes for ever must not hang a test."""
NAME = "drain"


class Drained(msgspec.Struct, frozen=True):
    """One run: the job as it was claimed, what its handler did, and what the store made of it."""

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

    None is every tenant, every queue. Jobs that are due later stay: move the clock, drain again.
    Opens the app if it is not open.
    """
    threads = Threads(1)
    async with app:
        runner, acker = Runner(app, threads), Acker(app.store, app.announcer)
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
    holding = Holding(lease, time.monotonic() + lease_s)
    outcome = await runner.run(holding)
    assert outcome is not None, "nobody can take a lease from a drain"
    answers: list[Acked] = []
    acker.settle(Settlement(lease, outcome, holding.end_s, answers.append))
    await runner.afterwards(holding)
    await acker.idle()
    return Drained(lease.job, outcome, answers[0])
