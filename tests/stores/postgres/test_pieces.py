"""Jobs that are held in pieces: each has a lease of its own, and nobody can tell them from rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from tests.stores.postgres.test_packs import alike, exact, ids, names, take

from holdfast.clock import SECOND
from holdfast.errors import InvalidLeaseToken, JobNotFound, LeaseExpired
from holdfast.job import Completed, Failed, Lease, Released, State
from holdfast.lifecycle import decide
from holdfast.store import Acked, Extension, Find, Selection
from holdfast.stores.postgres import migrate
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.sql_rows import rules_text
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import ACME, LEASE, job, rules

if TYPE_CHECKING:
    from tests.servers.postgres import Postgres
    from tests.stores.postgres.conftest import Connect

GONE = rules(keep_us=0)
BOUND_S = 20.0


async def pieces(connect: Connect) -> list[tuple[int, int]]:
    """Of each piece: how many jobs were taken in it, and how many of them it still has."""
    found = await (await connect()).fetch("SELECT number, has FROM pieces ORDER BY seq")
    return [(number, has) for number, has in found]


async def rows(connect: Connect) -> int:
    """Jobs in rows of their own."""
    number: int = await (await connect()).fetchval("SELECT count(*) FROM jobs")
    return number


async def complete(store: PostgresStore, leases: list[Lease]) -> list[Acked]:
    return await store.ack([decide(Completed(), one.job, one.token, 0.0) for one in leases])


def extension(lease: Lease, length_us: int = LEASE, progress: str | None = None) -> Extension:
    return Extension(
        tenant=lease.job.tenant,
        id=lease.job.id,
        token=lease.token,
        lease_us=length_us,
        progress=progress,
    )


def later(store: PostgresStore, leases: float = 1.0) -> None:
    """Past the end of every lease so far, or a part of that."""
    clock = store._clock
    assert isinstance(clock, ManualClock)
    clock.advance(leases * LEASE / SECOND + 1)


async def page(store: PostgresStore, **select: Any) -> list[Any]:
    found = await store.find(
        Find(select=Selection(**{"tenant": ACME, **select}), limit=100, newest_first=False)
    )
    return list(found.jobs)


# -- done ------------------------------------------------------------------------------------------


async def test_what_a_claim_takes_of_a_pack_is_one_row(
    store: PostgresStore, connect: Connect
) -> None:
    """P4: each completion takes its job out of it, the last one the row; no job is a row."""
    await store.enqueue(alike(0, 200, rules=GONE))
    leases = await take(store, 150)
    assert await pieces(connect) == [(128, 128), (22, 22)]

    for part, left in (
        (leases[100:140], [(128, 100), (22, 10)]),
        (leases[140:], [(128, 100)]),
        (leases[:1], [(128, 99)]),
        (leases[1:100], []),
    ):
        assert {one.state for one in await complete(store, part)} == {State.COMPLETED}
        assert await pieces(connect) == left
        await exact(store)

    assert await rows(connect) == 0
    rest = await take(store, 100)
    assert [one.job.id for one in rest] == names(150, 50)
    await complete(store, rest)
    assert await (await connect()).fetchval("SELECT count(*) FROM packs") == 0


async def test_a_record_that_is_kept_says_what_a_row_would(store: PostgresStore) -> None:
    """P6: payload, result and times of a completed job are there for as long as it is kept."""
    await store.enqueue([*alike(0, 10, body=b'{"to": "ann"}', priority=3), job("row")])
    [row, *held] = sorted(await take(store, 11), key=lambda one: one.job.id != "row")
    results = [decide(Completed(b"fine"), one.job, one.token, 0.0) for one in (row, *held)]

    await store.ack(results)

    done = {one.id: one for one in await page(store)}
    assert len(done) == 11
    one = done[names(4, 1)[0]]
    assert (one.state, one.result, one.attempt, one.fence) == (State.COMPLETED, b"fine", 1, 1)
    assert (one.envelope, one.priority, one.seq) == (held[4].job.envelope, 3, held[4].job.seq)
    assert (one.finished_at, one.created_at) == (done["row"].finished_at, held[4].job.created_at)
    await exact(store)


async def test_a_job_of_a_piece_is_done_once(store: PostgresStore, connect: Connect) -> None:
    """P4: the second ack of a done job finds nothing, another job's token opens nothing."""
    await store.enqueue(alike(0, 20, rules=GONE))
    one, other, *_ = await take(store, 20)
    done = decide(Completed(), one.job, one.token, 0.0)
    assert [type(answer.error) for answer in await store.ack([done, done])] == [
        type(None),
        JobNotFound,
    ]

    [again] = await store.ack([done])
    [wrong] = await store.ack([decide(Completed(), other.job, one.token, 0.0)])

    assert isinstance(again.error, JobNotFound)
    assert isinstance(wrong.error, InvalidLeaseToken)
    assert await pieces(connect) == [(20, 18)]  # Who was asked about by a wrong token is a row.
    await exact(store)


