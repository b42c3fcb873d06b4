"""Jobs that wait in packs: nobody can tell them from jobs in rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from holdfast.errors import IdConflict
from holdfast.job import Completed, Envelope, Lease, NewJob, Released, State
from holdfast.lifecycle import decide
from holdfast.scope import Scope, ScopeKind
from holdfast.scopes import ScopeHandle
from holdfast.store import Act, Change, Claim, Find, Ref, Selection
from holdfast.stores.postgres import statements as sql
from holdfast.testing.contract.builders import ACME, AUDIO, GLOBEX, LEASE, MAIL, job

if TYPE_CHECKING:
    from tests.stores.postgres.conftest import Connect

    from holdfast.stores.postgres.store import PostgresStore


def names(first: int, number: int) -> list[str]:
    """Ids that begin alike and grow, as those that the library makes in one call."""
    return [f"pack-000000-{n:05}" for n in range(first, first + number)]


def alike(first: int, number: int, **options: Any) -> list[NewJob]:
    return [job(id, **{"fresh": True, **options}) for id in names(first, number)]


async def take(store: PostgresStore, limit: int, **options: Any) -> list[Lease]:
    return await store.claim(
        Claim(**{"worker": "w", "nonce": uuid4().hex, "limit": limit, "lease_us": LEASE, **options})
    )


async def ids(store: PostgresStore, limit: int, **options: Any) -> list[str]:
    return [lease.job.id for lease in await take(store, limit, **options)]


async def packs(connect: Connect) -> list[tuple[int, int]]:
    """Of each pack that jobs wait in: how many came in it, and how many of them were taken."""
    found = await (await connect()).fetch(
        "SELECT number, taken FROM packs WHERE taken < number ORDER BY seq"
    )
    return [(number, taken) for number, taken in found]


async def counts(store: PostgresStore) -> list[Any]:
    """All of them, and the bytes of the tenant."""
    size = await store._call(lambda step: step.row(sql.TALLY, "tenant", ACME, ""))
    return [size, *[await store.count(None, by=kind) for kind in ScopeKind]]


async def exact(store: PostgresStore) -> None:
    """The counts are those that counting the jobs gives."""
    kept = await counts(store)
    await store.count(None, recount=True)
    assert await counts(store) == kept


# -- in and out ------------------------------------------------------------------------------------


async def test_a_large_call_makes_packs_and_each_job_comes_out_as_it_went_in(
    store: PostgresStore, connect: Connect
) -> None:
    """P1: all of them, in their order, each with the payload that came with its id."""
    made = [job(id, body=id.encode(), fresh=True, priority=3) for id in names(0, 300)]
    assert all(answer.created for answer in await store.enqueue(made))
    assert await packs(connect) == [(128, 0), (128, 0), (44, 0)]

    leases = await take(store, 500)

    assert [lease.job.id for lease in leases] == names(0, 300)
    assert [lease.job.envelope for lease in leases] == [one.envelope for one in made]
    record = await store.find(Find(select=Selection(tenant=ACME, ids=(names(7, 1)[0],)), limit=1))
    assert record.jobs[0] == leases[7].job
    assert (leases[7].job.attempt, leases[7].job.fence, leases[7].job.priority) == (1, 1, 3)
    assert await packs(connect) == []
    await exact(store)
    acked = await store.ack([decide(Completed(), one.job, one.token, 0.0) for one in leases])
    assert {one.state for one in acked} == {State.COMPLETED}
    await exact(store)


async def test_few_jobs_chosen_ids_and_large_payloads_stay_in_rows(
    store: PostgresStore, connect: Connect
) -> None:
    """A pack pays off from some size on, and is read as a whole by each claim."""
    await store.enqueue(alike(0, 7))
    await store.enqueue(alike(10, 10, fresh=False))
    await store.enqueue(alike(20, 10, body=b"x" * 2000))

    assert await packs(connect) == []
    assert len(await take(store, 100)) == 27


async def test_ids_that_do_not_begin_alike_are_in_packs_of_their_own(
    store: PostgresStore, connect: Connect
) -> None:
    """Who looks for an id looks only where ids begin as it does; too few of a kind stay in rows."""
    made = [*names(0, 10), *(f"pack-000001-{n:05}" for n in range(6))]
    others = [f"{n:05}-of-its-own" for n in range(20)]
    await store.enqueue([job(id, fresh=True) for id in made])
    await store.enqueue([job(id, fresh=True) for id in others])

    assert await packs(connect) == [(10, 0), (6, 0)]
    assert await ids(store, 100) == [*made, *others]


async def test_a_pack_is_taken_from_its_front(store: PostgresStore, connect: Connect) -> None:
    """P9: what one claim leaves the next one takes, and what is given back comes first again."""
    await store.enqueue(alike(0, 20))

    first = await take(store, 6)
    assert await packs(connect) == [(20, 6)]
    back = first[2]
    await store.ack([decide(Released(), back.job, back.token, 0.0)])
    await exact(store)

    assert await ids(store, 3) == [back.job.id, *names(6, 2)]
    assert await ids(store, 100) == names(8, 12)
    await exact(store)


async def test_rows_and_packs_stand_in_one_order(store: PostgresStore) -> None:
    """P9: by priority, then by sequence, whichever way a job waits."""
    await store.enqueue([job("a")])
    await store.enqueue(alike(0, 10))
    await store.enqueue([job("b"), job("urgent", priority=5)])
    await store.enqueue(alike(100, 10, priority=5))
    await store.enqueue([job("c"), job("last", priority=-1)])
    await store.enqueue(alike(200, 10))
    order = ["urgent", *names(100, 10), "a", *names(0, 10), "b", "c", *names(200, 10), "last"]

    got = [id for limit in (3, 9, 4, 1, 20, 20) for id in await ids(store, limit)]

    assert got == order
    await exact(store)


async def test_lines_with_packs_take_turns(store: PostgresStore) -> None:
    """Tenants share a claim, then their queues, those with packs and those without."""
    await store.enqueue(alike(0, 40))
    await store.enqueue(alike(0, 40, tenant=GLOBEX))
    await store.enqueue(alike(50, 40, queue=AUDIO))
    await store.enqueue([job(f"row{n:02}", tenant="initech") for n in range(40)])
    taken: dict[tuple[str, str], list[str]] = {}

    for turn in range(8):
        for lease in await take(store, 20):
            taken.setdefault((lease.job.tenant, lease.job.queue), []).append(lease.job.id)
        await exact(store)
        assert len(taken) == 4
        mail, audio = len(taken[ACME, MAIL]), len(taken[ACME, AUDIO])
        assert abs(mail - audio) <= 5
        if turn < 6:  # From then on one tenant alone has any left.
            shares = [mail + audio, len(taken[GLOBEX, MAIL]), len(taken["initech", MAIL])]
            assert max(shares) - min(shares) <= 5

    assert taken[ACME, MAIL] == names(0, 40)
    assert taken[GLOBEX, MAIL] == names(0, 40)
    assert taken[ACME, AUDIO] == names(50, 40)


async def test_settings_that_come_later_hold_for_what_waits_in_packs(store: PostgresStore) -> None:
    """P13: a limit, a rate or a pause is no weaker for those who came before it."""
    await store.enqueue(alike(0, 200))
    await ScopeHandle(store, Scope(ACME)).set(max_running=3)

    first = await take(store, 100)
    assert [one.job.id for one in first] == names(0, 3)
    assert await ids(store, 100) == []
    await exact(store)
    await store.ack([decide(Completed(), one.job, one.token, 0.0) for one in first[:2]])

    assert await ids(store, 100) == names(3, 2)


async def test_excluded_groups_do_not_concern_jobs_without_one(store: PostgresStore) -> None:
    """A claim that leaves groups out takes from packs as ever."""
    await store.enqueue([job("g1", group="g")])
    await store.enqueue(alike(0, 10))

    assert await ids(store, 4, exclude_groups=("g",)) == names(0, 4)


# -- looked at -------------------------------------------------------------------------------------


async def test_pages_show_jobs_in_packs_and_rows_alike(store: PostgresStore) -> None:
    """Both ways through, page by page, also where a pack was taken from."""
    await store.enqueue([job("a")])
    await store.enqueue(alike(0, 150))
    await store.enqueue([job("b")])
    await ids(store, 4)
    every, select = ["a", *names(0, 150), "b"], Selection(tenant=ACME)

    for newest_first in (False, True):
        seen, after = list[str](), None
        while True:
            find = Find(select=select, limit=40, after=after, newest_first=newest_first)
            page = await store.find(find)
            seen += [one.id for one in page.jobs]
            after = page.cursor
            if after is None:
                break
        assert seen == (every[::-1] if newest_first else every)


@pytest.mark.parametrize(
    ("select", "number"),
    [
        ({}, 20),
        ({"tenant": ACME}, 10),
        ({"tenant": GLOBEX, "queues": (AUDIO,)}, 10),
        ({"queues": (AUDIO,)}, 10),
        ({"types": ("nobody",)}, 0),
        ({"states": (State.ENQUEUED,)}, 20),
        ({"states": (State.PROCESSING,)}, 0),
        ({"groups": ("g",)}, 0),
        ({"ids": tuple(names(3, 2))}, 4),
        ({"tenant": ACME, "ids": tuple(names(8, 4))}, 2),
        ({"created_from": 1}, 20),
        ({"created_before": 1}, 0),
    ],
)
async def test_a_selection_means_the_same_for_jobs_in_packs(
    store: PostgresStore, connect: Connect, select: dict[str, Any], number: int
) -> None:
    """Each of its fields narrows; and to look at jobs opens no pack."""
    await store.enqueue(alike(0, 10))
    await store.enqueue(alike(0, 10, tenant=GLOBEX, queue=AUDIO))

    page = await store.find(Find(select=Selection(**{"tenant": None, **select}), limit=100))

    assert len(page.jobs) == number
    assert await packs(connect) == [(10, 0), (10, 0)]


async def test_counts_know_the_oldest_of_a_pack(store: PostgresStore) -> None:
    """How long the first has waited is told of packs as of rows."""
    await store.enqueue(alike(0, 10))
    came = store._clock.now()  # type: ignore[union-attr]
    store._clock.advance(5)  # type: ignore[union-attr]
    await store.enqueue([job("a")])

    [tally] = await store.count(ACME)

    assert (tally.counts, tally.oldest_at) == ({State.ENQUEUED: 11}, came)


async def test_a_view_shows_jobs_in_packs(store: PostgresStore, connect: Connect) -> None:
    """Those who speak SQL see each job, whichever way it waits."""
    body = b'{"to": "a"}'
    await store.enqueue(alike(0, 10, body=body))
    await ids(store, 2)

    found = await (await connect()).fetch("SELECT id, status, payload FROM queue_jobs ORDER BY id")

    assert [row["id"] for row in found] == names(0, 10)
    assert [row["status"] for row in found] == ["processing"] * 2 + ["pending"] * 8


async def test_explain_says_how_many_are_ahead(store: PostgresStore) -> None:
    """Those before it in its own pack, in other packs and in rows."""
    await store.enqueue([job("a")])
    await store.enqueue(alike(0, 200))
    await ids(store, 2)

    explanation = await store.explain(Ref(ACME, names(150, 1)[0]))

    assert explanation.ahead == 149
    await exact(store)


# -- asked for by name -----------------------------------------------------------------------------


async def test_cancel_takes_one_out_of_its_pack(store: PostgresStore, connect: Connect) -> None:
    """P5: it never runs, and the others do, in their order."""
    await store.enqueue(alike(0, 300))
    await ids(store, 2)

    answers = await store.cancel([Ref(ACME, id) for id in (names(4, 1)[0], "nobody")])

    assert [one.canceled for one in answers] == [True, False]
    assert await packs(connect) == [(128, 0), (44, 0)]  # Only its own was opened.
    await exact(store)
    assert await ids(store, 400) == [*names(2, 2), *names(5, 295)]


async def test_many_jobs_of_many_packs_are_canceled_at_once(
    store: PostgresStore, connect: Connect
) -> None:
    """P5: packs are opened a few at a time, and all of them in the end."""
    for first in range(0, 400, 10):
        await store.enqueue(alike(first, 10))

    answers = await store.cancel([Ref(ACME, id) for id in names(0, 400)[3::10]])

    assert [one.canceled for one in answers] == [True] * 40
    assert await packs(connect) == []
    await exact(store)
    assert await ids(store, 400) == [id for n, id in enumerate(names(0, 400)) if n % 10 != 3]


async def test_a_change_reaches_jobs_in_packs(store: PostgresStore) -> None:
    """As many as its limit says, and where it stopped the next one goes on."""
    await store.enqueue(alike(0, 300))
    select = Selection(tenant=ACME)

    change = Change(act=Act.REPRIORITISE, select=select, priority=9, limit=3)
    first = await store.change(change)
    assert [ref.id for ref in first.done] == names(0, 3)
    assert first.cursor is not None
    some = Selection(tenant=ACME, ids=tuple(names(200, 2)))
    await store.change(Change(act=Act.REPRIORITISE, select=some, priority=10, limit=9))
    gone = await store.change(Change(act=Act.DELETE, select=select, limit=200, after=first.cursor))

    assert [ref.id for ref in gone.done] == names(3, 200)
    await exact(store)
    assert await ids(store, 400) == [*names(0, 3), *names(203, 97)]


async def test_an_ack_of_a_job_in_a_pack_is_refused(store: PostgresStore) -> None:
    """P3: it is there, and nobody holds it."""
    await store.enqueue(alike(0, 10))
    [lease, *_] = await take(store, 1)
    other = names(5, 1)[0]
    change = decide(Completed(), lease.job, lease.token, 0.0)

    [acked] = await store.ack([type(change)(**{**_fields(change), "id": other})])

    assert type(acked.error).__name__ == "InvalidLeaseToken"
    assert await ids(store, 100) == names(1, 9)


def _fields(change: Any) -> dict[str, Any]:
    return {name: getattr(change, name) for name in change.__struct_fields__}


async def test_known_ids_are_found_in_packs(store: PostgresStore, connect: Connect) -> None:
    """P12: by single jobs, among others, with a key; and no pack is opened for it."""
    await store.enqueue(alike(0, 20))
    await ids(store, 3)
    known = names(2, 4)

    single = await store.enqueue([job(known[3])])
    mixed = await store.enqueue([job("new1"), job(known[1], group="g"), job("new2", key="k")])
    keyed = await store.enqueue([job(known[2], key="other")])
    several = await store.enqueue([job(id) for id in known])
    [conflict] = await store.enqueue([job(known[3], queue=AUDIO)])

    assert [one.created for one in (*single, *mixed, *keyed)] == [False, True, False, True, False]
    assert [(one.id, one.created) for one in several] == [(id, False) for id in known]
    assert isinstance(conflict.error, IdConflict)
    assert await packs(connect) == [(20, 3)]
    await exact(store)
    assert await ids(store, 100) == [*names(3, 17), "new1", "new2"]


async def test_payloads_without_bytes_are_packed_too(store: PostgresStore) -> None:
    """An empty body is a body."""
    await store.enqueue(alike(0, 10, body=b""))

    leases = await take(store, 10)

    assert {lease.job.envelope for lease in leases} == {Envelope("send", "bytes", 1, b"")}
