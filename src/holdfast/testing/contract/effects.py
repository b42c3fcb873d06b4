"""Effects (P3, P4): fence and effect key, also if an id is reused."""

from __future__ import annotations

from holdfast.core.clock import SECOND
from holdfast.core.job import Abandoned, Completed, Failed, Released, Snoozed, effect_key
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import RETRY_S, rules


async def test_every_lease_of_a_job_has_the_same_effect_key_and_a_higher_fence(
    bench: Bench,
) -> None:
    """P4: whatever ended the lease before, an expiry too."""
    await bench.put("a", "b", rules=rules(max_attempts=9))
    leases = []
    for outcome in (Released(), Failed("boom"), Snoozed(SECOND), Abandoned()):
        lease = await bench.one()
        leases.append(lease)
        await bench.end(lease, outcome)
        await bench.cancel("b")
        bench.clock.advance(RETRY_S)
    leases.append(await bench.one())
    bench.clock.advance(60)
    leases.append(await bench.one())

    assert {lease.job.id for lease in leases} == {"a"}
    assert len({effect_key(lease.job) for lease in leases}) == 1
    fences = [lease.fence for lease in leases]
    assert fences == sorted(set(fences))


async def test_an_id_used_again_has_another_effect_key_and_a_higher_fence(bench: Bench) -> None:
    """P3, P4: else the effects of the new job would be dropped as repeated or outdated ones."""
    await bench.put("a", rules=rules(keep_us=0, max_attempts=9))
    for _ in range(5):
        await bench.end(await bench.one(), Released())
    before = await bench.one()
    assert (await bench.end(before, Completed())).error is None
    assert await bench.peek("a") is None
    bench.clock.advance(0.001)

    after = await bench.held("a")

    assert after.job.fence == 1
    assert after.fence > before.fence
    assert effect_key(after.job) != effect_key(before.job)


async def test_a_canceled_id_used_at_the_same_instant_has_another_effect_key(bench: Bench) -> None:
    """P4: a clock that stands still does not make two jobs one."""
    before = await bench.held("a", rules=rules(keep_us=0))
    await bench.cancel("a")

    after = await bench.held("a")

    assert effect_key(after.job) != effect_key(before.job)
