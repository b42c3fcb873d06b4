"""What each rule costs: the same jobs drained by a worker, with and without it."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable

import msgspec

from bench.stores import fresh
from holdfast import App, Context, Tenant
from holdfast.worker.worker import Worker

FILLER = "x" * 70
TENANTS = 100
GROUPS = 100
HUGE = 1_000_000
"""A limit that is kept and counted, and never reached."""


class Drained(msgspec.Struct, frozen=True):
    rule: str
    per_s: float


class Rule(msgspec.Struct, frozen=True):
    """What is set before the drain, and how the jobs are spread."""

    name: str
    prepare: Callable[[Tenant], Awaitable[object]] | None = None
    tenants: int = 1
    groups: int = 0
    url: Callable[[str], str | None] | None = None


async def _limit(tenant: Tenant) -> None:
    await tenant.scope().set(max_running=HUGE)
    await tenant.queue("default").set(max_running=HUGE)


async def _rate(tenant: Tenant) -> None:
    await tenant.scope().set(rate=f"{HUGE}/s")


async def _groups(tenant: Tenant) -> None:
    await tenant.queue("default").set(groups={"max_running": 10})


def _quiet(url: str) -> str | None:
    if not url.startswith("sqlite:"):
        return None
    return f"{url}{'&' if '?' in url else '?'}events=off"


RULES = (
    Rule("none"),
    Rule("running limits", _limit),
    Rule("rate", _rate),
    Rule(f"fairness over {TENANTS} tenants", tenants=TENANTS),
    Rule("limits and fairness", _limit, tenants=TENANTS),
    Rule(f"{GROUPS} groups", groups=GROUPS),
    Rule(f"{GROUPS} groups, 10 running each", _groups, groups=GROUPS),
    Rule("events off", url=_quiet),
)


async def rules_cost(url: str, jobs: int, rounds: int) -> list[Drained]:
    """The best of some rounds each; rounds go over all rules, so that a slow minute hits all."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for rule in RULES:
            place = url if rule.url is None else rule.url(url)
            if place is not None:
                gc.collect()
                per_s = await _drain(fresh(place, "rules"), rule, jobs)
                best[rule.name] = max(best.get(rule.name, 0.0), per_s)
    return [Drained(name, per_s) for name, per_s in best.items()]


async def _drain(url: str, rule: Rule, jobs: int) -> float:
    app = App(url, concurrency=100, keep_s=0)
    ran, done = 0, asyncio.Event()

    @app.job(name="noop")
    async def noop(ctx: Context, number: int, filler: str) -> None:
        nonlocal ran
        ran += 1
        if ran == jobs:
            done.set()

    async with app:
        for index in range(rule.tenants):
            tenant = app.tenant(f"t{index}")
            if rule.prepare is not None:
                await rule.prepare(tenant)
            numbers = range(index, jobs, rule.tenants)
            if rule.groups:
                await tenant.enqueue_many(
                    noop(number=number, filler=FILLER).with_options(group=f"g{number % GROUPS}")
                    for number in numbers
                )
            else:
                await tenant.enqueue_many(noop(number=one, filler=FILLER) for one in numbers)
        worker = Worker(app)
        started = time.perf_counter()
        working = asyncio.create_task(worker.run())
        await done.wait()
        took = time.perf_counter() - started
        worker.stop()
        await working
    return jobs / took
