"""Packs and pieces: jobs that are alike wait and are held in one value, and nobody can tell."""

from __future__ import annotations

from uuid import uuid4

import pytest
from tests.stores.parcels import GONE, check_counts, claimed, complete, fresh, ids, name, named

from holdfast.clock import SECOND
from holdfast.errors import JobNotFound
from holdfast.job import Completed, Event, EventKind, Failed, State
from holdfast.lifecycle import decide
from holdfast.scope import Scope, ScopeSettings, encode
from holdfast.store import Act, Change, Claim, Extension, Put, Ref, Store
from holdfast.testing import ManualClock
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, GLOBEX, LEASE, finding, job, rules, select


@pytest.fixture
def packed(bench: Bench) -> Store:
    """Every store: those that have no packs keep the same promises without."""
    return bench.store


@pytest.fixture
def clock(bench: Bench) -> ManualClock:
    return bench.clock


async def test_what_is_not_alike_is_not_packed_together(packed: Store) -> None:
    """Jobs of two queues in one call keep their own queues, payloads and priorities."""
    jobs = [*fresh(*named(0, 10)), *fresh(*named(10, 20), queue="other", priority=5)]
    await packed.enqueue(jobs)
    leases = await packed.claim(
        Claim(worker="w", nonce=uuid4().hex, limit=20, lease_us=LEASE, queues=("other",))
    )

    assert ids(leases) == named(10, 20)
    assert {(one.job.queue, one.job.priority) for one in leases} == {("other", 5)}
    for one, new in zip(leases, jobs[10:], strict=True):
        assert one.job.envelope == new.envelope


async def test_packs_and_rows_are_taken_in_one_order(packed: Store) -> None:
    """Priority first, then the order of enqueues, whatever form the jobs wait in."""
    await packed.enqueue([job("r1", rules=GONE)])
    await packed.enqueue(fresh(*named(0, 10)))
    await packed.enqueue([job("r2", rules=GONE), job("high", rules=GONE, priority=9)])
    await packed.enqueue(fresh(*named(10, 20)))
    await packed.enqueue(fresh(*named(20, 30), priority=5))

    taken: list[str] = []
    for number in range(40):
        leases = await claimed(packed, 7, f"n{number}")
        taken += ids(leases)

    assert taken == ["high", *named(20, 30), "r1", *named(0, 10), "r2", *named(10, 20)]


async def test_a_claim_takes_the_front_of_a_pack_and_leaves_the_rest(packed: Store) -> None:
    """Parts of a pack can be held, done and waiting at the same time, and are counted so."""
    await packed.enqueue(fresh(*named(0, 100)))
    first = await claimed(packed, 30, "a")
    second = await claimed(packed, 5, "b")
    await complete(packed, first[:10])

    await check_counts(packed, enqueued=65, processing=25)
    assert ids(second) == named(30, 35)
    assert ids(await claimed(packed, 100, "c")) == named(35, 100)


async def test_a_packed_job_can_be_canceled(packed: Store) -> None:
    """The others keep their places."""
    await packed.enqueue(fresh(*named(0, 20)))
    (answer,) = await packed.cancel([Ref(ACME, name(3))])

    assert answer.canceled
    expected = [id for id in named(0, 20) if id != name(3)]
    assert ids(await claimed(packed, 100)) == expected


async def test_a_held_job_of_a_pack_can_be_canceled(packed: Store) -> None:
    """Its worker's ack is refused; those of the others are not."""
    await packed.enqueue(fresh(*named(0, 20)))
    leases = await claimed(packed, 20)
    await packed.cancel([Ref(ACME, name(3))])

    answers = await complete(packed, leases)

    assert [answer.id for answer in answers if answer.error is not None] == [name(3)]
    assert await packed.count(ACME) == []


async def test_an_id_inside_a_pack_is_known(packed: Store) -> None:
    """P12: the same id again makes no second job, waiting or held."""
    await packed.enqueue(fresh(*named(0, 20)))
    await claimed(packed, 10)

    answers = await packed.enqueue([job(name(2), rules=GONE), job(name(15), rules=GONE)])

    assert [answer.created for answer in answers] == [False, False]
    await check_counts(packed, enqueued=10, processing=10)


async def test_an_operator_finds_packed_jobs_of_any_tenant_by_id(packed: Store) -> None:
    """Who looks over all tenants may name ids without saying whose they are."""
    await packed.enqueue(fresh(*named(0, 20)))
    await packed.enqueue(fresh(*named(20, 40), tenant="other"))

    page = await packed.find(finding(tenant=None, ids=(name(3), name(30)), newest_first=False))

    assert [(one.tenant, one.id) for one in page.jobs] == [(ACME, name(3)), ("other", name(30))]


