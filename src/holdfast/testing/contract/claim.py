"""Claim: which leases a claim returns, and when a job is claimable."""

from __future__ import annotations

import pytest

from holdfast.core.bounds import CLAIM_MAX
from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidInput
from holdfast.core.job import Completed, Failed, Lease, State
from holdfast.store import Act
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    AUDIO,
    GLOBEX,
    LEASE,
    MAIL,
    RETRY_S,
    changing,
    ids,
    rules,
)


async def test_a_lease_carries_the_job_a_token_and_a_deadline(bench: Bench) -> None:
    """P2: a lease is complete."""
    await bench.put("a", body=b"payload")

    lease = await bench.one(worker="w7", lease_us=15 * SECOND)

    assert lease.token
    assert lease.until == bench.clock.now() + 15 * SECOND
    assert lease.job.state is State.PROCESSING
    assert (lease.job.attempt, lease.job.fence) == (1, 1)
    assert lease.fence == lease.job.created_at + 1
    assert (lease.job.worker, lease.job.lease_until) == ("w7", lease.until)
    assert lease.job.envelope.body == b"payload"
    assert await bench.get("a") == lease.job


async def test_a_claim_of_an_empty_store_returns_at_once(bench: Bench) -> None:
    """P15: a claim without eligible jobs returns an empty list."""
    assert await bench.claim(10) == []


async def test_a_claim_for_nothing_takes_nothing(bench: Bench) -> None:
    """P15: a limit of 0 is legal and leases no job."""
    await bench.put("a")

    assert await bench.claim(0) == []
    assert await bench.state("a") is State.ENQUEUED


async def test_a_claim_takes_at_most_its_limit(bench: Bench) -> None:
    """P15: the limit is never exceeded, also over several lines."""
    await bench.put("a", "b", "c")
    await bench.put("d", "e", queue=AUDIO)
    await bench.put("f", tenant=GLOBEX)

    assert len(await bench.claim(4)) == 4
    assert len(await bench.claim(4)) == 2


@pytest.mark.parametrize("limit", [-1, CLAIM_MAX + 1])
async def test_a_claim_out_of_bounds_is_refused(bench: Bench, limit: int) -> None:
    """P15: InvalidInput names the field; no job is leased."""
    await bench.put("a")

    with pytest.raises(InvalidInput) as caught:
        await bench.claim(limit)

    assert caught.value.facts["field"] == "limit"
    assert await bench.state("a") is State.ENQUEUED


async def test_a_leased_job_is_not_given_to_another(bench: Bench) -> None:
    """P2: at any instant a job has at most one valid lease."""
    await bench.held("a")

    bench.clock.set(bench.clock.now() + LEASE - 1)

    assert await bench.claim(10, worker="w2") == []


async def test_every_lease_has_a_token_of_its_own(bench: Bench) -> None:
    """P3: no two leases share a token, in one claim or over time."""
    await bench.put("a", "b", "c")
    leases = await bench.claim(3)
    bench.clock.advance(60)
    leases += await bench.claim(3)

    assert len(leases) == 6
    assert len({lease.token for lease in leases}) == 6


async def test_no_token_is_ever_shown_in_a_record(bench: Bench) -> None:
    """P3: the token is the holder's secret: not in records, not in the lease's own text."""
    lease = await bench.held("a")
    found = await bench.get("a")

    assert lease.token not in repr(found)
    assert lease.token not in repr(lease.job)
    assert lease.token not in repr(lease)
    assert not any(lease.token in repr(event) for event in await bench.history("a"))


async def test_a_job_is_claimable_at_the_very_instant_it_is_due(bench: Bench) -> None:
    """P10: not a microsecond later, not one earlier, and without upkeep."""
    await bench.put("a", delay_us=30 * SECOND)
    due = (await bench.get("a")).run_at

    bench.clock.set(due - bench.store.capabilities.time_precision_us)
    assert await bench.claim(1) == []

    bench.clock.set(due)
    assert ids(await bench.claim(1)) == ["a"]


async def test_a_retry_is_claimable_at_the_very_instant_it_is_due(bench: Bench) -> None:
    """P10: a retry's instant is kept as exactly as a schedule's."""
    lease = await bench.held("a")
    await bench.end(lease, Failed("boom"))
    due = (await bench.get("a")).run_at
    assert due == bench.clock.now() + RETRY_S * SECOND

    bench.clock.set(due - bench.store.capabilities.time_precision_us)
    assert await bench.claim(1) == []

    bench.clock.set(due)
    assert ids(await bench.claim(1)) == ["a"]


async def test_a_lapsed_lease_is_claimable_at_the_very_instant_it_expires(bench: Bench) -> None:
    """P10: a dead worker's job is taken without waiting for upkeep."""
    first = await bench.held("a")
    bench.clock.set(first.until - bench.store.capabilities.time_precision_us)
    assert await bench.claim(1) == []

    bench.clock.set(first.until)
    second = await bench.one(worker="w2")

    assert second.job.id == "a"
    assert (second.job.attempt, second.job.fence, second.job.lapses) == (2, 2, 1)
    assert second.job.worker == "w2"
    assert second.token != first.token


