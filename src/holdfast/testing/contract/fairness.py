"""Fairness: tenants share claims by weight, none starves, and idle tenants accumulate no credit."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from holdfast.core.bounds import WEIGHT_MAX
from holdfast.core.job import Completed, Lease
from holdfast.core.scope import Pause
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    AUDIO,
    GLOBEX,
    MAIL,
    ids,
    job,
    queue_of,
    tenant_of,
)

INITECH = "initech"
THREE = (ACME, GLOBEX, INITECH)


async def fill(bench: Bench, tenant: str, count: int, queue: str = MAIL) -> None:
    bench.needs("scopes")
    await bench.add(*(job(f"{queue}{n:04}", tenant=tenant, queue=queue) for n in range(count)))


def shares(leases: list[Lease]) -> Counter[str]:
    return Counter(lease.job.tenant for lease in leases)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 30, 120])
async def test_equal_tenants_share_equally(bench: Bench, size: int) -> None:
    """P9: over claims of any size, whoever came first and has most."""
    for tenant, count in zip(THREE, (500, 60, 60), strict=True):
        await fill(bench, tenant, count)

    leases: list[Lease] = []
    while len(leases) < 120:
        leases += await bench.claim(min(size, 120 - len(leases)))

    got = shares(leases)
    assert max(got.values()) - min(got[each] for each in THREE) <= 1 + min(size, 20)
    assert min(got[each] for each in THREE) >= 30


@pytest.mark.parametrize("size", [1, 3, 10, 60])
async def test_shares_follow_the_weights(bench: Bench, size: int) -> None:
    """P9: of 240 jobs in claims of any size, a weight of 3 has three times that of 1."""
    for tenant, weight in zip(THREE, (1, 2, 3), strict=True):
        await bench.configure(tenant_of(tenant), weight=weight)
        await fill(bench, tenant, 300)

    leases: list[Lease] = []
    while len(leases) < 240:
        leases += await bench.claim(size)

    got = shares(leases)
    for tenant, weight in zip(THREE, (1, 2, 3), strict=True):
        assert abs(got[tenant] - 40 * weight) <= 10


async def test_a_line_of_excluded_jobs_does_not_cost_its_tenant_the_turn(bench: Bench) -> None:
    """P19: the tenant is served from its other line in the same claim."""
    await fill(bench, GLOBEX, 2)
    await bench.add(job("x", tenant=ACME, queue=AUDIO, group="g1"))
    await fill(bench, ACME, 5)

    got = shares(await bench.claim(2, exclude_groups=("g1",)))

    assert got == {GLOBEX: 1, ACME: 1}


async def test_no_weight_starves_another(bench: Bench) -> None:
    """P9: the heaviest tenant leaves a turn to the lightest."""
    await bench.configure(tenant_of(ACME), weight=WEIGHT_MAX)
    await bench.configure(tenant_of(GLOBEX), weight=1)
    await fill(bench, ACME, 1000)
    await bench.add(*(job(f"more{n}", tenant=ACME) for n in range(500)))
    await fill(bench, GLOBEX, 3)

    leases: list[Lease] = []
    for _ in range(15):
        leases += await bench.claim(100)

    assert shares(leases)[GLOBEX] >= 1


async def test_a_changed_weight_counts_in_the_next_turns(bench: Bench) -> None:
    """P9: weights are settings like all others, changed live."""
    for tenant in (ACME, GLOBEX):
        await fill(bench, tenant, 400)
    await bench.claim(100)

    await bench.configure(tenant_of(GLOBEX), weight=4)
    leases: list[Lease] = []
    for _ in range(20):
        leases += await bench.claim(10)

    assert shares(leases)[GLOBEX] >= 3 * shares(leases)[ACME]


async def test_an_idle_tenant_saves_nothing_up(bench: Bench) -> None:
    """P9: who comes late gets its share from then on, not what it missed."""
    await fill(bench, ACME, 400)
    await fill(bench, GLOBEX, 1)
    for _ in range(10):
        await bench.claim(10)
    await bench.add(*(job(f"late{n}", tenant=GLOBEX) for n in range(200)))

    leases: list[Lease] = []
    for _ in range(40):
        leases += await bench.claim(1)

    assert abs(shares(leases)[GLOBEX] - 20) <= 2


async def test_a_flood_in_one_queue_does_not_starve_another(bench: Bench) -> None:
    """P9: single claims go over queues too, whichever line came first."""
    await fill(bench, ACME, 200, MAIL)
    await fill(bench, GLOBEX, 5, AUDIO)

    got = shares([await bench.one() for _ in range(12)])

    assert got[GLOBEX] == 5


@pytest.mark.parametrize("order", [(ACME, GLOBEX), (GLOBEX, ACME)])
async def test_single_claims_of_listed_tenants_take_turns(
    bench: Bench, order: tuple[str, ...]
) -> None:
    """P9: the order of the list gives nobody an advantage; who is not in it gets nothing."""
    for tenant in THREE:
        await fill(bench, tenant, 50)

    got = shares([await bench.one(tenants=order) for _ in range(20)])

    assert got == {ACME: 10, GLOBEX: 10}


@pytest.mark.parametrize("order", [(MAIL, AUDIO), (AUDIO, MAIL)])
async def test_single_claims_of_listed_queues_take_turns(
    bench: Bench, order: tuple[str, ...]
) -> None:
    """P9: the order of a list of queues gives none of them an advantage."""
    for queue in (MAIL, AUDIO, "other"):
        await fill(bench, ACME, 50, queue)

    leases = [await bench.one(queues=order) for _ in range(20)]

    assert Counter(lease.job.queue for lease in leases) == {MAIL: 10, AUDIO: 10}


async def test_a_claim_serves_the_tenants_it_names(bench: Bench) -> None:
    """P7: one, a list, or all; unknown and repeated names change nothing."""
    for tenant in THREE:
        await fill(bench, tenant, 2)

    assert shares(await bench.claim(10, tenants=(ACME,))) == {ACME: 2}
    assert await bench.claim(10, tenants=(ACME, "unknown")) == []
    assert shares(await bench.claim(1, tenants=(GLOBEX, GLOBEX))) == {GLOBEX: 1}
    assert shares(await bench.claim(10)) == {GLOBEX: 1, INITECH: 2}


async def test_filters_of_tenants_and_queues_meet(bench: Bench) -> None:
    """P9: only lines that both allow."""
    for tenant in THREE:
        for queue in (MAIL, AUDIO):
            await fill(bench, tenant, 1, queue)

    leases = await bench.claim(10, tenants=(ACME, GLOBEX), queues=(AUDIO,))

    got = sorted((lease.job.tenant, lease.job.queue) for lease in leases)
    assert got == [(ACME, AUDIO), (GLOBEX, AUDIO)]


async def test_tenants_that_cannot_run_leave_their_share_to_others(bench: Bench) -> None:
    """P9, P13: paused or at their limit, they cost nobody a place in a claim."""
    await bench.configure(tenant_of(ACME), paused=Pause("holiday", "ann"))
    await bench.configure(tenant_of(GLOBEX), max_running=1)
    for tenant in THREE:
        await fill(bench, tenant, 20)

    assert shares(await bench.claim(12)) == {GLOBEX: 1, INITECH: 11}


async def test_a_tenant_at_its_limit_gets_its_turn_again(bench: Bench) -> None:
    """P9, P13: each freed place is used before the flood of another is through."""
    await bench.configure(tenant_of(GLOBEX), max_running=1)
    await fill(bench, ACME, 100)
    await fill(bench, GLOBEX, 5)

    done = 0
    for _ in range(20):
        lease = await bench.one()
        done += lease.job.tenant == GLOBEX
        await bench.end(lease, Completed())

    assert done == 5


async def test_each_line_keeps_its_order_while_it_shares(bench: Bench) -> None:
    """P9: fairness is between lines; inside one it is priority, then sequence."""
    bench.needs("scopes")
    for tenant in THREE:
        await bench.add(*(job(f"j{n:02}", tenant=tenant, priority=n % 3) for n in range(12)))

    leases: list[Lease] = []
    while taken := await bench.claim(5):
        leases += taken

    expected = [f"j{n:02}" for p in (2, 1, 0) for n in range(12) if n % 3 == p]
    for tenant in THREE:
        assert ids(each for each in leases if each.job.tenant == tenant) == expected


async def test_many_tenants_with_one_job_each_come_in_turn(bench: Bench) -> None:
    """P9: first come, first served, and each once."""
    bench.needs("scopes")
    await bench.add(*(job("only", tenant=f"t{n:03}") for n in range(300)))

    leases: list[Lease] = []
    for _ in range(30):
        leases += await bench.claim(10)

    assert [lease.job.tenant for lease in leases] == [f"t{n:03}" for n in range(300)]


async def test_a_queue_at_its_limit_rests_alone(bench: Bench) -> None:
    """P9, P13: the tenant's other queues and the queue of other tenants go on."""
    await bench.configure(queue_of(MAIL, ACME), max_running=1)
    for tenant in (ACME, GLOBEX):
        for queue in (MAIL, AUDIO):
            await fill(bench, tenant, 3, queue)

    leases = await bench.claim(20)

    got = Counter((lease.job.tenant, lease.job.queue) for lease in leases)
    assert got == {(ACME, MAIL): 1, (ACME, AUDIO): 3, (GLOBEX, MAIL): 3, (GLOBEX, AUDIO): 3}


