"""Order (P9): by priority, then by first enqueue; an ineligible first job never blocks others."""

from __future__ import annotations

from holdfast.core.bounds import REPAIR_MAX
from holdfast.core.clock import SECOND
from holdfast.core.job import Abandoned, Failed, Outcome, Released, Snoozed
from holdfast.store import Act
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    AUDIO,
    LEASE,
    MAIL,
    RETRY_S,
    changing,
    ids,
    job,
    rules,
)


async def test_higher_priorities_come_first(bench: Bench) -> None:
    """P9: higher numbers first, negative ones last."""
    for id, priority in (("low", -5), ("mid", 0), ("top", 10), ("high", 3)):
        await bench.put(id, priority=priority)

    assert ids(await bench.claim(10)) == ["top", "high", "mid", "low"]


async def test_equals_come_in_the_order_of_their_enqueue(bench: Bench) -> None:
    """P9: first come, first served, whatever the ids sort like."""
    names = ["z", "a", "m", "b", "y"]
    await bench.add(*(job(name) for name in names[:3]))
    await bench.put(*names[3:])

    assert ids(await bench.claim(10)) == names


async def test_the_order_holds_over_single_claims(bench: Bench) -> None:
    """P9: one at a time gives the same order as all at once."""
    for n in range(12):
        await bench.put(f"j{n:02}", priority=n % 3)

    one_by_one = [(await bench.one()).job.id for _ in range(12)]

    assert one_by_one == [f"j{n:02}" for p in (2, 1, 0) for n in range(12) if n % 3 == p]


async def test_the_order_does_not_follow_the_clock(bench: Bench) -> None:
    """P9: jobs of one instant keep their sequence."""
    await bench.put(*(f"j{n:02}" for n in range(30)))

    assert ids(await bench.claim(30)) == [f"j{n:02}" for n in range(30)]


async def test_a_retry_keeps_its_place(bench: Bench) -> None:
    """P9: a retried old job comes before newer ones."""
    lease = await bench.held("old")
    await bench.put("new")
    await bench.end(lease, Failed("boom"))

    bench.clock.advance(RETRY_S)

    assert ids(await bench.claim(10)) == ["old", "new"]


async def test_what_is_given_back_keeps_its_place(bench: Bench) -> None:
    """P9: release, snooze and shutdown do not send a job to the back."""
    await bench.put("a", "b", "c")
    leases = await bench.claim(3)
    await bench.put("d")
    outcomes: list[Outcome] = [Released(), Snoozed(SECOND), Abandoned()]
    for lease, outcome in zip(leases, outcomes, strict=True):
        await bench.end(lease, outcome)

    bench.clock.advance(1)

    assert ids(await bench.claim(10)) == ["a", "b", "c", "d"]


async def test_a_lapsed_lease_keeps_its_place(bench: Bench) -> None:
    """P9: a rescued job comes before newer ones, rescued by a claim or by upkeep."""
    await bench.put("a", "b")
    await bench.claim(2)
    await bench.put("c")
    bench.clock.advance(60)

    assert ids(await bench.claim(1)) == ["a"]
    await bench.upkeep()
    assert ids(await bench.claim(10)) == ["b", "c"]


async def test_a_due_job_takes_its_place_by_its_first_enqueue(bench: Bench) -> None:
    """P9: sequence counts from the enqueue, not from the instant a job became due."""
    await bench.put("scheduled", delay_us=30 * SECOND)
    await bench.put("ready")

    bench.clock.advance(30)

    assert ids(await bench.claim(10)) == ["scheduled", "ready"]


async def test_due_jobs_come_by_priority_not_by_due_time(bench: Bench) -> None:
    """P9: among due jobs the instant they became due means nothing."""
    await bench.put("early", delay_us=1 * SECOND, priority=0)
    await bench.put("late", delay_us=9 * SECOND, priority=5)

    bench.clock.advance(10)

    assert ids(await bench.claim(10)) == ["late", "early"]


