"""Limits under real concurrency: claimers that die, cancels and live changes, judged by the log."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from holdfast.core.bounds import EXPIRED_MAX, PAGE_MAX
from holdfast.core.clock import SECOND, Clock
from holdfast.core.errors import StaleSetting
from holdfast.core.job import (
    TERMINAL,
    Completed,
    Event,
    EventKind,
    Failed,
    Lease,
    Outcome,
    Released,
    State,
)
from holdfast.core.lifecycle import Transition, decide, lapse
from holdfast.core.scope import (
    TENANT_KINDS,
    Scope,
    ScopeKind,
    ScopeSettings,
    decode,
    encode,
    scope_of,
)
from holdfast.dispatch import name_of
from holdfast.store import Claim, Put, Ref, Store, Watch
from holdfast.testing.contract.builders import (
    ACME,
    AUDIO,
    CRAWL,
    LEASE,
    MAIL,
    group_of,
    job,
    queue_of,
    rules,
    tenant_of,
)
from holdfast.testing.contract.racing import in_threads

Make = Callable[[str, Clock | None], Store]

JOBS = 600
THREADS = 4
CLAIMERS = 4
"""In each thread."""
CHANGES = 60
SHORT = SECOND // 50
"""The lease of a worker that dies."""
LIMITS = {group_of(): 3, queue_of(): 5, tenant_of(): 7}

_STARTS = EventKind.LEASED
_STOPS = frozenset(
    {
        EventKind.COMPLETED,
        EventKind.FAILED,
        EventKind.RETRYING,
        EventKind.RELEASED,
        EventKind.RESCUED,
        EventKind.CANCELED,
        EventKind.DELETED,
    }
)


def queue_and_group(n: int) -> tuple[str, str | None]:
    """Most are of the group, over both queues."""
    return (MAIL, AUDIO)[n % 2], (CRAWL, CRAWL, None)[n % 3]


def scopes_of(id: str) -> list[Scope]:
    queue, group = queue_and_group(int(id[1:]))
    found = [tenant_of(), queue_of(queue)]
    return found if group is None else [*found, group_of(group)]


async def fill(store: Store) -> None:
    jobs = []
    for n in range(JOBS):
        queue, group = queue_and_group(n)
        patient = rules(max_attempts=1000)
        jobs.append(job(f"j{n}", queue=queue, group=group, rules=patient, priority=n % 3))
    answers = await store.enqueue(jobs)
    assert all(answer.created for answer in answers)


async def limit(store: Store, scope: Scope, most: int | None) -> None:
    """Sets it, however many others do the same."""
    value = None if most is None else encode(ScopeSettings(max_running=most))
    while True:
        found = [each for each in await store.settings(under=scope.name) if each.name == scope.name]
        if not found and value is None:
            return
        try:
            await store.settings([Put(scope.name, value, found[0].version if found else 0)])
            return
        except StaleSetting:
            continue


async def alive(store: Store) -> int:
    [tally] = await store.count(ACME, by=ScopeKind.TENANT)
    return sum(number for state, number in tally.counts.items() if state not in TERMINAL)


async def worker(store: Store, name: str) -> list[Lease]:
    """Claims and settles until all is done; now and then it dies with what it holds."""
    chance = random.Random(name)
    outcomes: list[Outcome] = [Completed()] * 8
    outcomes += [Failed("boom", after_us=0), Released(), Failed("no", retryable=False)]
    taken: list[Lease] = []
    while await alive(store):
        dies = chance.random() < 0.1
        claim = Claim(
            worker=name,
            nonce=uuid.uuid4().hex,
            limit=chance.randint(1, 4),
            lease_us=SHORT if dies else LEASE,
        )
        leases = await store.claim(claim)
        taken += leases
        if not leases:
            await store.wait(Watch(tenants=(ACME,)), 0.01)
            lapsed = await store.expired(EXPIRED_MAX)
            await store.ack([lapse(one.job, one.token) for one in lapsed])
        elif not dies:
            await asyncio.sleep(0)
            await store.ack([_settle(lease, chance.choice(outcomes)) for lease in leases])
    return taken


def _settle(lease: Lease, outcome: Outcome) -> Transition:
    return decide(outcome, lease.job, lease.token, 0.0)


async def everything(store: Store) -> list[Event]:
    events: list[Event] = []
    while True:
        after = events[-1].cursor if events else 0
        page = await store.events(ACME, after, PAGE_MAX)
        assert not page.lost
        if not page.events:
            return events
        events += page.events


def audited(events: list[Event]) -> dict[Scope, int]:
    """The most that ever ran in each scope at a time; fails where a lease broke a limit."""
    limits: dict[Scope, int | None] = {}
    live: dict[str, list[Scope]] = {}
    running: Counter[Scope] = Counter()
    highest: Counter[Scope] = Counter()
    for event in events:
        if event.kind is EventKind.CONFIGURED:
            scope = scope_of(event.job_id)
            assert scope is not None
            text = (event.note or "{}").encode()
            limits[scope] = decode(event.job_id, text).max_running
        elif event.kind is _STARTS:
            assert event.job_id not in live, f"{event.job_id} was leased twice"
            live[event.job_id] = scopes_of(event.job_id)
            for scope in live[event.job_id]:
                running[scope] += 1
                highest[scope] = max(highest[scope], running[scope])
                most = limits.get(scope)
                assert most is None or running[scope] <= most, f"{scope} above {most}: {event}"
        elif event.kind in _STOPS:
            for scope in live.pop(event.job_id, ()):
                running[scope] -= 1
    assert live == {}
    return highest


async def no_slot_leaked(store: Store) -> None:
    for kind in TENANT_KINDS:
        for tally in await store.count(ACME, by=kind, recount=True):
            assert tally.counts.get(State.PROCESSING, 0) == 0
            assert tally.correction == 0


@pytest.mark.parametrize("changing", [False, True], ids=["fixed", "changing"])
async def test_no_limit_is_exceeded_and_no_slot_leaks(make: Make, changing: bool) -> None:
    """P13: 16 claimers, some dying, with cancels and live changes: the event log shows it."""
    store = make("limits", None)
    await store.open()
    try:
        if not store.capabilities.scopes or not store.capabilities.event_log:
            pytest.skip(f"{name_of(store)} declares no scopes, or no event log")
        for scope, most in LIMITS.items():
            await limit(store, scope, most)
        await fill(store)

        async def workers(n: int) -> list[Lease]:
            names = [f"w{n}-{k}" for k in range(CLAIMERS)]
            taken = await asyncio.gather(*(worker(store, name) for name in names))
            return [lease for leases in taken for lease in leases]

        async def unrest() -> list[Lease]:
            chance = random.Random(7)
            for _ in range(CHANGES):
                refs = [Ref(ACME, f"j{chance.randrange(JOBS)}") for _ in range(2)]
                await store.cancel(refs)
                if changing:
                    scope = chance.choice(list(LIMITS))
                    await limit(store, scope, chance.choice([None, 1, 2, 3, 4, 6, 8]))
                await store.wait(Watch(news=True), 0.005)
            for scope, most in LIMITS.items():
                await limit(store, scope, most)
            return []

        works: list[Callable[[], Awaitable[list[Lease]]]] = [unrest]
        works += [lambda n=n: workers(n) for n in range(THREADS)]  # type: ignore[misc]
        taken = await asyncio.to_thread(in_threads, works)

        leases = [lease for part in taken for lease in part]
        assert len({lease.token for lease in leases}) == len(leases)
        highest = audited(await everything(store))
        if not changing:
            assert highest[group_of()] == LIMITS[group_of()]
            assert highest[tenant_of()] == LIMITS[tenant_of()]
        await no_slot_leaked(store)
    finally:
        await store.close()