async def test_a_large_claim_is_shared_by_many_lines(bench: Bench) -> None:
    """P9: where more lines wait than fit, none takes more than its part, and the next come next."""
    bench.needs("scopes")
    names = [f"t{n:03}" for n in range(60)]
    for name in names:
        await fill(bench, name, 20)

    first, second = shares(await bench.claim(48)), shares(await bench.claim(48))

    assert len(first) >= 8
    assert max(first.values()) <= 6
    assert not first.keys() & second.keys()


# -- tenants first, then their queues --------------------------------------------------------------


async def spread(bench: Bench, tenant: str, queues: int, each: int = 1) -> None:
    """Jobs of a tenant in many queues."""
    bench.needs("scopes")
    jobs = [
        job(f"q{queue:03}-{n}", tenant=tenant, queue=f"q{queue:03}")
        for queue in range(queues)
        for n in range(each)
    ]
    for start in range(0, len(jobs), 500):
        await bench.add(*jobs[start : start + 500])


@pytest.mark.parametrize("size", [1, 3, 10, 60])
async def test_many_queues_give_a_tenant_no_more_than_one(bench: Bench, size: int) -> None:
    """P19: of 120 jobs, a tenant with 150 queues has as many as one with a single queue."""
    await spread(bench, ACME, 150, 2)
    await fill(bench, GLOBEX, 200)

    leases: list[Lease] = []
    while len(leases) < 120:
        leases += await bench.claim(size)

    assert abs(shares(leases)[GLOBEX] - shares(leases)[ACME]) <= size + 1


