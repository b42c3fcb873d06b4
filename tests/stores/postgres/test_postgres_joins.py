"""Joins: bounded releases, tenants in turn, two processes at once, and what a crash leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
from tests.stores.postgres.row_jobs import complete, done, exact, step, take
from tests.stores.postgres.spoil import spoil

from holdfast.core.bounds import EDGES_MAX, KEEP_AGAIN_S, RELEASE_MAX
from holdfast.core.job import EDGE_BYTES, EventKind, NewJob, Reason, State, edge_bytes
from holdfast.core.journal import Edge, OnFailure
from holdfast.store import Act, Ref
from holdfast.stores.postgres import maintenance
from holdfast.stores.postgres.ack import complete_jobs
from holdfast.stores.postgres.joins import SERVER_MAX, SHARE
from holdfast.stores.postgres.journal_statements import LOCK
from holdfast.stores.postgres.migrate import named
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import ACME, HOUR, changing, finding, job, rules
from holdfast.testing.contract.joins import RUN, SKIP, node

if TYPE_CHECKING:
    from tests.stores.postgres.conftest import Connect

READY = "SELECT count(*) FROM jobs WHERE state = 'enqueued'"
LEFT = "SELECT tenant, sum(cardinality(edges))::int8 FROM releasing GROUP BY tenant"


@pytest.fixture
async def other(url: str, store: PostgresStore) -> AsyncIterator[PostgresStore]:
    """Another process, as far as the store can tell."""
    other = PostgresStore.from_url(url, store._clock)
    await other.open()
    yield other
    await other.close()


def dead(id: str, number: int, tenant: str = ACME, **options: Any) -> NewJob:
    """A job with so many edges to jobs that are not there."""
    return node(id, *(f"no{each}" for each in range(number)), tenant=tenant, **options)


async def left(connection: Any) -> dict[str, int]:
    """How many edges of each tenant are to be followed yet."""
    return dict(await connection.fetch(LEFT))


# -- bounded, in turn ------------------------------------------------------------------------------


async def test_each_call_follows_so_many_edges(store: PostgresStore, connect: Connect) -> None:
    """P15, P17: each of the two steps of an ack and of the next claims; then nothing is left."""
    connection = await connect()
    targets = [f"c{number}" for number in range(2 * SERVER_MAX + RELEASE_MAX + 500)]
    for start in range(0, len(targets), 500):
        await store.enqueue([node(id, after=1) for id in targets[start : start + 500]])
    await store.enqueue([node("a", *targets)])
    found = []

    await complete(store, await take(store, 1))
    for _ in range(3):
        found.append((await connection.fetchval(READY), await left(connection)))
        await take(store, 0)

    assert found == [
        (2 * SERVER_MAX, {ACME: RELEASE_MAX + 500}),
        (2 * SERVER_MAX + RELEASE_MAX, {ACME: 500}),
        (len(targets), {}),
    ]
    await exact(store)


async def test_a_chain_fails_in_bounded_steps(store: PostgresStore, connect: Connect) -> None:
    """P15, P17: whatever its length."""
    connection, number = await connect(), 2 * RELEASE_MAX + 10
    chain = [node(f"n{n}", f"n{n + 1}", after=min(n, 1)) for n in range(number)]
    for start in range(0, number, 500):
        await store.enqueue(chain[start : start + 500])
    failed = []

    await store.cancel([Ref(ACME, "n0")])
    for _ in range(3):
        count = "SELECT count(*) FROM history WHERE reason = $1"
        failed.append(await connection.fetchval(count, Reason.PARENT_FAILED.value))
        assert await take(store, 10) == []

    assert failed == [RELEASE_MAX, 2 * RELEASE_MAX, number - 1]
    await exact(store)


async def test_a_wide_release_of_one_tenant_does_not_delay_others(
    store: PostgresStore, connect: Connect
) -> None:
    """P19: an ack follows the edges of its own tenant, and claims those of tenants in turn."""
    connection = await connect()
    await store.enqueue([dead("a", EDGES_MAX, "wide"), dead("a", RELEASE_MAX + 200, "small")])
    await store.cancel([Ref("wide", "a")])
    await store.cancel([Ref("small", "a")])
    assert await left(connection) == {"wide": EDGES_MAX - RELEASE_MAX, "small": 200}

    await take(store, 10)

    assert await left(connection) == {"wide": EDGES_MAX - RELEASE_MAX - RELEASE_MAX // 2}


async def test_claims_go_on_with_the_next_tenants(store: PostgresStore, connect: Connect) -> None:
    """P19: whoever has more edges than a turn does not keep those after it from theirs."""
    connection, number = await connect(), RELEASE_MAX // SHARE + 5
    tenants = [f"t{each:02}" for each in range(number)]
    for tenant in tenants:
        await store.enqueue([dead("a", RELEASE_MAX + 4 * SHARE, tenant)])
        await store.cancel([Ref(tenant, "a")])

    await take(store, 10)
    first = await left(connection)
    await take(store, 10)
    second = await left(connection)

    assert {tenant for tenant in tenants if first[tenant] == 4 * SHARE} == set(tenants[-5:])
    assert all(second[tenant] < 4 * SHARE for tenant in tenants)


async def test_many_parents_of_one_join_write_it_once(
    store: PostgresStore, connect: Connect
) -> None:
    """P17: a call that follows edges adds up all ends that it finds, of other calls as well."""
    connection = await connect()
    await store.enqueue([node("end", after=100)])
    await store.enqueue([node(f"p{number}", "end") for number in range(100)])
    leases = await take(store, 100)
    other = await connect()
    async with connection.transaction():
        await connection.fetch("SELECT FROM jobs WHERE id = 'end' FOR UPDATE")
        for lease in leases:
            await complete_jobs(step(store, other), done([lease]))  # And its process dies.
        assert await left(other) == {ACME: 100}
    await connection.execute("CREATE TABLE writes (seq bigint)")
    await connection.execute(
        "CREATE RULE writes AS ON UPDATE TO jobs WHERE new.parents <> old.parents"
        " DO ALSO INSERT INTO writes VALUES (new.seq)"
    )

    assert await take(store, 0) == []

    assert await connection.fetchval("SELECT count(*) FROM writes") == 1
    await connection.execute("DROP RULE writes ON jobs")
    assert [lease.job.id for lease in await take(store, 10)] == ["end"]


# -- several processes -----------------------------------------------------------------------------


async def test_two_last_parents_at_once_release_their_child_once(
    store: PostgresStore, other: PostgresStore
) -> None:
    """P17: whichever process commits first, the child can be claimed when both have returned."""
    for number in range(20):
        end = f"end{number}"
        await store.enqueue([node(f"a{number}", end), node(f"b{number}", end), node(end, after=2)])
        first, second = await take(store, 2)

        await asyncio.gather(complete(store, [first]), complete(other, [second]))

        [lease] = await take(other, 10)
        assert lease.job.id == end
        await complete(store, [lease])
    kinds = [event.kind for event in (await store.events(ACME, 0, 1000)).events]
    assert kinds.count(EventKind.READY) == 20
    await exact(store)


async def test_many_processes_end_the_parents_of_many_joins(
    store: PostgresStore, other: PostgresStore
) -> None:
    """P17: acks, cancels and claims at once; each callback is released once."""
    ends = [f"end{n}" for n in range(10)]
    await store.enqueue([node(end, after=40) for end in ends])
    parents = [node(f"p{n}", *ends, how=RUN) for n in range(40)]
    await store.enqueue(parents)
    leases = await take(store, 40)

    async def end(number: int) -> None:
        mine = store if number % 2 else other
        if number % 5:
            await complete(mine, leases[number : number + 1])
        else:
            await mine.cancel([Ref(ACME, leases[number].job.id)])

    await asyncio.gather(*map(end, range(40)))

    assert sorted(lease.job.id for lease in await take(store, 100)) == ends
    kinds = [event.kind for event in (await store.events(ACME, 0, 1000)).events]
    assert kinds.count(EventKind.READY) == 10
    await exact(store)


async def test_the_next_claim_does_what_a_crash_has_left(
    store: PostgresStore, other: PostgresStore, connect: Connect
) -> None:
    """P17: the end of the parent notes it in its own step."""
    connection, holder = await connect(), await connect()
    await store.enqueue([node("a", "b"), node("b", after=1)])
    leases = await take(store, 1)
    async with holder.transaction():
        await holder.fetch("SELECT FROM jobs WHERE id = 'b' FOR UPDATE")
        await complete_jobs(step(store, connection), done(leases))
    assert (await store.find(finding(states=(State.WAITING,)))).jobs

    assert [lease.job.id for lease in await take(other, 10)] == ["b"]


async def test_who_follows_edges_and_stops_holds_nobody_up(
    store: PostgresStore, connect: Connect
) -> None:
    """P19: cancels and acks return, claims give out what is ready, the next one does the rest."""
    connection = await connect()
    await store.enqueue([node("a", "b", how=RUN), node("b", after=1), job("usual")])
    await store.enqueue([node("c", "d"), node("d", after=1)])
    async with connection.transaction():
        await connection.fetch(named(LOCK, store.options), "0")

        assert (await store.cancel([Ref(ACME, "a")]))[0].canceled
        assert (await complete(store, await take(store, 2)))[1].state is State.COMPLETED
        assert [lease.job.id for lease in await take(store, 10)] == ["d"]

    assert [lease.job.id for lease in await take(store, 10)] == ["b"]


async def test_who_holds_a_target_and_stops_holds_only_that_up(
    store: PostgresStore, connect: Connect
) -> None:
    """P19: neither the other targets of the same job nor those of other jobs."""
    connection = await connect()
    await store.enqueue([node("a", "b", "c", "d"), *(node(x, after=1) for x in ("b", "c", "d"))])
    await store.enqueue([node("x", "y"), node("y", after=1)])
    leases = await take(store, 2)
    async with connection.transaction():
        await connection.fetch("SELECT FROM jobs WHERE id = 'c' FOR UPDATE")

        answers = await complete(store, leases)
        assert [answer.state for answer in answers] == [State.COMPLETED] * 2
        found = {lease.job.id for lease in await take(store, 10)}
        assert await left(connection) == {ACME: 1}

    assert found == {"b", "d", "y"}
    assert [lease.job.id for lease in await take(store, 10)] == ["c"]
    await exact(store)


# -- keeping ---------------------------------------------------------------------------------------


async def test_upkeep_looks_at_so_many_edges_and_prunes_the_others(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P15, P19: ended jobs with many edges hold up nobody else's."""
    monkeypatch.setattr(maintenance, "LOOK_MAX", 1000)
    clock = store._clock
    assert isinstance(clock, ManualClock)
    await store.enqueue([*(dead(f"w{each}", 500) for each in range(3)), job("usual")])
    await store.enqueue([node("kept", "child", how=RUN, rules=rules(keep_us=0))])
    await store.enqueue([node("parent", "child"), node("child", after=2)])
    await store.cancel([Ref(ACME, id) for id in ("w0", "w1", "w2", "usual", "kept")])
    await take(store, 0)
    clock.advance(24 * 3600)
    found = []

    for after in ("", "", "child"):
        if after:
            await store.cancel([Ref(ACME, after)])
        clock.advance(KEEP_AGAIN_S)
        await store.prune(1000, HOUR)
        found.append({each.id for each in (await store.find(finding())).jobs})

    assert len(found[0] & {"w0", "w1", "w2"}) == 2  # "kept" was looked at as well.
    assert "usual" not in found[0]
    assert found[1] == {"kept", "child", "parent"}
    assert found[2] == {"child", "parent"}
    await exact(store)


