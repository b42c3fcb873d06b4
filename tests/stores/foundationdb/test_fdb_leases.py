"""The hybrid rule of leases: recoveries, dead workers, and hosts whose clocks are wrong."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from tests.foundationdb_engine import Engine, FDBError
from tests.foundationdb_engine.versions import RECOVERY_VERSIONS

from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidLeaseToken
from holdfast.core.job import Completed, Lease
from holdfast.core.lifecycle import decide
from holdfast.store import Acked, Claim, Extension
from holdfast.stores.foundationdb.clock import Instant, Witness
from holdfast.stores.foundationdb.options import Options
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import LEASE, job, rules

JOBS = 50
SILENT = 3
"""Of the jobs that run, those whose worker is never heard of again: these run twice, no other."""
LEASE_S = LEASE // SECOND
GRACE_S = 60.0
IDLE_S = 2.0
"""How far the version of an idle cluster may be behind."""

CLAIM_TURNS = 100
"""More turns of the loop than a claim takes whose every answer is delayed."""


class Site:
    """A cluster and the hosts that use it, on one clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.engine = Engine(self.clock)
        self._nonces = 0

    async def host(self, wall: ManualClock | None = None) -> FoundationStore:
        """A store without a clock of its own: wall, versions and monotonic time are the site's."""
        store = FoundationStore(Options(prefix="c", grace_s=GRACE_S), None, self.engine.database())
        store._time._witness = Witness(lambda: self.clock.now() / SECOND)
        store._time._clock = wall or self.clock
        await store.open()
        return store

    async def claim(self, store: FoundationStore, limit: int = JOBS) -> list[Lease]:
        self._nonces += 1
        claim = Claim(worker="w", nonce=f"n{self._nonces}", limit=limit, lease_us=LEASE)
        return await store.claim(claim)


async def beat(store: FoundationStore, leases: list[Lease]) -> None:
    """A heartbeat for all of them."""
    wishes = [
        Extension(tenant=one.job.tenant, id=one.job.id, token=one.token, lease_us=LEASE)
        for one in leases
    ]
    assert all(answer.error is None for answer in await store.extend(wishes))


async def complete(store: FoundationStore, leases: list[Lease]) -> list[Acked]:
    return await store.ack([decide(Completed(), one.job, one.token, 0.0) for one in leases])


async def test_a_recovery_makes_no_herd_of_early_steals() -> None:
    """A hundred seconds of versions at once, while 50 jobs run: each completes once, stale acks are
    refused, and of all jobs only those whose worker has died run twice, in time.
    """
    site = Site()
    first, second = await site.host(), await site.host()
    await first.enqueue([job(f"j{number}") for number in range(JOBS)])
    leases = await site.claim(first)
    alive, silent = leases[SILENT:], leases[:SILENT]
    runs = Counter(one.job.id for one in leases)

    site.clock.advance(5)
    site.engine.recover()
    young = await site.host()
    assert [await site.claim(store) for store in (first, second, young)] == [[], [], []]

    site.clock.advance(LEASE_S / 2)
    await beat(first, alive)
    site.clock.advance(LEASE_S / 2 - 2)  # The silent ones are over, for who saw all of it.
    assert await site.claim(young) == []
    again = await site.claim(second)
    runs.update(one.job.id for one in again)

    answers = await complete(second, again) + await complete(first, alive)
    late = await complete(first, silent)
    assert [answer.error for answer in answers] == [None] * JOBS
    assert {answer.id for answer in answers} == {f"j{number}" for number in range(JOBS)}
    assert all(answer.error is not None for answer in late)
    assert sum(count > 1 for count in runs.values()) == SILENT
    for store in (first, second, young):
        await store.close()


async def test_a_stale_ack_is_refused_while_the_job_runs_again() -> None:
    """The second run is not ended by the first one's answer, and completes."""
    site = Site()
    first, second = await site.host(), await site.host()
    await first.enqueue([job("x")])
    [old] = await site.claim(first)
    site.clock.advance(LEASE_S + 1)
    [new] = await site.claim(second)

    [stale] = await complete(first, [old])
    [good] = await complete(second, [new])

    assert isinstance(stale.error, InvalidLeaseToken)
    assert (good.error, new.fence) == (None, old.fence + 1)
    for store in (first, second):
        await store.close()


async def test_who_has_not_seen_the_lease_pass_waits_for_the_grace() -> None:
    """A process that is younger than a lease takes it by the wall clock, a minute past its end."""
    site = Site()
    first = await site.host()
    await first.enqueue([job("x")])
    [lease] = await site.claim(first)
    site.clock.advance(LEASE_S + 1)
    young = await site.host()

    site.clock.advance(GRACE_S - 2)
    early = await site.claim(young)
    site.clock.advance(1)
    [taken] = await site.claim(young)

    assert early == []
    assert taken.fence == lease.fence + 1
    for store in (first, young):
        await store.close()


async def restored(site: Site) -> None:
    """A new cluster, whose versions begin anew, with all that the old one had."""
    old, new = site.engine.database(), Engine(site.clock)
    for key, value in old.get_range(b"", b"\xfe"):
        new.database()[key] = value
    site.engine = new


