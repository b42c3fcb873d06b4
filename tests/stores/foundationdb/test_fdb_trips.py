"""A verb asks for what it needs together: how often it waits for the cluster is what it costs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.foundationdb_engine import Engine

from holdfast.core.job import Completed, Lease
from holdfast.core.lifecycle import decide
from holdfast.core.scope import ScopeSettings, encode
from holdfast.core.tiers import Defaults, name_of
from holdfast.core.tiers import encode as encode_tier
from holdfast.store import Claim, Put
from holdfast.stores.foundationdb import binding
from holdfast.stores.foundationdb.options import Options
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import LEASE, group_of, job, queue_of, tenant_of

MANY = 100


class Trips:
    """Counts round trips: an answer is there one after its question, and all of a trip at once."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.made = 0
        self._asked: dict[int, int] = {}
        self._futures: list[Any] = []
        answer, ready = Engine.answer, binding.ready

        def asked(engine: Engine, future: Any, *args: Any, **kwargs: Any) -> Any:
            self._asked[id(future)] = self.made
            self._futures.append(future)  # So that no other gets its id.
            return answer(engine, future, *args, **kwargs)

        async def waited(future: Any) -> Any:
            self.made = max(self.made, self._asked.get(id(future), -1) + 1)
            return await ready(future)

        patch.setattr(Engine, "answer", asked)
        patch.setattr(binding, "ready", waited)

    async def of(self, call: Any) -> tuple[int, Any]:
        """How many trips a call made, and what it gave."""
        before = self.made
        result = await call
        return self.made - before, result


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Trips:
    return Trips(monkeypatch)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    clock = ManualClock()
    database = Engine(clock).database()
    bench = Bench(lambda: FoundationStore(Options(prefix="c"), clock, database), clock)
    await bench.open()
    yield bench
    await bench.close()


def _jobs(name: str, count: int, **options: Any) -> list[Any]:
    return [job(f"{name}{number}", **options) for number in range(count)]


def _done(leases: list[Lease]) -> list[Any]:
    return [decide(Completed(), one.job, one.token, 0.0) for one in leases]


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize("keyed", [False, True])
async def test_an_enqueue_reads_once_and_commits(
    trips: Trips, bench: Bench, count: int, keyed: bool
) -> None:
    """However many jobs it has: version and reads together, then the commit."""
    jobs = [job(f"j{number}", key=f"k{number}" if keyed else None) for number in range(count)]

    made, answers = await trips.of(bench.store.enqueue(jobs))

    assert all(answer.created for answer in answers)
    assert made <= 2


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize("group", [None, "g"])
async def test_a_claim_and_an_ack_take_few_trips(
    trips: Trips, bench: Bench, count: int, group: str | None
) -> None:
    """Lines and what is due; heads; jobs; commit. And jobs; whether the group drained; commit."""
    await bench.store.enqueue(_jobs("early", 1))
    await bench.claim(1)  # From now on the store is known at the line.
    await bench.store.enqueue(_jobs("j", 2 * MANY, group=group))

    made, leases = await trips.of(bench.claim(count))
    assert (len(leases), made <= 4) == (count, True)

    made, answers = await trips.of(bench.store.ack(_done(leases)))
    assert all(answer.error is None for answer in answers)
    assert made <= 3


async def test_a_claim_over_many_lines_does_not_ask_one_after_the_other(
    trips: Trips, bench: Bench
) -> None:
    """Fifty tenants with two jobs each."""
    for number in range(50):
        await bench.store.enqueue(_jobs(f"t{number}-", 2, tenant=f"t{number}"))
    claim = Claim(worker="w", nonce="n", limit=100, lease_us=LEASE)

    made, leases = await trips.of(bench.store.claim(claim))

    assert len(leases) == 100
    assert made <= 25


async def test_limits_cost_a_trip_or_two(trips: Trips, bench: Bench) -> None:
    """For the counts of the scopes, which can be asked for only when their settings are known."""
    await bench.configure(queue_of(), max_running=1000)
    await bench.configure(group_of("g"), max_running=1000)
    await bench.store.enqueue(_jobs("early", 1))
    await bench.claim(1)

    made, _ = await trips.of(bench.store.enqueue(_jobs("j", MANY, group="g")))
    assert made <= 7
    made, leases = await trips.of(bench.claim(MANY))
    assert (len(leases), made <= 7) == (MANY, True)
    made, _ = await trips.of(bench.store.ack(_done(leases)))
    assert made <= 5


@pytest.mark.parametrize("count", [1, MANY])
async def test_tenants_are_put_into_a_tier_together(trips: Trips, bench: Bench, count: int) -> None:
    """However many: one transaction must not outlive its version."""
    await bench.store.settings([Put(name_of("pro"), encode_tier(Defaults(max_running=1)), 0)])
    value = encode(ScopeSettings(tier="pro"))
    puts = [Put(tenant_of(f"t{number}").name, value, 0) for number in range(count)]

    made, _ = await trips.of(bench.store.settings(puts))

    assert made <= 12
