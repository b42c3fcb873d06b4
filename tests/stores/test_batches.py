"""Batches of jobs that are alike: each job is still claimed, acked, found and told by itself."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from holdfast.core.clock import SECOND
from holdfast.core.errors import JobNotFound
from holdfast.core.job import Completed, Event, EventKind, Failed, Lease, NewJob, State
from holdfast.core.lifecycle import decide
from holdfast.core.scope import Scope, ScopeSettings, encode
from holdfast.store import Acked, Act, Change, Claim, Extension, Put, Ref, Store
from holdfast.testing import ManualClock
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    GLOBEX,
    LEASE,
    finding,
    ids,
    job,
    rules,
    select,
)

GONE = rules(keep_us=0)
"""Such a job is deleted when it is done."""


@pytest.fixture
def store(bench: Bench) -> Store:
    return bench.store


@pytest.fixture
def clock(bench: Bench) -> ManualClock:
    return bench.clock


def alike(first: int, last: int, **options: Any) -> list[NewJob]:
    """Jobs that differ only in their numbers."""
    return [job(id, **{"rules": GONE, **options}) for id in names(first, last)]


def name(number: int) -> str:
    """Ids with a common prefix, as those that are made at one time."""
    return f"job-of-a-batch-{number:03}"


def names(first: int, last: int) -> list[str]:
    return [name(number) for number in range(first, last)]


async def claimed(store: Store, limit: int, nonce: str | None = None) -> list[Lease]:
    nonce = nonce or uuid4().hex
    return await store.claim(Claim(worker="w", nonce=nonce, limit=limit, lease_us=LEASE))


async def complete(store: Store, leases: list[Lease]) -> list[Acked]:
    return await store.ack([decide(Completed(), one.job, one.token, 0.0) for one in leases])


async def check_counts(store: Store, **counts: int) -> None:
    """The counts are these, and a recount finds the same."""
    (before,) = await store.count(ACME)
    (after,) = await store.count(ACME, recount=True)
    assert before.counts == {State(name): number for name, number in counts.items()}
    assert (before.counts, before.oldest_at) == (after.counts, after.oldest_at)
    assert after.correction == 0


async def test_jobs_of_two_queues_in_one_call_keep_what_is_theirs(store: Store) -> None:
    """Their own queues, payloads and priorities."""
    jobs = [*alike(0, 10), *alike(10, 20, queue="other", priority=5)]
    await store.enqueue(jobs)
    leases = await store.claim(
        Claim(worker="w", nonce=uuid4().hex, limit=20, lease_us=LEASE, queues=("other",))
    )

    assert ids(leases) == names(10, 20)
    assert {(one.job.queue, one.job.priority) for one in leases} == {("other", 5)}
    for one, new in zip(leases, jobs[10:], strict=True):
        assert one.job.envelope == new.envelope


async def test_batches_and_single_jobs_are_claimed_in_one_order(store: Store) -> None:
    """Priority first, then the order of enqueues."""
    await store.enqueue([job("r1", rules=GONE)])
    await store.enqueue(alike(0, 10))
    await store.enqueue([job("r2", rules=GONE), job("high", rules=GONE, priority=9)])
    await store.enqueue(alike(10, 20))
    await store.enqueue(alike(20, 30, priority=5))

    taken: list[str] = []
    for number in range(40):
        leases = await claimed(store, 7, f"n{number}")
        taken += ids(leases)

    assert taken == ["high", *names(20, 30), "r1", *names(0, 10), "r2", *names(10, 20)]


async def test_a_claim_takes_the_front_of_a_batch_and_leaves_the_rest(store: Store) -> None:
    """Parts of a batch are leased, done and waiting at the same time, and are counted so."""
    await store.enqueue(alike(0, 100))
    first = await claimed(store, 30, "a")
    second = await claimed(store, 5, "b")
    await complete(store, first[:10])

    await check_counts(store, enqueued=65, processing=25)
    assert ids(second) == names(30, 35)
    assert ids(await claimed(store, 100, "c")) == names(35, 100)


async def test_a_waiting_job_of_a_batch_can_be_canceled(store: Store) -> None:
    """The others keep their places."""
    await store.enqueue(alike(0, 20))
    (answer,) = await store.cancel([Ref(ACME, name(3))])

    assert answer.canceled
    expected = [id for id in names(0, 20) if id != name(3)]
    assert ids(await claimed(store, 100)) == expected


async def test_a_leased_job_of_a_batch_can_be_canceled(store: Store) -> None:
    """Its worker's ack is refused; those of the others are not."""
    await store.enqueue(alike(0, 20))
    leases = await claimed(store, 20)
    await store.cancel([Ref(ACME, name(3))])

    answers = await complete(store, leases)

    assert [answer.id for answer in answers if answer.error is not None] == [name(3)]
    assert await store.count(ACME) == []


