"""Real concurrency on every store: threads, event loops, processes, and the store's own clock."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise

import pytest

from holdfast.core.bounds import BATCH_MAX, PAGE_MAX
from holdfast.core.clock import SECOND, Clock
from holdfast.core.errors import JobAlreadyTerminal, JobCanceled
from holdfast.core.job import Completed, Lease, State
from holdfast.core.lifecycle import decide
from holdfast.dispatch import name_of
from holdfast.store import Acked, Canceled, Claim, Enqueued, Ref, Store
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import (
    ACME,
    AUDIO,
    GLOBEX,
    LEASE,
    MAIL,
    finding,
    job,
    rules,
)
from holdfast.testing.contract.racing import (
    claim_all,
    claim_in_processes,
    claim_together,
    in_threads,
)

Make = Callable[[str, Clock | None], Store]

JOBS = 5000
CLAIMERS = 32
THREADS = 4


@pytest.fixture
async def store(make: Make) -> AsyncIterator[Store]:
    """For each store: opened, empty, on its own clock."""
    store = make("races", None)
    await store.open()
    yield store
    await store.close()


async def fill(store: Store, count: int) -> set[tuple[str, str]]:
    """Jobs over two tenants and two queues; gives their names."""
    jobs = [
        job(f"j{n}", tenant=(ACME, GLOBEX)[n % 2], queue=(MAIL, AUDIO)[n // 2 % 2])
        for n in range(count)
    ]
    for start in range(0, count, BATCH_MAX):
        answers = await store.enqueue(jobs[start : start + BATCH_MAX])
        assert all(answer.created for answer in answers)
    return {(each.tenant, each.id) for each in jobs}


def names(leases: list[Lease]) -> list[tuple[str, str]]:
    return [(lease.job.tenant, lease.job.id) for lease in leases]


async def test_claimers_in_threads_lease_each_job_once(store: Store) -> None:
    """P2: 32 claimers on 5,000 jobs: all are leased, none twice."""
    jobs = await fill(store, JOBS)

    def group(n: int) -> Callable[[], Awaitable[list[Lease]]]:
        return lambda: claim_together(store, f"t{n}", CLAIMERS // THREADS)

    taken = await asyncio.to_thread(in_threads, [group(n) for n in range(THREADS)])

    leases = [lease for part in taken for lease in part]
    assert len(leases) == JOBS
    assert set(names(leases)) == jobs
    assert {lease.job.fence for lease in leases} == {1}
    assert len({lease.token for lease in leases}) == JOBS


async def test_claimers_on_one_loop_lease_each_job_once(store: Store) -> None:
    """P2: the same with 32 tasks of one event loop."""
    jobs = await fill(store, JOBS)

    leases = await claim_together(store, "w", CLAIMERS)

    assert len(leases) == JOBS
    assert set(names(leases)) == jobs


async def test_claimers_in_processes_lease_each_job_once(
    store: Store, url: Callable[[str], str]
) -> None:
    """P2: 32 claimers in four processes that share nothing but the place of the store."""
    if not store.capabilities.shared:
        pytest.skip(f"{name_of(store)} declares shared=False")
    jobs = await fill(store, JOBS)

    taken = await asyncio.to_thread(claim_in_processes, url("races"), THREADS, CLAIMERS // THREADS)

    leases = [lease for part in taken for lease in part]
    assert len(leases) == JOBS
    assert {(tenant, id) for tenant, id, _, _ in leases} == jobs
    assert {fence for _, _, fence, _ in leases} == {1}
    assert len({token for *_, token in leases}) == JOBS


async def test_one_job_is_won_by_one_claim(store: Store) -> None:
    """P2: 64 claims of a single job, over threads and tasks: exactly one wins, each time."""
    for turn in range(5):
        await store.enqueue([job(f"single{turn}")])

        def claims(name: str) -> Callable[[], Awaitable[list[list[Lease]]]]:
            async def work() -> list[list[Lease]]:
                wishes = [
                    Claim(worker=name, nonce=f"{name}-{n}", limit=1, lease_us=LEASE)
                    for n in range(16)
                ]
                return await asyncio.gather(*(store.claim(wish) for wish in wishes))

            return work

        works = [claims(f"{turn}-{n}") for n in range(4)]
        answers = await asyncio.to_thread(in_threads, works)

        won = [lease for part in answers for leases in part for lease in leases]
        assert names(won) == [(ACME, f"single{turn}")]


async def test_no_two_leases_of_a_job_are_valid_at_a_time(make: Make) -> None:
    """P2: while leases lapse under the claimers' hands, those of one job never overlap."""
    clock = ManualClock()
    store = make("lapsing", clock)
    await store.open()
    try:
        patient = rules(max_attempts=1000)
        await store.enqueue([job(f"j{n}", rules=patient) for n in range(20)])

        async def claimer() -> list[Lease]:
            leases: list[Lease] = []
            for n in range(150):
                clock.advance(0.1)
                nonce = f"{threading.get_ident()}-{n}"
                leases += await store.claim(
                    Claim(worker="w", nonce=nonce, limit=3, lease_us=2 * SECOND)
                )
            return leases

        taken = await asyncio.to_thread(in_threads, [claimer] * THREADS)

        by_job: dict[str, list[Lease]] = {}
        for lease in (lease for part in taken for lease in part):
            by_job.setdefault(lease.job.id, []).append(lease)
        assert min(len(leases) for leases in by_job.values()) > 1
        for leases in by_job.values():
            leases.sort(key=lambda lease: lease.job.fence)
            assert [lease.job.fence for lease in leases] == list(range(1, len(leases) + 1))
            for earlier, later in pairwise(leases):
                assert later.until - 2 * SECOND >= earlier.until
    finally:
        await store.close()