async def test_one_ack_settles_jobs_in_pieces_and_in_rows(store: PostgresStore) -> None:
    """Each is answered at its place, whichever way it was held."""
    await store.enqueue([job("a", rules=GONE)])
    await store.enqueue(alike(0, 10, rules=GONE))
    await store.enqueue([job("b", rules=GONE)])
    leases = await take(store, 20)
    [gone] = await complete(store, leases[4:5])

    answers = await complete(store, leases)

    assert gone.error is None
    assert [answer.id for answer in answers] == ["a", *names(0, 10), "b"]
    assert [n for n, answer in enumerate(answers) if answer.error is not None] == [4]
    assert await store.count(ACME) == []


# -- lapsed ----------------------------------------------------------------------------------------


async def test_a_lapsed_piece_is_rescued_but_for_what_is_done(
    store: PostgresStore, connect: Connect
) -> None:
    """P2: jobs whose worker fell silent run again, done ones do not, late acks are refused."""
    await store.enqueue(alike(0, 300, rules=GONE))
    leases = await take(store, 300, nonce="a")
    await complete(store, leases[:5])
    later(store)

    late = await complete(store, leases[5:10])
    again = await take(store, 1000, nonce="b")

    assert [type(one.error) for one in late] == [LeaseExpired] * 5
    assert [one.job.id for one in again] == names(5, 295)
    assert {(one.job.attempt, one.job.fence, one.job.lapses) for one in again} == {(2, 2, 1)}
    await exact(store)
    late = await complete(store, leases[5:])
    assert {type(one.error) for one in late} == {InvalidLeaseToken}
    assert {one.error for one in await complete(store, again)} == {None}
    assert await store.count(ACME) == []
    assert await pieces(connect) == []


async def test_many_small_pieces_lapse_at_once(store: PostgresStore) -> None:
    """P10: all of them can be claimed at that instant, however many rows they are."""
    await store.enqueue(alike(0, 150, rules=GONE))
    for turn in range(150):
        assert len(await take(store, 1, nonce=f"n{turn}")) == 1
    later(store)

    assert await ids(store, 1000, nonce="again") == names(0, 150)


async def test_a_piece_on_its_last_attempt_expires(store: PostgresStore) -> None:
    """P11: upkeep hears of jobs whose only attempt was lost, and no claim takes them."""
    await store.enqueue(alike(0, 10, rules=rules(max_attempts=1)))
    [first, *_] = await take(store, 10)
    await complete(store, [first])
    later(store)
    await store.prune(100, 0)
    assert await ids(store, 10) == []

    lapsed = await store.expired(100)

    assert sorted(one.job.id for one in lapsed) == names(1, 9)
    assert {one.overdue_us for one in lapsed} == {SECOND}
    await exact(store)


