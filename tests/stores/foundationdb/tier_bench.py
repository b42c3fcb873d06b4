"""What the tests of tiers on FoundationDB share: what steps cost, and tenants at their limits."""

from __future__ import annotations

from typing import Any

import pytest
from tests.foundationdb_engine import Engine

from holdfast.core.bounds import CLAIM_MAX
from holdfast.core.job import Lease
from holdfast.core.scope import ScopeSettings, encode
from holdfast.store import Put
from holdfast.stores.foundationdb.layout import Keys, Space, after
from holdfast.stores.foundationdb.overlay import Overlay
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import job, tenant_of
from holdfast.testing.contract.tiers import layer

PREFIX = "c"
"""As `bench` has it."""
KEYS = Keys(PREFIX.encode() + b"\0")
CLAIMS_MAX = 30


class Cost:
    """Counts the keys and ranges that steps ask for, the rows they read, and what they write."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked: list[bytes] = []
        self.rows = self.writes = 0
        ask, ask_range, range_ = Overlay.ask, Overlay.ask_range, Overlay.range
        hand_over = Overlay.hand_over

        def asked(step: Overlay, keys: Any) -> None:
            new = list(keys)
            self.asked += [key for key in new if key not in step._asked]
            ask(step, new)

        def asked_range(step: Overlay, begin: bytes, *args: Any, **options: Any) -> None:
            self.asked.append(begin)
            ask_range(step, begin, *args, **options)

        async def read(step: Overlay, *args: Any, **options: Any) -> Any:
            self.asked.append(args[0])
            found = await range_(step, *args, **options)
            self.rows += len(found)
            return found

        def handed_over(step: Overlay) -> None:
            self.writes += len(step._writes) + len(step._adds)
            hand_over(step)

        patch.setattr(Overlay, "ask", asked)
        patch.setattr(Overlay, "ask_range", asked_range)
        patch.setattr(Overlay, "range", read)
        patch.setattr(Overlay, "hand_over", handed_over)

    async def of(self, call: Any) -> tuple[tuple[int, int, int], Any]:
        """How much a call asked for, read and wrote; and what it gave."""
        self.asked, self.rows, self.writes = [], 0, 0
        result = await call
        return (len(self.asked), self.rows, self.writes), result


def kept(engine: Engine, *spaces: Space) -> int:
    """How many keys there are in these spaces."""
    database = engine.database()
    return sum(len(database.get_range(KEYS.all(s), after(KEYS.all(s)))) for s in spaces)


async def put_into(bench: Bench, tier: str, tenants: list[str]) -> None:
    """Puts tenants that have no settings into a tier, or replaces their settings."""
    for start in range(0, len(tenants), 100):
        puts = []
        for tenant in tenants[start : start + 100]:
            name = tenant_of(tenant).name
            found = await bench.store.settings(under=name, limit=1)
            version = found[0].version if found else 0
            puts.append(Put(name, encode(ScopeSettings(tier=tier)), version))
        await bench.store.settings(puts)


async def add(bench: Bench, names: list[str], jobs: int = 2, **options: Any) -> None:
    new = [job(f"j{n}", tenant=name, **options) for name in names for n in range(jobs)]
    for start in range(0, len(new), 500):
        await bench.add(*new[start : start + 500])


async def all_of(bench: Bench, **options: Any) -> list[Lease]:
    """What claims give, one after the other, until one gives nothing."""
    found: list[Lease] = []
    for _ in range(CLAIMS_MAX):
        some = await bench.claim(CLAIM_MAX, **options)
        found += some
        if not some:
            break
    return found


async def at_limit(bench: Bench, tier: str, number: int) -> list[str]:
    """So many tenants of a tier with one job each running, which is all that it lets them."""
    await layer(bench, tier, max_running=1)
    names = [f"{tier}{n:03}" for n in range(number)]
    await put_into(bench, tier, names)
    await add(bench, names)
    assert len(await all_of(bench)) == number
    return names


async def at_rest(bench: Bench, engine: Engine, tier: str, number: int) -> list[str]:
    """The same, and all lines that there are rest."""
    names = await at_limit(bench, tier, number)
    while kept(engine, Space.LINES):
        assert await bench.claim(10) == []
    return names