async def test_a_record_may_go_before_its_edges_are_followed(
    store: PostgresStore, connect: Connect
) -> None:
    """P17: they are followed all the same, and then nothing of it is left."""
    connection = await connect()
    await store.enqueue([node("last", after=1)])
    edges = (*dead("x", 2 * RELEASE_MAX).edges, Edge("last", on_failure=OnFailure.SKIP))
    await store.enqueue([job("a", edges=edges), job("b", edges=edges)])
    await store.cancel([Ref(ACME, "a")])
    await store.change(changing(Act.DELETE, ids=("a", "b")))
    await store.prune(100, HOUR)
    assert (await store.find(finding(ids=("a", "b")))).jobs == []
    for _ in range(6):
        assert await take(store, 10) == []

    [last] = (await store.find(finding())).jobs
    assert (last.state, last.error) == (State.CANCELED, "its parent a was canceled")
    await store.change(changing(Act.DELETE))
    await store.prune(100, HOUR)
    for table in ("jobs", "history", "entries", "joins", "releasing", "leftovers"):
        assert await connection.fetchval(f"SELECT count(*) FROM {table}") == 0, table


# -- what is counted -------------------------------------------------------------------------------


async def test_a_recount_finds_the_bytes_of_flows_as_they_were(
    store: PostgresStore, connect: Connect
) -> None:
    """P13: edges count for the cap of their tenant, while their job has not ended; a replay has
    none.
    """
    connection = await connect()
    wide = node("a", "b", "c", "d", body=b"12345")
    await store.enqueue([wide, node("b", after=1), node("e", "b", body=b"123")])
    bodies = 5 + 3 + len(job("b").envelope.body)
    size = "SELECT sum(size)::int8 FROM jobs"
    assert await connection.fetchval(size) == bodies + edge_bytes(wide) + EDGE_BYTES + 1
    await exact(store)
    await store.cancel([Ref(ACME, "a")])
    await store.change(changing(Act.REPLAY, ids=("a",)))

    assert await connection.fetchval("SELECT size FROM jobs WHERE origin = 'a'") == 5
    await exact(store)


