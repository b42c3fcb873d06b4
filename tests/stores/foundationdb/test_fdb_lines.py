"""More lines than one claim looks at, and what one tenant may have of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from tests.foundationdb_engine import Engine

from holdfast.core import bounds
from holdfast.core.clock import SECOND
from holdfast.core.errors import TenantFull
from holdfast.core.job import Completed, Lease, NewJob
from holdfast.core.scope import line_share
from holdfast.store import Take
from holdfast.stores.foundationdb import fairness_lines
from holdfast.stores.foundationdb.fairness_lines import LINES_MAX
from holdfast.stores.foundationdb.options import Options
from holdfast.stores.foundationdb.overlay import Overlay
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, finding, ids, job, queue_of, rules

TENANTS = 2 * LINES_MAX + 100


async def test_no_claim_is_empty_while_lines_that_it_did_not_see_have_jobs() -> None:
    """A claim that finds nothing in the lines it looked at looks at further ones."""
    clock = ManualClock()
    database = Engine(clock).database()
    bench = Bench(lambda: FoundationStore(Options(prefix="c"), clock, database), clock)
    await bench.open()
    jobs = [job(id, tenant=f"t{number}") for number in range(TENANTS) for id in ("a", "b")]
    for start in range(0, len(jobs), LINES_MAX):
        await bench.store.enqueue(jobs[start : start + LINES_MAX])

    taken = 0
    while taken < len(jobs):
        leases = await bench.claim(100)
        assert leases
        taken += len(leases)

    assert await bench.claim(100) == []
    await bench.close()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    clock = ManualClock()
    database = Engine(clock).database()
    bench = Bench(lambda: FoundationStore(Options(prefix="c"), clock, database), clock)
    await bench.open()
    yield bench
    await bench.close()


async def spread(bench: Bench, lines: Iterable[tuple[str, str]]) -> None:
    """Three jobs in each of these lines."""
    jobs = [
        job(f"{queue}-{id}", tenant=tenant, queue=queue) for tenant, queue in lines for id in "abc"
    ]
    for start in range(0, len(jobs), LINES_MAX):
        await bench.store.enqueue(jobs[start : start + LINES_MAX])


@pytest.mark.parametrize("size", [1, 10, 100])
async def test_more_queues_than_a_claim_sees_hide_nobody(bench: Bench, size: int) -> None:
    """P19: a tenant with 1,100 queues has as many of 200 jobs as one with a single queue."""
    await spread(bench, ((ACME, f"q{number:04}") for number in range(TENANTS)))
    await bench.store.enqueue([job(f"z{n}", tenant="zoo", queue="z") for n in range(200)])

    leases: list[Lease] = []
    while len(leases) < 200:
        leases += await bench.claim(size)

    got = Counter(lease.job.tenant for lease in leases)
    assert abs(got[ACME] - got["zoo"]) <= size + 1
    lines = Counter(lease.job.queue for lease in leases if lease.job.tenant == ACME)
    assert max(lines.values()) <= max(2, line_share(-(-size // 2), TENANTS))


async def test_more_tenants_than_a_claim_sees_come_in_turn(bench: Bench) -> None:
    """P19: 1,100 tenants with three jobs each: nobody has a second before all have one, but for
    those at the edges of what a claim sees.
    """
    await spread(bench, ((f"t{number:04}", "mail") for number in range(TENANTS)))

    leases: list[Lease] = []
    while len(leases) < TENANTS:
        leases += await bench.claim(10)

    got = Counter(lease.job.tenant for lease in leases)
    assert max(got.values()) <= 2
    assert len(got) >= TENANTS * 0.9


async def test_a_line_that_is_named_is_found_among_any_number(bench: Bench) -> None:
    """P9: by tenant and queue, wherever it stands among the tenant's lines."""
    await spread(bench, ((ACME, f"q{number:04}") for number in range(TENANTS)))
    last = f"q{TENANTS - 1:04}"

    leases = await bench.claim(10, tenants=(ACME,), queues=(last,))

    assert [lease.job.queue for lease in leases] == [last] * 3


