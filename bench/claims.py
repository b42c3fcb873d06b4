"""What a claim costs among many tenants, idle tenants, and jobs that a limit holds back."""

from __future__ import annotations

from bench.stores import KEPT, QUEUE, Cost, claim_cost, claim_of, fill, finish_all, job, opened
from holdfast.core.clock import SECOND
from holdfast.core.scope import Scope, ScopeKind
from holdfast.scopes import ScopeHandle
from holdfast.store import Store

SAMPLES = 90
FEW = 100


async def tenants_cost(url: str, many: int) -> list[Cost]:
    """Over 100 tenants with a job each, over many, and over 100 beside many idle ones."""
    found = []
    async with opened(url, "few") as store:
        await fill(store, (job(f"t{number}", "j") for number in range(FEW)))
        found.append(await claim_cost(store, f"{FEW} tenants", SAMPLES))
    async with opened(url, "many") as store:
        await fill(store, (job(f"t{number}", "j") for number in range(many)))
        found.append(await claim_cost(store, f"{many:,} tenants", SAMPLES))
    async with opened(url, "idle") as store:
        await fill(store, (job(f"idle{number}", "j", KEPT) for number in range(many)))
        await finish_all(store)
        await fill(store, (job(f"t{number}", "j") for number in range(FEW)))
        found.append(await claim_cost(store, f"{FEW} and {many:,} idle tenants", SAMPLES))
    return found


async def blocked_cost(url: str, blocked: int) -> list[Cost]:
    """With nothing in front, with a group at its limit, and with a tenant at its limit in front."""
    found = []
    async with opened(url, "free") as store:
        await fill(store, (job("acme", f"free{number}") for number in range(FEW)))
        found.append(await claim_cost(store, "nothing blocked", SAMPLES))
    async with opened(url, "group") as store:
        group = ScopeHandle(store, Scope("acme", ScopeKind.GROUP, "g"))
        await fill(store, [job("acme", "runs", group="g")])
        await group.set(max_running=1)
        assert len(await store.claim(claim_of(1))) == 1
        await fill(store, (job("acme", f"b{number}", group="g") for number in range(blocked)))
        await fill(store, (job("acme", f"free{number}") for number in range(FEW)))
        found.append(await claim_cost(store, f"{blocked:,} of a group at its limit", SAMPLES))
    async with opened(url, "tenant") as store:
        await fill(store, [job("full", "runs")])
        await ScopeHandle(store, Scope("full", ScopeKind.QUEUE, QUEUE)).set(max_running=1)
        assert len(await store.claim(claim_of(1))) == 1
        await fill(store, (job("full", f"b{number}") for number in range(blocked)))
        await fill(store, (job("acme", f"free{number}") for number in range(FEW)))
        found.append(await claim_cost(store, f"{blocked:,} of a queue at its limit", SAMPLES))
    return found


DAY = 24 * 3600 * SECOND
WIDE = 100
SHALLOW = 1_000
WIDE_SAMPLES = 20


async def depth_cost(url: str, deep: int) -> list[Cost]:
    """Claims of 100 with 1,000 jobs more queued, delayed or blocked, and with many more."""
    found = []
    for behind in (SHALLOW, deep):
        async with opened(url, "queued") as store:
            number = behind + WIDE * WIDE_SAMPLES
            await fill(store, (job("acme", f"j{each}") for each in range(number)))
            found.append(await _wide(store, f"{behind:,} queued"))
    for behind in (SHALLOW, deep):
        async with opened(url, "delayed") as store:
            await fill(store, (job("acme", f"d{each}", delay_us=DAY) for each in range(behind)))
            await fill(store, (job("acme", f"j{each}") for each in range(WIDE * WIDE_SAMPLES)))
            found.append(await _wide(store, f"{behind:,} delayed"))
    for behind in (SHALLOW, deep):
        async with opened(url, "blocked") as store:
            await fill(store, [job("acme", "runs", group="g")])
            await ScopeHandle(store, Scope("acme", ScopeKind.GROUP, "g")).set(max_running=1)
            assert len(await store.claim(claim_of(1))) == 1
            await fill(store, (job("acme", f"b{each}", group="g") for each in range(behind)))
            await fill(store, (job("acme", f"j{each}") for each in range(WIDE * WIDE_SAMPLES)))
            found.append(await _wide(store, f"{behind:,} blocked"))
    return found


async def _wide(store: Store, case: str) -> Cost:
    return await claim_cost(store, case, WIDE_SAMPLES, WIDE)