@pytest.mark.parametrize(
    "name", ['"', "]", "'; DROP TABLE jobs --", "$[0]", "\\u0022", "é\U0001f600", "NULL", "{a,b}"]
)
async def test_a_name_is_a_name_whatever_is_in_it(store: PostgresStore, name: str) -> None:
    """P7: of a job, and of a tenant."""
    for tenant in (name, ACME):
        await store.enqueue([node(name, after=1, tenant=tenant)])
    await store.enqueue([node("a", name, tenant=name)])

    await complete_all(store)

    [lease] = await take(store, 10)
    assert (lease.job.tenant, lease.job.id) == (name, name)


async def complete_all(store: PostgresStore) -> None:
    answers = await store.ack(done(await take(store, 100)))
    assert all(answer.error is None for answer in answers)


# -- rows that cannot be read ----------------------------------------------------------------------


async def test_a_parent_that_cannot_be_read_tells_its_children(store: PostgresStore) -> None:
    """P17, P19: the claim that makes a dead letter of it follows its edges."""
    await store.enqueue([node("bad", "child", how=RUN), node("child", after=1), job("good")])
    await spoil(store, Ref(ACME, "bad"))

    assert [lease.job.id for lease in await take(store, 10)] == ["good"]
    assert [lease.job.id for lease in await take(store, 10)] == ["child"]


@pytest.mark.parametrize("how", [OnFailure.FAIL, SKIP])
async def test_a_child_that_cannot_be_read_ends_with_its_parent(
    store: PostgresStore, how: OnFailure
) -> None:
    """P17, P19: and keeps no other from its end."""
    await store.enqueue([node("a", "bad", "b", how=how), *(node(x, after=1) for x in ("bad", "b"))])
    await spoil(store, Ref(ACME, "bad"))

    await store.cancel([Ref(ACME, "a")])

    states = {each.id: each.state for each in (await store.find(finding())).jobs}
    assert states["bad"] is states["b"] is (State.FAILED if how is not SKIP else State.CANCELED)


async def test_an_edge_that_cannot_be_read_stops_no_other(
    store: PostgresStore, connect: Connect
) -> None:
    """P19: neither an ack, nor a claim, a page or a prune."""
    connection = await connect()
    await store.enqueue([node("a", "b"), node("b", after=1), node("x", "y"), node("y", after=1)])
    await connection.execute("UPDATE jobs SET edges = ARRAY[E'b\\x1f\\x1fmaybe'] WHERE id = 'a'")

    await complete_all(store)

    assert {lease.job.id for lease in await take(store, 10)} == {"b", "y"}
    await store.prune(100, HOUR)