async def test_an_id_of_a_batch_is_known(store: Store) -> None:
    """P12: the same id again makes no second job, waiting or leased."""
    await store.enqueue(alike(0, 20))
    await claimed(store, 10)

    answers = await store.enqueue([job(name(2), rules=GONE), job(name(15), rules=GONE)])

    assert [answer.created for answer in answers] == [False, False]
    await check_counts(store, enqueued=10, processing=10)


async def test_an_operator_finds_jobs_of_any_tenant_by_id(store: Store) -> None:
    """A find over all tenants takes ids without their tenants."""
    await store.enqueue(alike(0, 20))
    await store.enqueue(alike(20, 40, tenant="other"))

    page = await store.find(finding(tenant=None, ids=(name(3), name(30)), newest_first=False))

    assert [(one.tenant, one.id) for one in page.jobs] == [(ACME, name(3)), ("other", name(30))]


async def test_a_change_selects_some_jobs_of_a_batch(store: Store) -> None:
    """By order and limit, and by id; the others stay as they are."""
    await store.enqueue(alike(0, 40))
    raised = await store.change(
        Change(act=Act.REPRIORITISE, select=select(), after=0, limit=10, priority=7)
    )
    assert list(raised.done) == [Ref(ACME, id) for id in names(0, 10)]

    deleted = await store.change(
        Change(act=Act.DELETE, select=select(ids=(name(20), name(30))), after=0, limit=10)
    )
    assert len(deleted.done) == 2
    await check_counts(store, enqueued=38)


async def test_the_jobs_of_batches_ahead_of_a_job_are_counted(store: Store) -> None:
    """Each job counts, however it was enqueued."""
    await store.enqueue(alike(0, 20))
    await store.enqueue(alike(20, 40))
    await store.enqueue([job("last", rules=GONE)])

    explained = await store.explain(Ref(ACME, "last"))

    assert explained.ahead == 40


async def test_the_holders_of_a_limit_are_named(store: Store) -> None:
    """The explanation lists jobs of the same batch that run."""
    await store.settings([Put(Scope(ACME).name, encode(ScopeSettings(max_running=9)), 0)])
    await store.enqueue(alike(0, 20))
    await claimed(store, 20)

    explained = await store.explain(Ref(ACME, name(15)))

    (gate,) = explained.gates
    assert set(gate.holders) <= set(names(0, 9))
    assert gate.holders


async def test_a_lapsed_claim_is_rescued_but_for_what_is_done(
    store: Store, clock: ManualClock
) -> None:
    """P2: jobs of a silent worker run again, done ones do not, late acks are refused."""
    await store.enqueue(alike(0, 20))
    leases = await claimed(store, 20, "a")
    await complete(store, leases[:5])
    clock.advance(LEASE / SECOND + 1)

    again = await claimed(store, 100, "b")

    assert ids(again) == names(5, 20)
    assert {(one.job.attempt, one.job.fence, one.job.lapses) for one in again} == {(2, 2, 1)}
    late = await complete(store, leases[5:])
    assert all(answer.error is not None for answer in late)
    assert all(answer.error is None for answer in await complete(store, again))
    assert await store.count(ACME) == []


async def test_a_batch_on_its_last_attempt_expires(store: Store, clock: ManualClock) -> None:
    """P3: upkeep finds jobs whose only attempt was lost, also if no claim comes."""
    await store.enqueue(alike(0, 10, rules=rules(keep_us=0, max_attempts=1)))
    await claimed(store, 10)
    clock.advance(LEASE / SECOND + 1)

    lapsed = await store.expired(100)

    assert sorted(one.job.id for one in lapsed) == names(0, 10)


async def test_one_heartbeat_extends_one_lease_of_a_claim(store: Store, clock: ManualClock) -> None:
    """Each job of a claim has a lease of its own."""
    await store.enqueue(alike(0, 20))
    leases = await claimed(store, 10, "a")
    one = leases[3]
    (extended,) = await store.extend(
        [
            Extension(
                tenant=ACME, id=one.job.id, token=one.token, lease_us=3 * LEASE, progress="half"
            )
        ]
    )
    assert extended.error is None
    clock.advance(LEASE / SECOND + 1)

    again = await claimed(store, 100, "b")

    assert ids(again) == [id for id in names(0, 20) if id != one.job.id]
    (acked,) = await complete(store, [one])
    assert acked.error is None