async def test_a_reprioritised_job_moves(bench: Bench) -> None:
    """P9: the priority of now decides."""
    await bench.put("a", "b", "c")
    await bench.store.change(changing(Act.REPRIORITISE, ids=("c",), priority=7))
    await bench.store.change(changing(Act.REPRIORITISE, ids=("a",), priority=-7))

    assert ids(await bench.claim(10)) == ["c", "b", "a"]


async def test_leased_heads_hide_nothing(bench: Bench) -> None:
    """P9: no scan window: any number of held jobs before it leave a job claimable."""
    await bench.put(*(f"held{n}" for n in range(REPAIR_MAX + 50)), priority=9)
    assert len(await bench.claim(REPAIR_MAX + 50)) == REPAIR_MAX + 50
    await bench.put("last")

    assert ids(await bench.claim(1)) == ["last"]


async def test_scheduled_heads_hide_nothing(bench: Bench) -> None:
    """P9: any number of jobs that are not due leave a job claimable."""
    await bench.put(*(f"s{n}" for n in range(REPAIR_MAX + 50)), priority=9, delay_us=LEASE)
    await bench.put("last")

    assert ids(await bench.claim(10)) == ["last"]


async def test_retrying_heads_hide_nothing(bench: Bench) -> None:
    """P9: jobs that wait for their retry leave a job claimable."""
    await bench.put(*(f"r{n}" for n in range(20)), priority=9)
    for lease in await bench.claim(20):
        await bench.end(lease, Failed("boom"))
    await bench.put("last")

    assert ids(await bench.claim(10)) == ["last"]


async def test_expired_heads_hide_nothing(bench: Bench) -> None:
    """P9: any number of jobs past their time to live leave a job claimable."""
    await bench.put(*(f"e{n}" for n in range(REPAIR_MAX + 50)), priority=9, ttl_us=SECOND)
    await bench.put("last")
    bench.clock.advance(1)

    assert ids(await bench.claim(1)) == ["last"]


async def test_expired_and_due_heads_hide_nothing(bench: Bench) -> None:
    """P9: jobs that expired while scheduled leave a due job claimable."""
    many = REPAIR_MAX + 50
    await bench.put(*(f"e{n}" for n in range(many)), priority=9, delay_us=SECOND, ttl_us=SECOND)
    await bench.put("last", delay_us=2 * SECOND)
    bench.clock.advance(2)

    assert ids(await bench.claim(1)) == ["last"]


async def test_spent_heads_hide_nothing(bench: Bench) -> None:
    """P9: lapsed leases without attempts left leave a job claimable."""
    many = REPAIR_MAX + 50
    await bench.put(*(f"x{n}" for n in range(many)), priority=9, rules=rules(max_attempts=1))
    assert len(await bench.claim(many)) == many
    bench.clock.advance(60)
    await bench.put("last")

    assert ids(await bench.claim(1)) == ["last"]


async def test_another_queue_hides_nothing(bench: Bench) -> None:
    """P9: a full queue that is not asked for leaves the other's job claimable."""
    await bench.put(*(f"m{n}" for n in range(300)), queue=MAIL, priority=9)
    await bench.put("last", queue=AUDIO)

    assert ids(await bench.claim(1, queues=(AUDIO,))) == ["last"]


async def test_many_jobs_due_at_once_still_come_by_priority(bench: Bench) -> None:
    """P9: making due jobs ready in bounded steps does not bend the order."""
    await bench.put(*(f"low{n}" for n in range(2 * REPAIR_MAX + 50)), delay_us=1 * SECOND)
    await bench.put("top", delay_us=2 * SECOND, priority=1)
    bench.clock.advance(2)

    assert ids(await bench.claim(2)) == ["top", "low0"]


async def test_many_lapsed_leases_still_come_by_priority(bench: Bench) -> None:
    """P9: rescuing in bounded steps does not bend the order."""
    many = 2 * REPAIR_MAX + 50
    await bench.put(*(f"low{n}" for n in range(many)))
    assert len(await bench.claim(many, lease_us=SECOND)) == many
    await bench.put("top", priority=1)
    await bench.claim(1, lease_us=2 * SECOND)
    bench.clock.advance(2)

    assert ids(await bench.claim(2)) == ["top", "low0"]