async def test_a_lapsed_lease_without_attempts_left_is_not_claimable(bench: Bench) -> None:
    """P11: at max_attempts an expiry is final, also before upkeep says so."""
    await bench.held("a", rules=rules(max_attempts=1))

    bench.clock.advance(3600)

    assert await bench.claim(10) == []


async def test_a_job_past_its_time_to_live_is_not_claimable(bench: Bench) -> None:
    """P10: a job that could not start in time does not start late."""
    await bench.put("a", ttl_us=30 * SECOND)
    await bench.put("b", ttl_us=31 * SECOND)

    bench.clock.advance(30)

    assert ids(await bench.claim(10)) == ["b"]


async def test_a_time_to_live_does_not_end_a_lease(bench: Bench) -> None:
    """P2: a job that started in time may finish."""
    lease = await bench.held("a", ttl_us=30 * SECOND)

    bench.clock.advance(45)

    assert (await bench.end(lease, Completed())).state is State.COMPLETED


async def test_a_claim_keeps_to_its_tenants(bench: Bench) -> None:
    """P7: a worker of one tenant never gets another's job."""
    await bench.put("a", tenant=ACME)
    await bench.put("g", tenant=GLOBEX)

    assert ids(await bench.claim(10, tenants=(GLOBEX,))) == ["g"]
    assert await bench.claim(10, tenants=(GLOBEX, "unknown")) == []
    assert ids(await bench.claim(10, tenants=(GLOBEX, ACME))) == ["a"]


async def test_a_claim_keeps_to_its_queues(bench: Bench) -> None:
    """P9: a queue that is not asked for neither gives jobs nor hides others."""
    await bench.put("a", queue=MAIL, priority=9)
    await bench.put("b", queue=AUDIO)

    assert ids(await bench.claim(10, queues=(AUDIO,))) == ["b"]
    assert await bench.claim(10, queues=("unknown",)) == []
    assert ids(await bench.claim(10, queues=(AUDIO, MAIL))) == ["a"]


async def test_a_claim_for_no_tenant_or_queue_gets_nothing(bench: Bench) -> None:
    """P7: an empty list of tenants is not the same as all tenants."""
    await bench.put("a")

    assert await bench.claim(10, tenants=()) == []
    assert await bench.claim(10, queues=()) == []


async def test_lines_share_a_claim_in_turn(bench: Bench) -> None:
    """P9: a tenant with many jobs does not keep others waiting."""
    await bench.put(*(f"a{n}" for n in range(20)), tenant=ACME)
    await bench.put("g0", "g1", tenant=GLOBEX)
    await bench.put("m0", queue=AUDIO, tenant=ACME)

    leases = await bench.claim(6)

    got = ids(leases)
    assert len(got) == 6
    assert "m0" in got
    assert {"g0", "g1"} <= set(got)
    assert sorted(id for id in got if id.startswith("a")) == ["a0", "a1", "a2"]


async def test_a_line_that_runs_dry_leaves_its_share_to_others(bench: Bench) -> None:
    """P9: sharing never leaves jobs behind while there is room, whatever the sizes of the lines."""
    await bench.put("a0", "a1", tenant=ACME)
    await bench.put("g0", tenant=GLOBEX)
    await bench.put("i0", "i1", "i2", "i3", tenant="initech")

    assert len(await bench.claim(6)) == 6
    assert len(await bench.claim(6)) == 1


async def test_single_claims_starve_no_line(bench: Bench) -> None:
    """P9: claims of one serve other lines too, not only the one that came first."""
    await bench.put(*(f"a{n}" for n in range(30)), tenant=ACME, priority=9)
    await bench.put("g", tenant=GLOBEX)

    first = [(await bench.one()).job.id for _ in range(20)]

    assert "g" in first


async def test_a_new_lease_starts_without_the_old_progress(bench: Bench) -> None:
    """P4: progress tells of the running attempt only."""
    lease = await bench.held("a")
    await bench.extend(lease, progress="90%")
    assert (await bench.get("a")).progress == "90%"
    bench.clock.advance(60)

    again = await bench.one()

    assert again.job.progress is None


async def test_nothing_finished_is_ever_claimed_again(bench: Bench) -> None:
    """P6: completed, failed and canceled are final."""
    await bench.put("done", "failed", "canceled")
    leases: dict[str, Lease] = {lease.job.id: lease for lease in await bench.claim(3)}
    await bench.end(leases["done"], Completed())
    await bench.end(leases["failed"], Failed("no", retryable=False))
    await bench.cancel("canceled")

    bench.clock.advance(600)

    assert await bench.claim(10) == []
    await bench.upkeep()
    assert await bench.claim(10) == []


async def test_a_deleted_job_is_never_claimed(bench: Bench) -> None:
    """P6: what was deleted is gone from every line."""
    await bench.put("a", "b")
    await bench.put("later", delay_us=5 * SECOND)
    await bench.store.change(changing(Act.DELETE, ids=("a", "later")))

    bench.clock.advance(5)

    assert ids(await bench.claim(10)) == ["b"]
