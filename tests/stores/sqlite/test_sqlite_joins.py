"""Joins: bounded releases, tenants in turn, two processes at once, and rows that cannot be read."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.stores.sqlite.conftest import Start
from tests.stores.sqlite.spoil import spoil
from tests.stores.sqlite.tables import rows

from holdfast.core.bounds import EDGES_MAX, KEEP_AGAIN_S, RELEASE_MAX
from holdfast.core.job import (
    EDGE_BYTES,
    TERMINAL,
    Completed,
    EventKind,
    Lease,
    NewJob,
    Reason,
    State,
    edge_bytes,
)
from holdfast.core.journal import Edge, OnFailure
from holdfast.core.lifecycle import decide
from holdfast.store import Act, Claim, Ref, Watch
from holdfast.stores.sqlite.joins import SHARE
from holdfast.stores.sqlite.maintenance import LOOK_AGAIN_S, LOOK_MAX
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import ACME, LEASE, changing, finding, job, rules
from holdfast.testing.contract.joins import RUN, node

BOUND_S = 50.0
ALIVE = tuple(set(State) - TERMINAL)
TABLES = ("jobs", "entries", "joins", "edges", "releasing", "leftovers")


class Claims:
    """Claims with nonces of their own."""

    number = 0

    async def __call__(self, store: SqliteStore, limit: int = 1000) -> list[Lease]:
        self.number += 1
        nonce = f"n{self.number}"
        return await store.claim(Claim(worker="w", nonce=nonce, limit=limit, lease_us=LEASE))


@pytest.fixture
def claimed() -> Claims:
    return Claims()


async def complete(store: SqliteStore, *leases: Lease) -> None:
    answers = await store.ack([decide(Completed(), x.job, x.token, 0.0) for x in leases])
    assert all(answer.error is None for answer in answers)


def ask(path: Path, query: str, *values: object) -> Any:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(query, values).fetchall()


def left(path: Path) -> dict[str, int]:
    """How many edges of each tenant are to be followed yet."""
    query = "SELECT tenant, sum(edges - followed) FROM releasing GROUP BY tenant"
    return dict(ask(path, query))


def dead(id: str, number: int, tenant: str = ACME, **options: Any) -> NewJob:
    """A job with so many edges to jobs that are not there."""
    return node(id, *(f"no{each}" for each in range(number)), tenant=tenant, **options)


# -- bounded, in turn ------------------------------------------------------------------------------


async def test_each_call_follows_so_many_edges(
    store: SqliteStore, path: Path, claimed: Claims
) -> None:
    """P15, P17: the ack and each of the next claims; then nothing is left behind."""
    targets = [f"c{number}" for number in range(2 * RELEASE_MAX + 500)]
    for start in range(0, len(targets), 500):
        await store.enqueue([node(id, after=1) for id in targets[start : start + 500]])
    await store.enqueue([node("a", *targets)])

    await complete(store, *await claimed(store))

    ready = "SELECT count(*) FROM jobs WHERE state = 'enqueued'"
    assert ask(path, ready) == [(RELEASE_MAX,)]
    assert left(path) == {ACME: RELEASE_MAX + 500}
    await claimed(store, 0)
    assert ask(path, ready) == [(2 * RELEASE_MAX,)]
    await claimed(store, 0)
    assert ask(path, ready) == [(len(targets),)]
    assert rows(path, "releasing") == 0


async def test_what_an_ack_has_left_survives_its_process(
    store: SqliteStore, path: Path, claimed: Claims
) -> None:
    """P17: it is stored in the step that ends the parent."""
    await store.enqueue([node("last", after=1)])
    edges = (*dead("x", RELEASE_MAX).edges, Edge("last"))
    await store.enqueue([job("a", edges=edges)])
    await complete(store, *await claimed(store))
    assert [each.id for each in (await store.find(finding(states=(State.WAITING,)))).jobs]
    await store.close()
    await store.open()

    assert [lease.job.id for lease in await claimed(store)] == ["last"]


async def test_a_wide_release_of_one_tenant_does_not_delay_others(
    store: SqliteStore, path: Path, claimed: Claims
) -> None:
    """P19: claims follow the edges of tenants in turn."""
    await store.enqueue([dead("a", EDGES_MAX, "wide"), dead("a", RELEASE_MAX + 200, "small")])
    await store.cancel([Ref("wide", "a")])
    await store.cancel([Ref("small", "a")])
    assert left(path) == {"wide": EDGES_MAX - RELEASE_MAX, "small": 200}

    await claimed(store)

    assert left(path) == {"wide": EDGES_MAX - 2 * RELEASE_MAX + 200}


async def test_claims_go_on_with_the_next_tenants(
    store: SqliteStore, path: Path, claimed: Claims
) -> None:
    """P19: whoever has more edges than a turn does not keep those after it from theirs."""
    number = RELEASE_MAX // SHARE + 5
    tenants = [f"t{each:02}" for each in range(number)]
    for tenant in tenants:
        await store.enqueue([dead("a", RELEASE_MAX + 4 * SHARE, tenant)])
        await store.cancel([Ref(tenant, "a")])

    await claimed(store)
    first = left(path)
    await claimed(store)
    second = left(path)

    assert {tenant for tenant in tenants if first[tenant] == 4 * SHARE} == set(tenants[-5:])
    assert all(second[tenant] < 4 * SHARE for tenant in tenants)


async def test_many_parents_of_one_join_write_it_once(
    store: SqliteStore, path: Path, claimed: Claims
) -> None:
    """P17: an ack of many adds their ends up."""
    await store.enqueue([node("end", after=100)])
    await store.enqueue([node(f"p{number}", "end") for number in range(100)])
    ask(path, "CREATE TABLE writes (seq)")
    ask(
        path,
        "CREATE TRIGGER t AFTER UPDATE OF parents_due ON jobs"
        " BEGIN INSERT INTO writes VALUES (1); END",
    )

    await complete(store, *await claimed(store))

    assert rows(path, "writes") == 1
    assert [lease.job.id for lease in await claimed(store)] == ["end"]


# -- two processes ---------------------------------------------------------------------------------


async def test_two_last_parents_at_once_release_their_child_once(
    store: SqliteStore, other: SqliteStore, claimed: Claims
) -> None:
    """P17: whichever process commits first."""
    for number in range(20):
        end = f"end{number}"
        await store.enqueue([node(f"a{number}", end), node(f"b{number}", end), node(end, after=2)])
        first, second = await claimed(store)

        await asyncio.gather(complete(store, first), complete(other, second))

        [lease] = await claimed(other)
        assert lease.job.id == end
        await complete(store, lease)
    kinds = [event.kind for event in (await store.events(ACME, 0, 1000)).events]
    assert kinds.count(EventKind.READY) == 20


async def test_flows_survive_the_death_of_those_who_run_them(
    store: SqliteStore, start: Start, claimed: Claims
) -> None:
    """P17: killed at any moment, each job is released once, and each flow ends."""
    number, often = 40, rules(max_attempts=100)
    for each in range(number):
        top, left, right, end = (f"{part}{each}" for part in ("top", "left", "right", "end"))
        flow = [node(top, left, right), node(left, end, after=1), node(right, end, after=1)]
        flow.append(node(end, after=2))
        await store.enqueue([msgspec.structs.replace(one, rules=often) for one in flow])
    for worker in range(5):
        child = await start("run_all", f"w{worker}")
        assert child.stdout is not None
        for _ in range(3 + worker):
            await child.stdout.readline()
        child.kill()
        await child.wait()

    async with asyncio.timeout(BOUND_S):
        while leases := (await store.find(finding(states=ALIVE, limit=1))).jobs:
            await complete(store, *await claimed(store))
            await store.wait(Watch(tenants=(ACME,)), 0.1)

    assert leases == []
    jobs = (await store.find(finding(limit=1000))).jobs
    assert {each.state for each in jobs} == {State.COMPLETED}
    events = (await store.events(ACME, 0, 10_000)).events
    assert Counter(each.job_id for each in events if each.kind is EventKind.READY) == Counter(
        each.id for each in jobs if not each.id.startswith("top")
    )


# -- keeping ---------------------------------------------------------------------------------------


async def test_upkeep_looks_at_so_many_edges_and_prunes_the_others(
    path: Path, claimed: Claims
) -> None:
    """P15, P19: ended jobs with many edges wait a little; they hold up nobody else's."""
    clock = ManualClock()
    store = SqliteStore.from_url(f"sqlite:///{path}", clock)
    await store.open()
    wide = [dead(f"w{each}", EDGES_MAX) for each in range(LOOK_MAX // EDGES_MAX + 1)]
    await store.enqueue([*wide, job("usual"), node("parent", "child")])
    kept = node("kept", "child", how=RUN, rules=rules(keep_us=0))
    await store.enqueue([kept, node("child", after=2)])
    await store.cancel([Ref(ACME, id) for id in ("w0", "w1", "w2", "usual", "kept")])
    for _ in range(30):
        await claimed(store, 0)
    assert rows(path, "releasing") == 0
    clock.advance(24 * 3600)

    await store.prune(1000, LEASE)
    first = {each.id for each in (await store.find(finding())).jobs}
    clock.advance(LOOK_AGAIN_S)
    await store.prune(1000, LEASE)
    second = {each.id for each in (await store.find(finding())).jobs}
    await store.cancel([Ref(ACME, "child")])
    clock.advance(KEEP_AGAIN_S)
    await store.prune(1000, LEASE)
    third = {each.id for each in (await store.find(finding())).jobs}
    await store.close()

    assert first - second == {"w2"}
    assert second == {"kept", "child", "parent"}
    assert third == {"child", "parent"}


async def test_a_record_may_go_before_its_edges_are_followed(
    store: SqliteStore, path: Path, claimed: Claims
) -> None:
    """P17: they are followed all the same, and then nothing of it is left."""
    await store.enqueue([node("last", after=1)])
    edges = (*dead("x", 2 * RELEASE_MAX).edges, Edge("last", on_failure=OnFailure.SKIP))
    await store.enqueue([job("a", edges=edges), job("b", edges=edges)])
    await store.cancel([Ref(ACME, "a")])
    await store.change(changing(Act.DELETE, ids=("a", "b")))
    assert (await store.find(finding(ids=("a", "b")))).jobs == []
    for _ in range(6):
        assert await claimed(store) == []

    [last] = (await store.find(finding())).jobs
    assert (last.state, last.error) == (State.CANCELED, "its parent a was canceled")
    await store.change(changing(Act.DELETE))
    assert [rows(path, table) for table in TABLES] == [0] * 6


# -- what is counted -------------------------------------------------------------------------------


async def test_a_recount_finds_the_bytes_of_flows_as_they_were(
    store: SqliteStore, path: Path, claimed: Claims
) -> None:
    """P13: edges count for the cap of their tenant, while their job has not ended; a replay has
    none.
    """
    wide = node("a", "b", "c", "d", body=b"12345")
    await store.enqueue([wide, node("b", after=1), node("e", "b", body=b"123")])
    size = "SELECT bytes FROM counts WHERE kind = 'tenant' AND tenant = ?"
    bodies = 5 + 3 + len(job("b").envelope.body)
    assert ask(path, size, ACME) == [(bodies + edge_bytes(wide) + EDGE_BYTES + 1,)]
    await store.cancel([Ref(ACME, "a")])
    await store.change(changing(Act.REPLAY, ids=("a",)))
    before = ask(path, size, ACME)

    await store.count(ACME, recount=True)

    assert ask(path, size, ACME) == before
    assert ask(path, "SELECT size FROM jobs WHERE origin = 'a'") == [(5,)]


@pytest.mark.parametrize(
    "name",
    ['"', "]", "'; DROP TABLE jobs --", "$[0]", "\\u0022", "é\U0001f600", "NULL", "7"],
)
async def test_a_name_is_a_name_whatever_is_in_it(
    store: SqliteStore, claimed: Claims, name: str
) -> None:
    """P7: of a job, and of a tenant."""
    for tenant in (name, ACME):
        await store.enqueue([node(name, after=1, tenant=tenant)])
    await store.enqueue([node("a", name, tenant=name)])

    await complete(store, *await claimed(store))

    [lease] = await claimed(store)
    assert (lease.job.tenant, lease.job.id) == (name, name)


# -- rows that cannot be read ----------------------------------------------------------------------


async def test_a_parent_that_cannot_be_read_tells_its_children(
    store: SqliteStore, claimed: Claims
) -> None:
    """P17, P19: the claim that makes a dead letter of it follows its edges."""
    await store.enqueue([node("bad", "child", how=RUN), node("child", after=1), job("good")])
    await spoil(store, Ref(ACME, "bad"))

    first = [lease.job.id for lease in await claimed(store)]

    assert first == ["good"]
    assert [lease.job.id for lease in await claimed(store)] == ["child"]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE edges SET targets = replace(targets, 'fail', 'maybe') WHERE seq = 1",
        "UPDATE edges SET targets = x'ff' WHERE seq = 1",
        "UPDATE edges SET targets = '[[' WHERE seq = 1",
        'UPDATE edges SET targets = \'[7, "b", [7, 7, 7], {}, ["b"]]\' WHERE seq = 1',
        "UPDATE jobs SET edges = 'many' WHERE seq = 1",
        "UPDATE jobs SET parents_due = 'some', parents_failed = x'ff' WHERE seq = 2",
        "UPDATE jobs SET parents = 'some' WHERE seq = 2",
        "UPDATE jobs SET awaits = x'ff', journal = '{' WHERE seq = 2",
    ],
)
async def test_a_bad_row_stops_no_other_flow(
    store: SqliteStore, path: Path, claimed: Claims, statement: str
) -> None:
    """P19: neither an ack, nor a claim, a page or a prune."""
    await store.enqueue([node("a", "b", rules=rules(keep_us=0)), node("b", after=1)])
    await store.enqueue([node("x", "y", rules=rules(keep_us=0)), node("y", after=1)])
    ask(path, statement)
    query = msgspec.structs.replace(finding(), journals=True, limit=100)
    assert len((await store.find(query)).jobs) == 4

    await complete(store, *await claimed(store))

    found = [lease.job.id for _ in range(12) for lease in await claimed(store)]
    assert "y" in found
    await store.prune(100, LEASE)
    await store.change(changing(Act.DELETE))


@pytest.mark.parametrize("value", ["x'ff'", "'some'", "-1.5"])
async def test_bad_parents_fail_their_job_alone(
    store: SqliteStore, path: Path, claimed: Claims, value: str
) -> None:
    """P19: the claim goes on with the other jobs of its line."""
    await store.enqueue([node("a", "b", "c"), node("b", after=1), node("c", after=1)])
    await complete(store, *await claimed(store))
    ask(path, f"UPDATE jobs SET parents = {value}, parents_failed = {value} WHERE id = 'b'")

    assert [lease.job.id for lease in await claimed(store)] == ["c"]

    [bad] = (await store.find(finding(ids=("b",)))).jobs
    assert (bad.state, bad.reason) == (State.FAILED, Reason.DECODE)