async def test_a_heartbeat_keeps_one_job_of_a_piece(store: PostgresStore, connect: Connect) -> None:
    """P2: each job has a lease of its own; the others lapse at their time."""
    await store.enqueue(alike(0, 20, rules=GONE))
    leases = await take(store, 10, nonce="a")
    one = leases[3]

    [extended] = await store.extend([extension(one, 3 * LEASE, "half")])

    assert extended.error is None
    assert await pieces(connect) == [(10, 9)]
    [record] = await page(store, ids=(one.job.id,))
    assert (record.progress, record.lease_until) == ("half", extended.until)
    later(store)
    assert await ids(store, 100, nonce="b") == [id for id in names(0, 20) if id != one.job.id]
    assert [answer.error for answer in await complete(store, [one])] == [None]
    await exact(store)


async def test_a_failure_in_a_piece_leaves_the_others_there(
    store: PostgresStore, connect: Connect
) -> None:
    """One goes to its retry and one back to its line; acks of the others are accepted."""
    await store.enqueue(alike(0, 20, rules=GONE))
    leases = await take(store, 20)
    changes = [decide(Completed(), one.job, one.token, 0.0) for one in leases[:15]]
    changes[7] = decide(Failed(error="x"), leases[7].job, leases[7].token, 0.0)
    changes[9] = decide(Released(), leases[9].job, leases[9].token, 0.0)

    answers = await store.ack(changes)

    assert [answer.error for answer in answers] == [None] * 15
    assert (answers[7].state, answers[9].state) == (State.RETRYING, State.ENQUEUED)
    assert await pieces(connect) == [(20, 5)]
    await exact(store)
    assert await ids(store, 100) == names(9, 1)


# -- upgraded --------------------------------------------------------------------------------------


# What an enqueue and a claim did there.
PACK = """
WITH new AS (
    INSERT INTO packs VALUES (
        nextval('seqs'), 0, $1, 0, 1, 3, 10, 0, 'acme', 'mail', 'send', 'json', $2, $3, $4, $5, $6
    ) RETURNING seq
)
INSERT INTO deltas (tenant, queue, enqueued, bytes, head_rank, head_seq)
SELECT 'acme', 'mail', 10, 20, 0, seq FROM new
"""
LEASED = """
SELECT count(*) FROM take_line(
    ARRAY(SELECT seq FROM jobs ORDER BY seq LIMIT 2), 1, 'acme', 'mail', 0, 'w', 'n', $1, $2, true
)
"""


async def test_a_schema_without_pieces_is_upgraded_with_what_is_in_it(
    server: Postgres, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P1: jobs in packs and jobs that are leased as rows go on."""
    files = [(number, text) for number, text in migrate.migrations() if number < 15]
    store = PostgresStore.from_url(url, clock := ManualClock())
    with monkeypatch.context() as patched:
        patched.setattr(migrate, "migrations", lambda: files)
        await store.open()
    for n in range(4):
        await store.enqueue([job(f"row{n}", rules=GONE, fresh=True)])
    connection = await asyncpg.connect(server.url)
    await connection.execute(f'SET search_path = "{store.options.schema}"')
    await connection.execute(LEASED, LEASE, clock.now())
    made = names(0, 10)
    bodies = [b"{}"] * 10
    await connection.execute(PACK, clock.now(), made[0], made[9], rules_text(GONE), made, bodies)
    await connection.close()
    await store.close()

    await store.open()

    held = await page(store, states=(State.PROCESSING,))
    assert [one.id for one in held] == ["row0", "row1"]
    acked = await store.ack([decide(Completed(), one, f"n.{one.seq}", 0.0) for one in held])
    assert [one.error for one in acked] == [None, None]
    leases = await take(store, 8)
    assert [one.job.id for one in leases] == ["row2", "row3", *names(0, 6)]
    assert {one.error for one in await complete(store, leases)} == {None}
    assert await ids(store, 8) == names(6, 4)
    log = (await store.events(ACME, 0, 100)).events
    assert [one.job_id for one in log[:4]] == [f"row{n}" for n in range(4)]
    assert [one.job_id for one in log[-4:]] == names(6, 4)
    assert [one.cursor for one in log] == sorted(one.cursor for one in log)
    await exact(store)
    await store.close()
