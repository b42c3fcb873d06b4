"""`python -m bench.tiers`: a change of one tier, with a hundred thousand tenants in three of them.

Each tenant has two jobs and a running limit of one by its tier, so that all tenants are at their
limit. Then the limit of one tier is raised. Printed is how long the change took, and the claim of a
hundred jobs after it, which gets jobs of that tier only.
"""

from __future__ import annotations

import argparse
import asyncio
import time
import uuid
from collections.abc import Iterator, Sequence

import msgspec

from bench.places import NAMES, Missing, place
from bench.run_info import say
from holdfast import App, Context
from holdfast.core.clock import SECOND
from holdfast.core.job import Lease
from holdfast.core.scope import Scope, ScopeSettings, encode
from holdfast.store import Claim, Put, Store

TIERS = ("free", "pro", "gold")
RAISED = "pro"
EACH = 2
AT_ONCE = 1000
"""Of a batch of any verb."""
PUTS = 100
"""Of one call: a put of settings is many statements in an SQL store."""
IN_FLIGHT = 50
WANTED = 100
LEASE_US = 3600 * SECOND


class Found(msgspec.Struct, frozen=True, kw_only=True):
    change_ms: float
    claim_ms: float
    got: int
    """Jobs of the raised tier that the next claim gave."""
    others: int
    idle_claim_ms: float
    """A claim right before the change, which finds nothing."""


def _parts(number: int) -> Iterator[range]:
    for first in range(0, number, AT_ONCE):
        yield range(first, min(first + AT_ONCE, number))


def _tenant(number: int) -> str:
    return f"t{number:06}"


def _tier(tenant: str) -> str:
    return TIERS[int(tenant[1:]) % len(TIERS)]


async def measure(url: str, tenants: int) -> Found:
    app = App(url)

    @app.job(name="noop")
    async def noop(ctx: Context, number: int) -> None: ...

    async with app:
        for tier in TIERS:
            await app.platform().tier(tier).set(max_running=1)
        for part in _parts(tenants):
            await _join(app, part)
        say(f"{tenants:,} tenants with {EACH} jobs each; all of them start one")
        while await _claim(app.store, AT_ONCE):
            pass
        begun = time.perf_counter()
        assert not await _claim(app.store, WANTED)
        idle = time.perf_counter()
        await app.platform().tier(RAISED).set(max_running=2)
        changed = time.perf_counter()
        leases = await _claim(app.store, WANTED)
        claimed = time.perf_counter()
    got = sum(_tier(lease.job.tenant) == RAISED for lease in leases)
    return Found(
        idle_claim_ms=(idle - begun) * 1000,
        change_ms=(changed - idle) * 1000,
        claim_ms=(claimed - changed) * 1000,
        got=got,
        others=len(leases) - got,
    )


async def _join(app: App, part: range) -> None:
    """Puts tenants into their tiers, and gives each its jobs."""
    noop = app.registry.named("noop")
    assert noop is not None
    names = [_tenant(number) for number in part]
    for first in range(0, len(names), PUTS):
        some = names[first : first + PUTS]
        values = [encode(ScopeSettings(tier=_tier(name))) for name in some]
        puts = [Put(Scope(name).name, value, 0) for name, value in zip(some, values, strict=True)]
        await app.store.settings(puts)
    places = asyncio.Semaphore(IN_FLIGHT)

    async def one(name: str) -> None:
        async with places:
            await app.tenant(name).enqueue_many(noop.kind(number=number) for number in range(EACH))

    await asyncio.gather(*(one(name) for name in names))


async def _claim(store: Store, number: int) -> list[Lease]:
    nonce = uuid.uuid4().hex
    return await store.claim(Claim(worker="w", nonce=nonce, limit=number, lease_us=LEASE_US))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.tiers", description=__doc__)
    parser.add_argument("--stores", default=",".join(NAMES), help="default: %(default)s")
    parser.add_argument("--tenants", type=int, default=100_000, help="default: %(default)s")
    given = parser.parse_args(arguments)
    for name in given.stores.split(","):
        try:
            with place(name) as where:
                say(f"{name}: making {given.tenants:,} tenants")
                found = asyncio.run(measure(where.fresh("tiers"), given.tenants))
        except Missing as lack:
            say(f"{name}: not measured: {lack}")
            continue
        print(
            f"{name}: change {found.change_ms:.1f} ms; the next claim of {WANTED}: "
            f"{found.claim_ms:.1f} ms, {found.got} jobs of the tier, {found.others} of others; "
            f"before it a claim for nothing: {found.idle_claim_ms:.1f} ms"
        )


if __name__ == "__main__":
    main()