@pytest.mark.parametrize("tenants", [False, True])
async def test_a_claim_reads_no_more_where_more_wait(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tenants: bool
) -> None:
    """P19: as many keys with 3,300 lines as with 1,100, of one tenant or of as many tenants."""
    read = [0]
    range_ = Overlay.range

    async def counted(*args: Any, **kwargs: Any) -> Any:
        found = await range_(*args, **kwargs)
        read[0] += len(found)
        return found

    def lines(begin: int, end: int) -> list[tuple[str, str]]:
        numbers = [f"{number:05}" for number in range(begin, end)]
        return [(f"t{n}", "mail") if tenants else (ACME, f"q{n}") for n in numbers]

    monkeypatch.setattr(Overlay, "range", counted)
    # By chance one claim of 64 reads all lines again: here none does, with few or with many.
    monkeypatch.setattr(fairness_lines, "RETURN", 1_000_000_000)
    costs = []
    for begin, end in ((0, TENANTS), (TENANTS, 3 * TENANTS)):
        await spread(bench, lines(begin, end))
        await bench.claim(10)  # The first one finds out that there are many.
        read[0] = 0
        for _ in range(5):
            assert len(await bench.claim(10)) == 10
        costs.append(read[0] / 5)

    assert costs[1] <= 1.2 * costs[0]
    assert costs[1] <= 3 * LINES_MAX


# -- shares ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["queue", "group"])
async def test_a_queue_or_group_that_is_no_more_makes_room(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """P19: when upkeep has cleared its counters away; one that comes back counts once."""
    monkeypatch.setattr(bounds, "QUEUES_MAX" if what == "queue" else "GROUPS_MAX", 2)
    gone = rules(keep_us=0)

    def of(id: str, name: str, **options: Any) -> NewJob:
        return job(id, **{what: name, **options})

    await bench.add(of("a", "one", rules=gone), of("b", "one", rules=gone))
    await bench.add(of("c", "two"))
    [refused] = await bench.add(of("d", "three"))
    assert isinstance(refused.error, TenantFull)

    for lease in await bench.claim(3):
        if lease.job.id != "c":
            await bench.end(lease, Completed())
    await bench.store.prune(100, 0)

    [first, second] = await bench.add(of("d", "three"), of("e", "one"))
    assert first.created
    assert isinstance(second.error, TenantFull)


async def test_slots_that_were_given_back_or_lapsed_make_room(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P19: each is counted once, however it ends."""
    monkeypatch.setattr(bounds, "SLOTS_MAX", 2)
    scope = queue_of()

    async def take(*ids: str, length: int = 10 * SECOND) -> None:
        await bench.store.hold([Take(scope.slot(id), "w", length) for id in ids])

    for _ in range(3):
        await take("a", "b")
        await take("a", "b")
        with pytest.raises(TenantFull):
            await take("c")
        await take("a", "b", length=0)
        await take("a", "b", length=0)
    for _ in range(3):
        await take("a", "b")
        bench.clock.advance(11)
        await bench.store.prune(100, 0)
    await take("c", "d")
    with pytest.raises(TenantFull):
        await take("e")


async def test_a_record_that_is_no_record_at_all_stops_nobody(bench: Bench) -> None:
    """P19: claims, lists, counts and upkeep go on without it."""
    await bench.put("a", "bad", "c")
    store = bench.store
    assert isinstance(store, FoundationStore)

    async def damage(step: Step) -> None:
        step.put(step.keys.row(ACME, "bad"), b"\xc1garbage")

    await store._write(damage)

    assert ids(await bench.claim(10)) == ["a", "c"]
    assert ids((await store.find(finding(newest_first=False))).jobs) == ["a", "c"]
    await store.count(None, recount=True)
    await bench.upkeep()
