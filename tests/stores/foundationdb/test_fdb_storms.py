"""Limits, groups and order while the cluster fails and recovers, by seed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from tests.foundationdb_engine import Engine, Faults

from holdfast.core.job import Completed, Event, EventKind, Failed, Outcome, Released, State
from holdfast.core.lifecycle import decide
from holdfast.core.scope import PLATFORM, TENANT_KINDS, Scope, ScopeSettings, encode
from holdfast.core.tiers import Defaults, LimitRules, name_of
from holdfast.core.tiers import encode as encode_tier
from holdfast.operate import audit
from holdfast.store import Claim, Put
from holdfast.stores.foundationdb.options import Options
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing.contract.builders import (
    ACME,
    AUDIO,
    GLOBEX,
    LEASE,
    MAIL,
    group_of,
    job,
    over_all,
    queue_of,
    rules,
    tenant_of,
    type_of,
)

STORES = 3
CALLS = 2
BATCH = 4
LINE = 4
"""Jobs of the ordered group, which come one after the other."""
JOBS = STORES * CALLS * BATCH + LINE
IDLE_MAX = 3_000
PAUSE_S = 0.01
"""How long an idle worker waits for others at most."""
RECOVERIES = 2
LIMITED, ORDERED = "limited", "ordered"
SETTINGS = {
    tenant_of(): ScopeSettings(max_running=5),
    queue_of(): ScopeSettings(max_running=3),
    group_of(LIMITED): ScopeSettings(max_running=2),
    group_of(ORDERED): ScopeSettings(ordered=True),
}
OVER_ALL = {
    PLATFORM: ScopeSettings(max_running=6),
    over_all(MAIL): ScopeSettings(max_running=3),
    type_of("send"): ScopeSettings(max_running=2),
}
IN_TIERS = {
    tenant_of(): ScopeSettings(tier="pro"),
    tenant_of(GLOBEX): ScopeSettings(tier="pro"),
    group_of(ORDERED): ScopeSettings(ordered=True),
}
TURNS_OF_TIERS = 12
ENDS: list[Outcome] = [*[Completed()] * 4, Released(), Failed("boom", after_us=0)]
SEEDS = [
    *range(100),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(100, 3_000)),
]
PLATFORM_SEEDS = [
    *range(40),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(40, 1_000)),
]
TIER_SEEDS = [
    *range(20),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(20, 500)),
]
PATIENT = rules(max_attempts=1_000)


def _storm(seed: int) -> Faults:
    draw = random.Random(seed)
    return Faults(
        seed,
        conflict=draw.choice((0.0, 0.05)),
        unknown=draw.choice((0.05, 0.15)),
        too_old=0.02,
        future=0.01,
        timeout=draw.choice((0.0, 0.03)),
        delay=draw.choice((0.0, 0.3, 0.8)),
    )


def _group_of(tenant: str, id: str) -> str | None:
    """The group of a job stands in its id."""
    return id.split(".")[1] or None


async def _produce(store: FoundationStore, number: int) -> None:
    for call in range(CALLS):
        names = [(MAIL, LIMITED), (AUDIO, LIMITED), (MAIL, ""), (AUDIO, "")]
        tenant, type = (ACME, GLOBEX)[number % 2], ("send", "read")[call % 2]
        options: dict[str, Any] = {"tenant": tenant, "type": type, "rules": PATIENT}
        jobs = [
            job(f"{queue}.{group}.{number}-{call}", queue=queue, group=group or None, **options)
            for queue, group in names
        ]
        assert all(one.created for one in await store.enqueue(jobs))


async def _line_up(store: FoundationStore) -> None:
    for place in range(LINE):
        await store.enqueue([job(f"{MAIL}.{ORDERED}.{place}", group=ORDERED, rules=PATIENT)])


class _Crew:
    """The workers of a run, and the cluster under them."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine = engine
        self.done: Counter[str] = Counter()
        self._news = asyncio.Event()
        draw = random.Random(seed)
        self._recover_at = sorted(draw.sample(range(JOBS // 2), RECOVERIES))

    def _unrest(self) -> None:
        """The cluster recovers once so many jobs are done."""
        if self._recover_at and self.done.total() >= self._recover_at[0]:
            self._recover_at.pop(0)
            self.engine.recover()

    async def work(self, store: FoundationStore, chance: random.Random) -> None:
        idle = 0
        while self.done.total() < JOBS and idle < IDLE_MAX:
            self._unrest()
            nonce = f"{chance.getrandbits(128):032x}"
            claim = Claim(worker="w", nonce=nonce, limit=chance.randint(1, 4), lease_us=LEASE)
            leases = await store.claim(claim)
            idle = 0 if leases else idle + 1
            if not leases:
                await self._rest()
            for _ in range(chance.randint(0, 5)):
                await asyncio.sleep(0)
            ends = [chance.choice(ENDS) for _ in leases]
            pairs = zip(ends, leases, strict=True)
            answers = await store.ack([decide(end, one.job, one.token, 0.0) for end, one in pairs])
            for answer, end in zip(answers, ends, strict=True):
                assert answer.error is None
                self.done[answer.id] += isinstance(end, Completed)
            self._news.set()

    async def _rest(self) -> None:
        """Until another has given places back; what comes in by itself is found a little later."""
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(PAUSE_S):
                await self._news.wait()


async def _change_tiers(store: FoundationStore, chance: random.Random) -> None:
    """Raises and lowers the limits of a tier and of the defaults."""
    versions = {"pro": 1, "": 0}
    for _ in range(TURNS_OF_TIERS):
        tier = chance.choice(("pro", ""))
        most = [chance.choice((None, 1, 2, 5)) for _ in range(3)]
        values = Defaults(
            max_running=most[0],
            queue=LimitRules(max_running=most[1]),
            group=LimitRules(max_running=most[2]),
        )
        put = Put(name_of(tier), encode_tier(values), versions[tier])
        versions[tier] = (await store.settings([put]))[0].version
        for _ in range(chance.randint(0, 200)):
            await asyncio.sleep(0)


def _check_order(events: list[Event]) -> None:
    """A job of the ordered group starts when all before it are completed."""
    finished = 0
    for event in events:
        if event.kind is EventKind.LEASED:
            assert event.job_id.endswith(f".{finished}")
        finished += event.kind is EventKind.COMPLETED
    assert finished == LINE


async def _weather(seed: int, settings: dict[Scope, ScopeSettings], *, tiers: bool = False) -> None:
    """Runs all jobs through a storm under these settings, and checks what the events tell."""
    engine = Engine(faults=_storm(seed))
    stores = [
        FoundationStore(Options(prefix="c", retry_s=600), None, engine.database())
        for _ in range(STORES)
    ]
    for store in stores:
        await store.open()
    if tiers:
        await stores[0].settings([Put(name_of("pro"), encode_tier(Defaults(max_running=2)), 0)])
    await stores[0].settings([Put(scope.name, encode(rule), 0) for scope, rule in settings.items()])
    crew = _Crew(engine, seed)
    changes = [_change_tiers(stores[1], random.Random(seed))] if tiers else []

    await asyncio.gather(
        *changes,
        _line_up(stores[0]),
        *(_produce(store, number) for number, store in enumerate(stores)),
        *(crew.work(store, random.Random(seed * 10 + n)) for n, store in enumerate(stores)),
    )

    engine.faults.heal()
    assert (len(crew.done), set(crew.done.values())) == (JOBS, {1})
    assert engine.counts.recoveries == RECOVERIES
    found = await audit(stores[0], _group_of)
    assert (found.breaches, found.unended) == ([], set())
    page = await stores[0].events(ACME, 0, 1000)
    _check_order([event for event in page.events if f".{ORDERED}." in event.job_id])
    over_all_kinds = [("", scope.kind) for scope in OVER_ALL]
    for tenant, kind in [*((None, kind) for kind in TENANT_KINDS), *over_all_kinds]:
        for recount in (False, True):
            for tally in await stores[0].count(tenant, by=kind, recount=recount):
                assert (tally.correction, tally.counts.get(State.PROCESSING, 0)) == (0, 0)
    for store in stores:
        await store.close()


@pytest.mark.parametrize("seed", SEEDS)
async def test_limits_and_order_hold_through_faults_and_recoveries(seed: int) -> None:
    """Nothing is lost, none accepted twice; no limit is exceeded, no place leaks, order is kept."""
    await _weather(seed, SETTINGS)


@pytest.mark.parametrize("seed", PLATFORM_SEEDS)
async def test_limits_of_the_platform_hold_through_faults_and_recoveries(seed: int) -> None:
    """P13: those over all tenants, with those of a tenant; what waits aside is found again."""
    await _weather(seed, SETTINGS | OVER_ALL)


@pytest.mark.parametrize("seed", TIER_SEEDS)
async def test_limits_of_tiers_hold_while_they_change_through_faults(seed: int) -> None:
    """P13: what a raised tier opened is found, also if who looked did not hear of its commit."""
    await _weather(seed, IN_TIERS, tiers=True)
