"""Pieces of packs: many jobs held in one row, each with a lease of its own."""

from __future__ import annotations

from tests.stores.sqlite.parcels import check_counts, claimed, complete, fresh, ids, named

from holdfast.clock import SECOND
from holdfast.errors import JobNotFound
from holdfast.job import Completed, Failed, State
from holdfast.lifecycle import decide
from holdfast.store import Extension
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import ACME, LEASE, rules


async def test_a_lapsed_piece_is_rescued_but_for_what_is_done(
    packed: SqliteStore, clock: ManualClock
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


async def test_a_piece_on_its_last_attempt_expires(packed: SqliteStore, clock: ManualClock) -> None:
    """P3: upkeep hears of jobs whose only attempt was lost, also if no claim comes."""
    await packed.enqueue(fresh(*named(0, 10), rules=rules(keep_us=0, max_attempts=1)))
    await claimed(packed, 10)
    clock.advance(LEASE / SECOND + 1)

    lapsed = await packed.expired(100)

    assert sorted(one.job.id for one in lapsed) == named(0, 10)


async def test_one_heartbeat_keeps_one_job_of_a_piece(
    packed: SqliteStore, clock: ManualClock
) -> None:
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


async def test_a_failure_in_a_piece_leaves_the_others_held(packed: SqliteStore) -> None:
    """One job goes to its retry; the acks of the others, before and after, are accepted."""
    await packed.enqueue(fresh(*named(0, 20)))
    leases = await claimed(packed, 20)
    changes = [decide(Completed(), one.job, one.token, 0.0) for one in leases]
    changes[7] = decide(Failed(error="x"), leases[7].job, leases[7].token, 0.0)

    answers = await packed.ack(changes)

    assert [answer.state for answer in answers if answer.id == "j007"] == [State.RETRYING]
    assert all(answer.error is None for answer in answers)
    await check_counts(packed, retrying=1)


async def test_a_job_of_a_piece_is_done_once(packed: SqliteStore) -> None:
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