async def test_a_change_reaches_into_packs(packed: Store) -> None:
    """Packed jobs can be deleted and reprioritised by selection."""
    await packed.enqueue(fresh(*named(0, 40)))
    raised = await packed.change(
        Change(act=Act.REPRIORITISE, select=select(), after=0, limit=10, priority=7)
    )
    assert list(raised.done) == [Ref(ACME, id) for id in named(0, 10)]

    deleted = await packed.change(
        Change(act=Act.DELETE, select=select(ids=(name(20), name(30))), after=0, limit=10)
    )
    assert len(deleted.done) == 2
    await check_counts(packed, enqueued=38)


async def test_a_packed_job_is_explained(packed: Store) -> None:
    """How many stand before it counts packs and rows alike."""
    await packed.enqueue(fresh(*named(0, 20)))
    await packed.enqueue(fresh(*named(20, 40)))
    await packed.enqueue([job("last", rules=GONE)])

    explained = await packed.explain(Ref(ACME, "last"))

    assert explained.ahead == 40


async def test_the_holders_of_a_limit_are_named_from_pieces(packed: Store) -> None:
    """What takes a scope's places is said, though no job of it has a row."""
    await packed.settings([Put(Scope(ACME).name, encode(ScopeSettings(max_running=9)), 0)])
    await packed.enqueue(fresh(*named(0, 20)))
    await claimed(packed, 20)

    explained = await packed.explain(Ref(ACME, name(15)))

    (gate,) = explained.gates
    assert set(gate.holders) <= set(named(0, 9))
    assert gate.holders


# -- pieces -------------------------------------------------------------------------------------


async def test_a_lapsed_piece_is_rescued_but_for_what_is_done(
    packed: Store, clock: ManualClock
) -> None:
    """P2: jobs whose worker fell silent run again, done ones do not, late acks are refused."""
    await packed.enqueue(fresh(*named(0, 20)))
    leases = await claimed(packed, 20, "a")
    await complete(packed, leases[:5])
    clock.advance(LEASE / SECOND + 1)

    again = await claimed(packed, 100, "b")

    assert ids(again) == named(5, 20)
    assert {(one.job.attempt, one.job.fence, one.job.lapses) for one in again} == {(2, 2, 1)}
    late = await complete(packed, leases[5:])
    assert all(answer.error is not None for answer in late)
    assert all(answer.error is None for answer in await complete(packed, again))
    assert await packed.count(ACME) == []


async def test_a_piece_on_its_last_attempt_expires(packed: Store, clock: ManualClock) -> None:
    """P3: upkeep hears of jobs whose only attempt was lost, also if no claim comes."""
    await packed.enqueue(fresh(*named(0, 10), rules=rules(keep_us=0, max_attempts=1)))
    await claimed(packed, 10)
    clock.advance(LEASE / SECOND + 1)

    lapsed = await packed.expired(100)

    assert sorted(one.job.id for one in lapsed) == named(0, 10)


async def test_one_heartbeat_keeps_one_job_of_a_piece(packed: Store, clock: ManualClock) -> None:
    """Each job of a piece has a lease of its own."""
    await packed.enqueue(fresh(*named(0, 20)))
    leases = await claimed(packed, 10, "a")
    one = leases[3]
    (extended,) = await packed.extend(
        [
            Extension(
                tenant=ACME, id=one.job.id, token=one.token, lease_us=3 * LEASE, progress="half"
            )
        ]
    )
    assert extended.error is None
    clock.advance(LEASE / SECOND + 1)

    again = await claimed(packed, 100, "b")

    assert ids(again) == [id for id in named(0, 20) if id != one.job.id]
    (acked,) = await complete(packed, [one])
    assert acked.error is None


async def test_a_failure_in_a_piece_leaves_the_others_held(packed: Store) -> None:
    """One job goes to its retry; the acks of the others, before and after, are accepted."""
    await packed.enqueue(fresh(*named(0, 20)))
    leases = await claimed(packed, 20)
    changes = [decide(Completed(), one.job, one.token, 0.0) for one in leases]
    changes[7] = decide(Failed(error="x"), leases[7].job, leases[7].token, 0.0)

    answers = await packed.ack(changes)

    assert [answer.state for answer in answers if answer.id == name(7)] == [State.RETRYING]
    assert all(answer.error is None for answer in answers)
    await check_counts(packed, retrying=1)


