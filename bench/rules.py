"""What each rule costs: the same jobs drained by a worker, with and without it."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from statistics import median

import msgspec

from bench.stores import fresh
from holdfast import App, Context, Tenant
from holdfast.typed import Job, Planned
from holdfast.worker.worker import Worker

FILLER = "x" * 70
TENANTS = 100
GROUPS = 100
ENQUEUED_TOGETHER = 1000
HUGE = 1_000_000
"""A limit that is kept and counted, and never reached."""


class Drained(msgspec.Struct, frozen=True):
    rule: str
    per_s: float
    lost: float
    """Of the throughput without it."""


class Rule(msgspec.Struct, frozen=True):
    """What is set before the drain, and how the jobs are spread."""

    name: str
    prepare: Callable[[Tenant], Awaitable[object]] | None = None
    tenants: int = 1
    groups: int = 0
    keyed: bool = False
    keep_s: float = 0.0
    url: Callable[[str], str | None] | None = None


async def _limit(tenant: Tenant) -> None:
    await tenant.scope().set(max_running=HUGE)
    await tenant.queue("default").set(max_running=HUGE)


async def _rate(tenant: Tenant) -> None:
    await tenant.scope().set(rate=f"{HUGE}/s")


async def _groups(tenant: Tenant) -> None:
    await tenant.queue("default").set(groups={"max_running": 10})


def _quiet(url: str) -> str | None:
    if url.startswith("memory:"):
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
    Rule("a key for each job", keyed=True),
    Rule("retention of an hour", keep_s=3600.0),
    Rule("events off", url=_quiet),
)


async def rules_cost(
    url: str, jobs: int, rounds: int, clear: Callable[[], None] = lambda: None
) -> list[Drained]:
    """Medians over some rounds. Each drain with a rule has a plain one right beside it, before it
    in one round and after it in the next: machines have slow seconds. `clear` runs after each pair.
    """
    drained: list[Drained] = []
    for rule in RULES:
        place = url if rule.url is None else rule.url(url)
        if place is None:
            continue
        rates: list[float] = []
        ratios: list[float] = []
        for each in range(rounds):
            pair = ((url, RULES[0]), (place, rule))
            per_s = [0.0, 0.0]
            for which in (0, 1) if each % 2 else (1, 0):
                gc.collect()
                its_url, its_rule = pair[which]
                per_s[which] = await _drain(fresh(its_url, "rules"), its_rule, jobs)
            rates.append(per_s[1])
            ratios.append(per_s[1] / per_s[0])
            clear()
        drained.append(Drained(rule.name, median(rates), 1 - median(ratios)))
    return drained


async def _drain(url: str, rule: Rule, jobs: int) -> float:
    app = App(url, concurrency=100, keep_s=rule.keep_s)
    ran, done = 0, asyncio.Event()

    @app.job(name="noop")
    async def noop(ctx: Context, number: int, filler: str) -> None:
        nonlocal ran
        ran += 1
        if ran == jobs:
            done.set()

    async with app:
        tenants = [app.tenant(f"t{index}") for index in range(rule.tenants)]
        for tenant in tenants:
            if rule.prepare is not None:
                await rule.prepare(tenant)

        def made(number: int) -> Job | Planned:
            plain = noop(number=number, filler=FILLER)
            if rule.keyed:
                return plain.with_options(key=f"k{number}")
            return plain.with_options(group=f"g{number % GROUPS}") if rule.groups else plain

        # In turn, as customers send: the jobs of each stand between those of the others.
        batch = max(1, ENQUEUED_TOGETHER // rule.tenants)
        for start in range(0, jobs, batch):
            tenant = tenants[start // batch % rule.tenants]
            await tenant.enqueue_many(
                made(number) for number in range(start, min(start + batch, jobs))
            )
        worker = Worker(app)
        started = time.perf_counter()
        working = asyncio.create_task(worker.run())
        await done.wait()
        took = time.perf_counter() - started
        worker.stop()
        await working
    return jobs / took