@pytest.mark.parametrize("spent", [False, True])
async def test_a_lease_from_before_a_restore_ends_by_the_wall_clock(spent: bool) -> None:
    """P8, P2: its version lies days ahead of the new cluster's; it is freed a grace past its end,
    not before, and not days later.
    """
    site = Site()
    first = await site.host()
    site.clock.advance(8 * 24 * 3600)
    await first.enqueue([job("x", rules=rules(max_attempts=1 if spent else 3))])
    [lease] = await site.claim(first)
    await restored(site)
    second = await site.host()

    assert await site.claim(second) == []
    site.clock.advance(LEASE_S + GRACE_S - 2)
    await second.prune(100, 10**12)
    early = await site.claim(second), await second.expired(10)
    site.clock.advance(3)
    await second.prune(100, 10**12)

    assert early == ([], [])
    if spent:
        [lapsed] = await second.expired(10)
        assert (lapsed.job.id, lapsed.token) == ("x", lease.token)
    else:
        [taken] = await site.claim(second)
        assert taken.fence == lease.fence + 1
    for store in (first, second):
        await store.close()


async def test_a_lease_from_before_a_restore_holds_while_it_is_renewed() -> None:
    """P2: a worker that goes on after a restore keeps its job, and ends it."""
    site = Site()
    first = await site.host()
    site.clock.advance(8 * 24 * 3600)
    await first.enqueue([job("x")])
    leases = await site.claim(first)
    await restored(site)
    second, third = await site.host(), await site.host()

    for _ in range(10):
        site.clock.advance(LEASE_S / 2)
        await beat(second, leases)
        await third.prune(100, 10**12)
        assert await site.claim(third) == []

    [acked] = await complete(second, leases)
    assert acked.error is None
    for store in (first, second, third):
        await store.close()


def test_a_process_that_sees_versions_go_back_begins_anew() -> None:
    """P8: it vouches for nothing from before, and its clock goes on from there."""
    now = 0.0
    witness = Witness(lambda: now)
    witness.note(10**12)
    now = 1.0

    assert witness.note(5 * SECOND).ticks == 5 * SECOND
    now = 4.0
    observed = witness.note(8 * SECOND)
    assert (observed.ticks, observed.age(0)) == (8 * SECOND, 3 * SECOND)


def test_an_instant_is_judged_by_what_was_seen_up_to_it() -> None:
    """P8: an answer from before a recovery that is noted after it makes no lease old, nor do the
    next ones.
    """
    witness = Witness(lambda: 0.0)
    held = Instant(0, 10**12, witness, LEASE)
    lease = LEASE, held.deadline(LEASE), LEASE
    after = Instant(0, 10**12 + RECOVERY_VERSIONS, witness, LEASE)

    late = Instant(0, 10**12 + 1, witness, LEASE)
    assert not after.lapsed(*lease)
    last = Instant(0, 10**12 + RECOVERY_VERSIONS + 1, witness, LEASE)

    assert [each.lapsed(*lease) for each in (after, late, last)] == [False] * 3


async def test_an_answer_from_before_a_recovery_that_comes_late_steals_nothing() -> None:
    """A caller's own transaction, begun before it, is joined at any moment of a claim after it."""
    site = Site()
    site.engine.faults.delay = 1.0  # So that the claim and the other call take turns.
    first, second = await site.host(), await site.host()
    await first.enqueue([job("x")])
    [lease] = await site.claim(first)

    async def join_late(old: Any, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        with pytest.raises(FDBError):
            await second.enqueue_using(old, [job("late")])

    for turns in range(CLAIM_TURNS):
        old = site.engine.database().create_transaction()
        old.get_read_version().wait()
        site.engine.recover()
        found, _ = await asyncio.gather(site.claim(second), join_late(old, turns))
        assert found == []

    assert [answer.error for answer in await complete(first, [lease])] == [None]
    for store in (first, second):
        await store.close()


@pytest.mark.parametrize("wrong_s", [30.0, 3_600.0])
async def test_a_wall_clock_that_is_ahead_steals_nothing(wrong_s: float) -> None:
    """Versions say that the lease is not over, so it is not, whatever the time of the host."""
    site = Site()
    first = await site.host()
    ahead = ManualClock(site.clock.now())
    ahead.advance(wrong_s)
    hasty = await site.host(ahead)
    await first.enqueue([job("x")])
    [lease] = await site.claim(first)

    site.clock.advance(LEASE_S - 1)
    ahead.advance(LEASE_S - 1)

    assert await site.claim(hasty) == []
    assert [answer.error for answer in await complete(first, [lease])] == [None]
    for store in (first, hasty):
        await store.close()


async def test_a_wall_clock_that_is_behind_delays_nothing() -> None:
    """A dead worker's job is taken when its lease is over, by who has seen that time pass."""
    site = Site()
    first = await site.host()
    behind = ManualClock(site.clock.now() - 3_600 * SECOND)
    slow = await site.host(behind)
    await first.enqueue([job("x")])
    await site.claim(first)

    for clock in (site.clock, behind):
        clock.advance(LEASE_S + IDLE_S)

    assert [one.job.id for one in await site.claim(slow)] == ["x"]
    for store in (first, slow):
        await store.close()


async def test_a_lease_lasts_as_long_as_its_worker_is_told() -> None:
    """P2: also if nothing was written for a while, so that the version it was claimed at is old."""
    site = Site()
    here = await site.host()
    await here.enqueue([job("a")])
    site.clock.advance(1.5)
    [lease] = await site.claim(here, 1)
    assert lease.until == site.clock.now() + LEASE

    site.clock.advance(LEASE_S - 0.01)
    await here.enqueue([job("b")])  # The version is up to date again.

    assert [one.job.id for one in await site.claim(here, 2)] == ["b"]
    site.clock.advance(0.02)
    await here.enqueue([job("c")])
    assert {one.job.id for one in await site.claim(here, 2)} == {"a", "c"}
