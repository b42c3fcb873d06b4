"""A batch that is sent twice is kept once, whatever it says of its ids."""

from __future__ import annotations

import msgspec
import pytest
from tests.stores.parcels import GONE, named

from holdfast.core.job import Completed, NewJob
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, finding, ids, job, rules

KEPT = rules(keep_us=3600 * 1_000_000)


def batch(number: int, *, fresh: bool, kept: bool = False) -> list[NewJob]:
    """Jobs that are alike; eight of them may be a pack."""
    made = [job(id, rules=KEPT if kept else GONE) for id in named(0, number)]
    return [msgspec.structs.replace(one, fresh=fresh) for one in made]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
@pytest.mark.parametrize("number", [1, 3, 20, 200])
async def test_a_batch_sent_twice_is_leased_once(
    bench: Bench, number: int, first: bool, second: bool
) -> None:
    """P12: each id is one job, whoever says that it was made for this very call."""
    await bench.put("other")
    one, other = batch(number, fresh=first), batch(number, fresh=second)

    created = [each.created for each in await bench.store.enqueue(one)]
    again = [each.created for each in await bench.store.enqueue(other)]

    assert (created, again) == ([True] * number, [False] * number)
    leases = [*await bench.claim(1000), *await bench.claim(1000)]
    assert sorted(ids(leases)) == sorted(["other", *(each.id for each in one)])


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("number", [1, 20])
async def test_an_ended_job_that_is_kept_keeps_its_id(
    bench: Bench, number: int, fresh: bool
) -> None:
    """P6, P12: no second job of its id is made beside it."""
    jobs = batch(number, fresh=fresh, kept=True)
    await bench.store.enqueue(jobs)
    for lease in await bench.claim(1000):
        await bench.end(lease, Completed())

    again = await bench.store.enqueue(jobs)

    assert not any(each.created for each in again)
    assert await bench.claim(1000) == []
    page = await bench.store.find(finding(ACME, limit=1000))
    assert sorted(ids(page.jobs)) == sorted(each.id for each in jobs)


async def test_one_of_a_batch_that_waits_in_a_pack_is_not_made_again(bench: Bench) -> None:
    """P12: singly, too, and amid new ones."""
    jobs = batch(40, fresh=True)
    await bench.store.enqueue(jobs[10:30])

    [single] = await bench.store.enqueue([jobs[12]])
    rest = await bench.store.enqueue(jobs)

    assert not single.created
    assert [each.created for each in rest] == [True] * 10 + [False] * 20 + [True] * 10
    assert sorted(ids(await bench.claim(1000))) == [each.id for each in jobs]
