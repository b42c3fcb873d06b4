"""Limits of the platform under real concurrency: claimers that die, and live changes of limits,
rates, pauses and tiers, over twenty tenants. The event log is the judge.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable

import pytest
from tests.stores.test_limit_races import SHORT, THREADS, Make

from holdfast.core import tiers
from holdfast.core.bounds import EXPIRED_MAX, PAGE_MAX
from holdfast.core.errors import StaleSetting
from holdfast.core.job import TERMINAL, Completed, EventKind, Lease, State
from holdfast.core.lifecycle import decide, lapse
from holdfast.core.rate import rate
from holdfast.core.scope import PLATFORM, Pause, ScopeKind, ScopeSettings, encode
from holdfast.dispatch import name_of
from holdfast.operate import audit
from holdfast.store import Claim, Put, Store, Watch
from holdfast.testing.contract.builders import AUDIO, LEASE, MAIL, job, over_all, rules, type_of
from holdfast.testing.contract.racing import in_threads

TENANTS = [f"t{number:02}" for number in range(20)]
EACH = 20
CLAIMERS = 3
"""In each thread."""
CHANGES = 60
SCOPES = (PLATFORM, over_all(MAIL), type_of())
COPIES = 10_000_000
"""Longer than a change of a tier takes on a busy machine."""
ROOMY = ScopeSettings(max_running=1000, rate=rate("100000/s"))
"""Counts and holds nothing back, so that a leaked place would show in the count."""


async def put(store: Store, name: str, value: bytes) -> None:
    """Sets it, however many others do the same."""
    while True:
        found = [each for each in await store.settings(under=name) if each.name == name]
        try:
            await store.settings([Put(name, value, found[0].version if found else 0)])
            return
        except StaleSetting:
            continue


async def fill(store: Store) -> None:
    patient = rules(max_attempts=1000)
    made = [
        job(f"j{n}", tenant=tenant, queue=(MAIL, AUDIO)[n % 2], type=f"t{n % 3}", rules=patient)
        for n in range(EACH)
        for tenant in TENANTS
    ]
    assert all(answer.created for answer in await store.enqueue(made))


async def alive(store: Store) -> int:
    found = await store.count(None, by=ScopeKind.TENANT)
    return sum(
        number for tally in found for state, number in tally.counts.items() if state not in TERMINAL
    )


async def work(store: Store, name: str) -> list[Lease]:
    """Claims and completes until all is done; now and then it dies with what it holds."""
    chance = random.Random(name)
    taken: list[Lease] = []
    idle = 0
    while idle % 5 or await alive(store):
        dies = chance.random() < 0.1
        claim = Claim(
            worker=name,
            nonce=uuid.uuid4().hex,
            limit=chance.randint(1, 6),
            lease_us=SHORT if dies else LEASE,
        )
        leases = await store.claim(claim)
        taken += leases
        idle += 1
        if not leases:
            await store.wait(Watch(), 0.01)
            lapsed = await store.expired(EXPIRED_MAX)
            await store.ack([lapse(one.job, one.token) for one in lapsed])
        elif not dies:
            await asyncio.sleep(0)
            await store.ack([decide(Completed(), one.job, one.token, 0.0) for one in leases])
    return taken


async def unrest(store: Store) -> list[Lease]:
    """Sixty changes of what the platform set; in the end nothing is held back."""
    chance = random.Random(18)
    for _ in range(CHANGES):
        settings = ScopeSettings(
            max_running=chance.choice([1, 2, 3, 5, 8]),
            rate=chance.choice([None, rate("100/s"), rate("400/s", 5)]),
            paused=chance.choice([None, None, None, Pause("because", "ann")]),
        )
        await put(store, chance.choice(SCOPES).name, encode(settings))
        if store.capabilities.tiers:
            defaults = tiers.Defaults(
                max_running=chance.randint(1, 4),
                weight=chance.randint(1, 3),
                rate=chance.choice([None, rate("50/s"), rate("300/s", 2)]),
                queue=tiers.LimitRules(max_running=chance.randint(1, 3), rate=rate("200/s")),
            )
            await put(store, tiers.name_of(""), tiers.encode(defaults))
        await store.wait(Watch(news=True), 0.005)
    for scope in SCOPES:
        await put(store, scope.name, encode(ROOMY))
    return []


async def leaked(store: Store) -> list[str]:
    """Places that are counted although nothing runs, and counts that a recount corrected."""
    whose: list[tuple[str | None, ScopeKind]] = [("", scope.kind) for scope in SCOPES]
    whose += [(None, ScopeKind.QUEUE), (None, ScopeKind.TENANT)]
    return [
        f"{kind.value} {tally.tenant} {tally.queue}"
        for tenant, kind in whose
        for tally in await store.count(tenant, by=kind, limit=PAGE_MAX, recount=True)
        if tally.counts.get(State.PROCESSING, 0) or tally.correction
    ]


async def test_no_limit_of_the_platform_is_exceeded_and_no_place_leaks(make: Make) -> None:
    """P13: 12 claimers of 20 tenants, some dying, while limits, rates, pauses and defaults
    change.
    """
    store = make("platform", None)
    await store.open()
    try:
        if not store.capabilities.platform or not store.capabilities.event_log:
            pytest.skip(f"{name_of(store)} keeps no limits of the platform, or no event log")
        for scope in SCOPES:
            await put(store, scope.name, encode(ScopeSettings(max_running=5)))
        await fill(store)

        async def workers(thread: int) -> list[Lease]:
            names = [f"w{thread}-{number}" for number in range(CLAIMERS)]
            taken = await asyncio.gather(*(work(store, name) for name in names))
            return [lease for leases in taken for lease in leases]

        works: list[Callable[[], Awaitable[list[Lease]]]] = [lambda: unrest(store)]
        works += [lambda n=n: workers(n) for n in range(THREADS)]  # type: ignore[misc]
        taken = await asyncio.to_thread(in_threads, works)

        leases = [lease for part in taken for lease in part]
        assert len({lease.token for lease in leases}) == len(leases)
        # The shards of a cluster hear of a changed tier one after the other.
        found = await audit(store, copies_us=COPIES if store.capabilities.cluster else 0)
        assert found.breaches == []
        assert len(found.ended(EventKind.COMPLETED)) == len(TENANTS) * EACH
        assert found.counts[EventKind.RESCUED] > 0
        assert await leaked(store) == []
    finally:
        await store.close()
