"""Jobs in pieces, looked at and asked for by name: as any others that run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.stores.postgres.test_packs import alike, exact, ids, names, take
from tests.stores.postgres.test_pieces import BOUND_S, GONE, complete, later, page, pieces

from holdfast.errors import IdConflict
from holdfast.job import State
from holdfast.scope import Scope
from holdfast.scopes import ScopeHandle
from holdfast.store import Act, Change, Find, Ref, Selection, Watch
from holdfast.testing.contract.builders import ACME, AUDIO, GLOBEX, job

if TYPE_CHECKING:
    from tests.stores.postgres.conftest import Connect

    from holdfast.stores.postgres.store import PostgresStore

# -- looked at -------------------------------------------------------------------------------------


async def test_pages_show_jobs_in_pieces(store: PostgresStore, connect: Connect) -> None:
    """Both ways through, page by page, without those that have ended; nothing is opened."""
    await store.enqueue([job("a")])
    await store.enqueue(alike(0, 150, rules=GONE))
    leases = await take(store, 100)
    await complete(store, leases[10:40])
    every = ["a", *names(0, 9), *names(39, 111)]
    held = await pieces(connect)

    for newest_first in (False, True):
        seen, after = list[str](), None
        while True:
            select = Selection(tenant=ACME)
            find = Find(select=select, limit=7, after=after, newest_first=newest_first)
            found = await store.find(find)
            seen += [one.id for one in found.jobs]
            after = found.cursor
            if after is None:
                break
        assert seen == (every[::-1] if newest_first else every)

    assert await page(store, ids=(leases[50].job.id,)) == [leases[50].job]
    assert await pieces(connect) == held


@pytest.mark.parametrize(
    ("select", "number"),
    [
        ({}, 14),
        ({"tenant": ACME}, 7),
        ({"tenant": GLOBEX, "queues": (AUDIO,)}, 7),
        ({"types": ("nobody",)}, 0),
        ({"states": (State.ENQUEUED,)}, 0),
        ({"states": (State.PROCESSING,)}, 14),
        ({"groups": ("g",)}, 0),
        ({"ids": tuple(names(2, 3))}, 4),
        ({"tenant": ACME, "ids": tuple(names(8, 4))}, 2),
        ({"created_from": 1}, 14),
        ({"created_before": 1}, 0),
    ],
)
async def test_a_selection_means_the_same_for_jobs_in_pieces(
    store: PostgresStore, select: dict[str, Any], number: int
) -> None:
    """Each of its fields narrows; jobs that have ended are not there."""
    await store.enqueue(alike(0, 10, rules=GONE))
    await store.enqueue(alike(0, 10, tenant=GLOBEX, queue=AUDIO, rules=GONE))
    leases = await take(store, 20)
    await complete(store, [one for one in leases if one.job.id in names(0, 3)])

    assert len(await page(store, **{"tenant": None, **select})) == number


async def test_a_view_shows_jobs_in_pieces(store: PostgresStore, connect: Connect) -> None:
    """Those who speak SQL see each job that has not ended."""
    await store.enqueue(alike(0, 10, rules=GONE))
    leases = await take(store, 4)
    await complete(store, leases[:1])

    found = await (await connect()).fetch("SELECT id, status, worker FROM queue_jobs ORDER BY id")

    assert [row["id"] for row in found] == names(1, 9)
    assert [row["status"] for row in found] == ["processing"] * 3 + ["pending"] * 6
    assert found[0]["worker"] == "w"


async def test_explain_knows_who_holds_a_job_and_a_limit(store: PostgresStore) -> None:
    """A job of a piece runs, and takes a place of a limit that came later."""
    await store.enqueue(alike(0, 10, rules=GONE))
    leases = await take(store, 3)
    await ScopeHandle(store, Scope(ACME)).set(max_running=3)

    running = await store.explain(Ref(ACME, leases[0].job.id))
    waits = await store.explain(Ref(ACME, names(5, 1)[0]))

    assert running.gates[0].words == "worker w runs it, attempt 1"
    assert set(waits.gates[0].holders) == set(names(0, 3))
    assert await ids(store, 10) == []
    await complete(store, leases[:2])
    assert await ids(store, 10) == names(3, 2)
    await exact(store)


async def test_who_waits_for_a_job_in_a_piece_waits(store: PostgresStore) -> None:
    """It has not ended; when it does, the sleeper hears of it."""
    await store.enqueue(alike(0, 10, rules=GONE))
    leases = await take(store, 3)
    ref = Ref(ACME, leases[1].job.id)

    async with asyncio.timeout(BOUND_S):
        before = await store._call(lambda step: store._soonest(step, Watch(job=ref)))
        await complete(store, leases[1:2])
        await store.wait(Watch(job=ref), BOUND_S * 2)

    assert before > 0


# -- asked for by name -----------------------------------------------------------------------------


async def test_cancel_takes_one_out_of_its_piece(store: PostgresStore, connect: Connect) -> None:
    """P5: its ack is refused, those of the others are not."""
    await store.enqueue(alike(0, 20, rules=GONE))
    leases = await take(store, 20)

    answers = await store.cancel([Ref(ACME, leases[4].job.id), Ref(GLOBEX, leases[5].job.id)])

    assert [one.canceled for one in answers] == [True, False]
    assert await pieces(connect) == [(20, 19)]
    await exact(store)
    acked = await complete(store, leases)
    assert [n for n, one in enumerate(acked) if one.error is not None] == [4]
    assert await store.count(ACME) == []


async def test_a_change_does_not_reach_jobs_that_run(store: PostgresStore) -> None:
    """P2: neither those of a pack that was taken whole nor those of a part of one."""
    await store.enqueue(alike(0, 20, rules=GONE))
    await store.enqueue(alike(20, 20, rules=GONE))
    leases = await take(store, 30)
    select = Selection(tenant=ACME)

    named = Selection(tenant=ACME, ids=tuple(names(0, 5)))
    none = await store.change(Change(act=Act.DELETE, select=named, limit=100))
    changed = await store.change(Change(act=Act.DELETE, select=select, limit=100))

    assert none.done == {}
    assert [ref.id for ref in changed.done] == names(30, 10)
    await exact(store)
    assert [one.error for one in await complete(store, leases)] == [None] * 30
    assert await store.count(ACME) == []


async def test_the_oldest_that_waits_is_none_that_runs(store: PostgresStore) -> None:
    """A pack that was taken whole waits no more."""
    await store.enqueue(alike(0, 10, rules=GONE))
    await take(store, 10)
    later(store, 0.5)
    await store.enqueue(alike(10, 10, rules=GONE))

    [tally] = await store.count(ACME)

    assert tally.oldest_at == store._clock.now()  # type: ignore[union-attr]


async def test_known_ids_are_found_in_pieces(store: PostgresStore, connect: Connect) -> None:
    """P12: by single jobs, among others and in packs; and nothing is opened for it."""
    await store.enqueue(alike(0, 20, rules=GONE))
    await take(store, 15)
    known = names(2, 4)

    single = await store.enqueue([job(known[3])])
    mixed = await store.enqueue([job("new1"), job(known[1], group="g"), job("new2", key="k")])
    several = await store.enqueue([job(id) for id in names(10, 10)])
    packed = await store.enqueue(alike(0, 20, rules=GONE))
    [conflict] = await store.enqueue([job(known[3], queue=AUDIO)])

    assert [one.created for one in (*single, *mixed)] == [False, True, False, True]
    assert not any(one.created for one in (*several, *packed))
    assert isinstance(conflict.error, IdConflict)
    assert await pieces(connect) == [(15, 15)]
    await exact(store)
    assert await ids(store, 100) == [*names(15, 5), "new1", "new2"]


async def test_the_id_of_a_job_that_ended_may_come_again(store: PostgresStore) -> None:
    """P12: nothing of it is kept, though its piece is still there."""
    await store.enqueue(alike(0, 20, rules=GONE))
    leases = await take(store, 20)
    await complete(store, leases[:10])

    answers = await store.enqueue(alike(0, 12, rules=GONE))

    assert [one.created for one in answers] == [True] * 10 + [False] * 2
    assert await ids(store, 100, nonce="again") == names(0, 10)
    assert [one.error for one in await complete(store, leases[10:])] == [None] * 10
    [first, *_] = await store.cancel([Ref(ACME, id) for id in names(0, 10)])
    assert first.canceled
    assert await store.count(ACME) == []
    await exact(store)