async def test_cancel_and_complete_never_both_win(store: Store) -> None:
    """P5: on each of 1,000 jobs one of the two ends it, and both answers agree with the end."""
    count = 1000
    await store.enqueue([job(f"j{n}") for n in range(count)])
    leases = await claim_all(store, "w", limit=100)
    assert len(leases) == count
    answers: dict[str, list[Acked | Canceled]] = {f"j{n}": [] for n in range(count)}

    async def complete() -> bool:
        for part in parts(leases, 7):
            changes = [decide(Completed(), each.job, each.token, 0.0) for each in part]
            for answer in await store.ack(changes):
                answers[answer.id].append(answer)
        return True

    async def cancel() -> bool:
        for part in parts(leases, 7):
            for verdict in await store.cancel([Ref(ACME, each.job.id) for each in part]):
                answers[verdict.id].append(verdict)
        return True

    await asyncio.to_thread(in_threads, [complete, cancel, complete])

    page = await store.find(finding(limit=PAGE_MAX))
    states = {each.id: each.state for each in page.jobs}
    assert len(states) == count
    for id, state in states.items():
        [verdict] = [each for each in answers[id] if isinstance(each, Canceled)]
        acks = [each for each in answers[id] if isinstance(each, Acked)]
        assert len(acks) == 2
        accepted = sum(each.error is None for each in acks)
        if state is State.CANCELED:
            assert verdict.canceled
            assert accepted == 0
            assert all(isinstance(each.error, JobCanceled) for each in acks)
        else:
            assert state is State.COMPLETED
            assert not verdict.canceled
            assert accepted == 1
            assert sum(isinstance(each.error, JobAlreadyTerminal) for each in acks) == 1


def parts(leases: list[Lease], size: int) -> list[list[Lease]]:
    """The leases in small batches, in an order of the caller's own."""
    mixed = random.Random(size).sample(leases, len(leases))
    return [mixed[start : start + size] for start in range(0, len(mixed), size)]


async def test_one_key_makes_one_job(store: Store) -> None:
    """P12: 32 enqueues of one key at once, each with an id of its own, make one job."""

    def enqueues(n: int) -> Callable[[], Awaitable[list[list[Enqueued]]]]:
        async def work() -> list[list[Enqueued]]:
            jobs = [job(f"t{n}-{k}", key="the key") for k in range(8)]
            return await asyncio.gather(*(store.enqueue([each]) for each in jobs))

        return work

    taken = await asyncio.to_thread(in_threads, [enqueues(n) for n in range(4)])

    answers = [answer for part in taken for batch in part for answer in batch]
    assert len(answers) == 32
    assert sum(answer.created for answer in answers) == 1
    [id] = {answer.id for answer in answers}
    page = await store.find(finding())
    assert [each.id for each in page.jobs] == [id]


async def test_one_id_makes_one_job(store: Store) -> None:
    """P12: the same enqueue sent by many at once, after lost replies, makes one job."""

    async def work() -> list[list[Enqueued]]:
        return await asyncio.gather(*(store.enqueue([job("same")]) for _ in range(8)))

    taken = await asyncio.to_thread(in_threads, [work] * 4)

    answers = [answer for part in taken for batch in part for answer in batch]
    assert Counter(answer.created for answer in answers) == {True: 1, False: 31}
    assert len((await store.find(finding())).jobs) == 1