@pytest.mark.parametrize("size", [1, 7, 40])
async def test_long_queues_give_a_tenant_no_more_than_one(bench: Bench, size: int) -> None:
    """P19: nor do many queues with many jobs each."""
    await spread(bench, ACME, 20, 40)
    await fill(bench, GLOBEX, 200)
    await fill(bench, INITECH, 200)

    leases: list[Lease] = []
    while len(leases) < 150:
        leases += await bench.claim(size)

    got = shares(leases)
    assert max(got.values()) - min(got[each] for each in THREE) <= size + 1


@pytest.mark.parametrize("size", [1, 4, 30])
async def test_shares_follow_the_weights_over_queues(bench: Bench, size: int) -> None:
    """P19: a weight is a tenant's, however its jobs are spread."""
    await bench.configure(tenant_of(GLOBEX), weight=3)
    await spread(bench, ACME, 50, 4)
    await fill(bench, GLOBEX, 200)

    leases: list[Lease] = []
    while len(leases) < 160:
        leases += await bench.claim(size)

    assert abs(shares(leases)[ACME] - 40) <= size + 4


@pytest.mark.parametrize("size", [1, 5])
async def test_listed_queues_are_shared_by_tenant(bench: Bench, size: int) -> None:
    """P19: who has jobs in all the queues that a worker serves has no more than who is in one."""
    queues = tuple(f"q{n:03}" for n in range(5))
    await spread(bench, ACME, 5, 40)
    await spread(bench, INITECH, 5, 40)
    await bench.add(*(job(f"one{n:03}", tenant=GLOBEX, queue="q004") for n in range(60)))

    leases: list[Lease] = []
    while len(leases) < 90:
        leases += await bench.claim(size, queues=queues)

    got = shares(leases)
    assert max(got.values()) - min(got[each] for each in THREE) <= size + 1


async def test_the_queues_of_a_tenant_take_turns(bench: Bench) -> None:
    """P9: a tenant's share goes over its queues, the one served longest ago first."""
    await fill(bench, ACME, 60, MAIL)
    await fill(bench, ACME, 60, AUDIO)
    await fill(bench, GLOBEX, 60, MAIL)

    leases = [await bench.one() for _ in range(40)]

    acme = Counter(lease.job.queue for lease in leases if lease.job.tenant == ACME)
    assert acme == {MAIL: 10, AUDIO: 10}


async def test_a_small_turn_visits_few_queues_of_a_tenant(bench: Bench) -> None:
    """P19: two queues give half of it each; those left out come first in the next."""
    queues = [f"q{number}" for number in range(5)]
    for queue in queues:
        await fill(bench, ACME, 10, queue)

    got = [Counter(lease.job.queue for lease in await bench.claim(6)) for _ in range(5)]

    assert got[0] == {queues[0]: 3, queues[1]: 3}
    assert [set(each) & set(after) for each, after in itertools.pairwise(got)] == [set()] * 4
    assert sum(got, Counter()) == dict.fromkeys(queues, 6)


async def test_large_claims_reach_every_queue_of_a_tenant(bench: Bench) -> None:
    """P9: one long queue does not keep the others from its tenant's share."""
    await fill(bench, ACME, 300, MAIL)
    await fill(bench, ACME, 5, AUDIO)

    leases = await bench.claim(40)

    assert Counter(lease.job.queue for lease in leases)[AUDIO] == 5


async def test_a_queue_at_its_limit_leaves_the_share_to_its_tenants_others(bench: Bench) -> None:
    """P13, P19: what one queue may not take, another of the same tenant takes in that turn."""
    await bench.configure(queue_of(MAIL), max_running=1)
    await fill(bench, ACME, 20, MAIL)
    await fill(bench, ACME, 20, AUDIO)
    await fill(bench, GLOBEX, 40, MAIL)

    leases = await bench.claim(20)

    assert abs(shares(leases)[ACME] - 10) <= 1