async def test_a_failure_among_completions_is_only_its_own(store: Store) -> None:
    """One job goes to its retry; the acks of the others, before and after, are accepted."""
    await store.enqueue(alike(0, 20))
    leases = await claimed(store, 20)
    changes = [decide(Completed(), one.job, one.token, 0.0) for one in leases]
    changes[7] = decide(Failed(error="x"), leases[7].job, leases[7].token, 0.0)

    answers = await store.ack(changes)

    assert [answer.state for answer in answers if answer.id == name(7)] == [State.RETRYING]
    assert all(answer.error is None for answer in answers)
    await check_counts(store, retrying=1)


async def test_a_job_of_a_batch_is_done_once(store: Store) -> None:
    """P4: the second ack of a done job finds nothing; another job's token is refused."""
    await store.enqueue(alike(0, 20))
    leases = await claimed(store, 20)
    one, other = leases[0], leases[1]
    done = decide(Completed(), one.job, one.token, 0.0)
    assert (await store.ack([done, done]))[1].error is not None

    (again,) = await store.ack([done])
    (wrong,) = await store.ack([decide(Completed(), other.job, one.token, 0.0)])

    assert isinstance(again.error, JobNotFound)
    assert wrong.error is not None
    await check_counts(store, processing=19)


async def test_the_events_of_each_job_of_a_batch_are_found(store: Store) -> None:
    """Each job has events of its own, also after its end."""
    await store.enqueue(alike(0, 20))
    leases = await claimed(store, 15)
    await complete(store, leases[2:9])

    lives = [EventKind.ENQUEUED, EventKind.LEASED, EventKind.COMPLETED]
    for at, length in ((0, 2), (5, 3), (8, 3), (12, 2), (19, 1)):
        page = await store.events(ACME, 0, 100, name(at))
        assert [one.kind for one in page.events] == lives[:length]
        assert {one.job_id for one in page.events} == {name(at)}
    page = await store.events(ACME, 0, 1000)
    assert [one.kind for one in page.events] == [
        *[EventKind.ENQUEUED] * 20,
        *[EventKind.LEASED] * 15,
        *[EventKind.COMPLETED] * 7,
    ]
    assert [one.job_id for one in page.events[-7:]] == names(2, 9)
    middle = page.events[10].cursor
    rest = await store.events(ACME, middle, 1000)
    assert rest.events == page.events[11:]


async def test_a_history_goes_on_when_an_id_is_used_again(store: Store) -> None:
    """P15: the events of a new job with the same id follow those of the old one."""
    await store.enqueue(alike(0, 20))
    await complete(store, await claimed(store, 20))

    await store.enqueue([job(name(3), rules=GONE)])

    page = await store.events(ACME, 0, 100, name(3))
    assert [one.kind for one in page.events] == [
        EventKind.ENQUEUED,
        EventKind.LEASED,
        EventKind.COMPLETED,
        EventKind.ENQUEUED,
    ]


@pytest.mark.parametrize("limit", [1, 7, 64])
async def test_the_events_of_batches_are_read_page_by_page(store: Store, limit: int) -> None:
    """P14: each event once, in order, of all tenants and of one."""
    await store.enqueue([job("a"), job("b", tenant=GLOBEX)])
    await store.enqueue(alike(0, 150))
    leases = await claimed(store, 60, "a")
    await complete(store, leases[50:20:-1] + leases[3:20])
    await store.enqueue(alike(150, 170, tenant=GLOBEX))
    every = (await store.events(None, 0, 1000)).events

    for tenant in (None, ACME, GLOBEX):
        seen, after, more = list[Event](), 0, True
        while more:
            page = await store.events(tenant, after, limit)
            seen += page.events
            more, after = bool(page.events), page.cursor
        assert seen == [one for one in every if tenant in (None, one.tenant)]
    head = (await store.events(None, -1, 1)).cursor
    assert (await store.events(None, head, 1)).events == []
    cursors = [one.cursor for one in every]
    assert cursors == sorted(set(cursors))
    assert len(cursors) == 2 + 150 + 60 + 47 + 20


async def test_the_events_of_batches_are_pruned(store: Store, clock: ManualClock) -> None:
    """P8: the oldest first, as many as asked for or a few more; a reader behind them is told."""
    await store.enqueue(alike(0, 150))
    clock.advance(10 * SECOND)
    await store.enqueue(alike(150, 170))
    every = (await store.events(ACME, 0, 1000)).events

    pruned = await store.prune(10, 5 * SECOND)

    assert pruned.more
    left = await store.events(ACME, 0, 1000)
    assert left.lost
    assert left.events == every[pruned.events :]
    while (pruned := await store.prune(1000, 5 * SECOND)).more:
        pass
    assert (await store.events(ACME, 0, 1000)).events == every[150:]
    assert (await store.events(ACME, 0, 1000, name(3))).events == []
    assert len((await store.events(ACME, 0, 1000, name(160))).events) == 1