async def test_a_job_of_a_piece_is_done_once(packed: Store) -> None:
    """P4: the second ack of a done job finds nothing; another job's token opens nothing."""
    await packed.enqueue(fresh(*named(0, 20)))
    leases = await claimed(packed, 20)
    one, other = leases[0], leases[1]
    done = decide(Completed(), one.job, one.token, 0.0)
    assert (await packed.ack([done, done]))[1].error is not None

    (again,) = await packed.ack([done])
    (wrong,) = await packed.ack([decide(Completed(), other.job, one.token, 0.0)])

    assert isinstance(again.error, JobNotFound)
    assert wrong.error is not None
    await check_counts(packed, processing=19)


async def test_histories_of_packed_jobs_are_found(packed: Store) -> None:
    """Each fact of a job is told as its own, while it is in a pack and after its end."""
    await packed.enqueue(fresh(*named(0, 20)))
    leases = await claimed(packed, 15)
    await complete(packed, leases[2:9])

    lives = [EventKind.ENQUEUED, EventKind.LEASED, EventKind.COMPLETED]
    for at, length in ((0, 2), (5, 3), (8, 3), (12, 2), (19, 1)):
        page = await packed.events(ACME, 0, 100, name(at))
        assert [one.kind for one in page.events] == lives[:length]
        assert {one.job_id for one in page.events} == {name(at)}
    page = await packed.events(ACME, 0, 1000)
    assert [one.kind for one in page.events] == [
        *[EventKind.ENQUEUED] * 20,
        *[EventKind.LEASED] * 15,
        *[EventKind.COMPLETED] * 7,
    ]
    assert [one.job_id for one in page.events[-7:]] == named(2, 9)
    middle = page.events[10].cursor
    rest = await packed.events(ACME, middle, 1000)
    assert rest.events == page.events[11:]


async def test_a_history_goes_on_when_an_id_is_used_again(packed: Store) -> None:
    """P15: a new job of the same name continues what is known of the name."""
    await packed.enqueue(fresh(*named(0, 20)))
    await complete(packed, await claimed(packed, 20))

    await packed.enqueue([job(name(3), rules=GONE)])

    page = await packed.events(ACME, 0, 100, name(3))
    assert [one.kind for one in page.events] == [
        EventKind.ENQUEUED,
        EventKind.LEASED,
        EventKind.COMPLETED,
        EventKind.ENQUEUED,
    ]


@pytest.mark.parametrize("limit", [1, 7, 64])
async def test_facts_about_many_are_read_page_by_page(packed: Store, limit: int) -> None:
    """P14: each fact once, in order, whatever it was told together with; also of one tenant."""
    await packed.enqueue([job("a"), job("b", tenant=GLOBEX)])
    await packed.enqueue(fresh(*named(0, 150)))
    leases = await claimed(packed, 60, "a")
    await complete(packed, leases[50:20:-1] + leases[3:20])
    await packed.enqueue(fresh(*named(150, 170), tenant=GLOBEX))
    every = (await packed.events(None, 0, 1000)).events

    for tenant in (None, ACME, GLOBEX):
        seen, after, more = list[Event](), 0, True
        while more:
            page = await packed.events(tenant, after, limit)
            seen += page.events
            more, after = bool(page.events), page.cursor
        assert seen == [one for one in every if tenant in (None, one.tenant)]
    head = (await packed.events(None, -1, 1)).cursor
    assert (await packed.events(None, head, 1)).events == []
    cursors = [one.cursor for one in every]
    assert cursors == sorted(set(cursors))
    assert len(cursors) == 2 + 150 + 60 + 47 + 20


async def test_facts_about_many_are_pruned(packed: Store, clock: ManualClock) -> None:
    """P8: the oldest first, as many as asked for or a few more; who was behind hears of it."""
    await packed.enqueue(fresh(*named(0, 150)))
    clock.advance(10 * SECOND)
    await packed.enqueue(fresh(*named(150, 170)))
    every = (await packed.events(ACME, 0, 1000)).events

    pruned = await packed.prune(10, 5 * SECOND)

    assert pruned.more
    left = await packed.events(ACME, 0, 1000)
    assert left.lost
    assert left.events == every[pruned.events :]
    while (pruned := await packed.prune(1000, 5 * SECOND)).more:
        pass
    assert (await packed.events(ACME, 0, 1000)).events == every[150:]
    assert (await packed.events(ACME, 0, 1000, name(3))).events == []
    assert len((await packed.events(ACME, 0, 1000, name(160))).events) == 1
