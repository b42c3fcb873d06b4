"""`holdfast serve --demo`: a worker, two tenants that keep it busy, and commands to try."""

from __future__ import annotations

import asyncio
import random

from holdfast.app import App
from holdfast.cli.demo_jobs import call_partner, greet, resize_photo, send_mail
from holdfast.core.amend import Limits
from holdfast.core.errors import QueueFull, StoreError
from holdfast.loop import sleep_unless

TENANTS = ("demo", "acme")
PRO = "acme"
"""The tenant that is in a tier."""
GAP_S = 1.0
"""Seconds between two rounds of jobs."""
KEEP_S = 3600.0
WAITING_MAX = 200
"""Maximum waiting jobs per tenant, so that a forgotten demo does not fill the disk."""


async def keep_busy(app: App, stop: asyncio.Event) -> None:
    """Enqueues a few jobs for each tenant, round after round, until stopped."""
    number = 0
    while not stop.is_set():
        number += 1
        for name in TENANTS:
            tenant = app.tenant(name)
            jobs = [
                send_mail(to=f"user{number}@example.com"),
                resize_photo(photo=number),
                *([call_partner(order=number)] if random.random() < 0.3 else []),
                *([greet(name="nobody")] if random.random() < 0.05 else []),
            ]
            try:
                if number == 1:
                    await _limit(app, name)
                await tenant.enqueue_many(jobs, keep=KEEP_S)
            except (QueueFull, StoreError):
                continue  # The next round tries again.
        await sleep_unless(stop, GAP_S)


async def _limit(app: App, name: str) -> None:
    """Bounds what a tenant has waiting, and sets what the dashboard shows of limits."""
    limits: Limits = {"max_queued": WAITING_MAX}
    if app.store.capabilities.tiers and name == PRO:
        await app.platform().tier("pro").set(max_running=5, weight=3)
        limits["tier"] = "pro"
    if app.store.capabilities.platform:
        await app.platform().queue("media").set(max_running=4, rate="20/s")
    await app.tenant(name).scope().set(**limits)


def hello(url: str) -> str:
    """Commands that work when pasted into a shell."""
    call = r"curl -sS -w '\n' -H 'Holdfast-Tenant: demo'"
    greet = '{"type":"greet","payload":{"name":"Ada"},"queue":"mail","id":"hello"}'
    yours = '{"type":"by-hand","queue":"yours","payload":[1,2]}'
    claim = '{"queues":["yours"],"wait":10}'
    return f"""
Holdfast serves on {url} with a demo worker; two tenants keep it busy. Press Ctrl-C to stop.

  dashboard            {url}/
  API documentation    {url}/docs

Try these in another shell:

  {call} --json '{greet}' {url}/v1/jobs
  {call} '{url}/v1/jobs/hello/result?wait=10'
  {call} {url}/v1/jobs/hello
  {call} {url}/v1/queues
  {call} --json '{yours}' {url}/v1/jobs
  {call} --json '{claim}' {url}/v1/claim
  {call} -N --max-time 5 {url}/v1/events/stream
"""
