"""Journals: usual jobs do not pay for them, they go with their job, and a bad one fails alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.stores.postgres.row_jobs import complete, done, extension, step, take
from tests.stores.postgres.test_flat_claims import a_claim
from tests.stores.postgres.test_flat_tiers import TOUCHED

from holdfast.core.bounds import STEPS_MAX
from holdfast.core.errors import JournalFull
from holdfast.core.job import Abandoned, Lease, Reason, State
from holdfast.core.journal import Edge, Entry, EntryKind, OnFailure, new_join
from holdfast.core.lifecycle import decide
from holdfast.store import Act, Extended
from holdfast.stores.postgres import maintenance
from holdfast.stores.postgres.ack import apply_transitions, complete_jobs
from holdfast.stores.postgres.change import COPY_MAX
from holdfast.stores.postgres.claim import claim_jobs
from holdfast.stores.postgres.enqueue import enqueue_jobs
from holdfast.stores.postgres.extend import extend_leases
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import HOUR, changing, finding, job, rules
from holdfast.testing.contract.joins import node

if TYPE_CHECKING:
    from tests.stores.postgres.conftest import Connect

BESIDE = ("entries", "joins", "leftovers", "releasing")
"""The tables of journals and joins."""
BEFORE = 20
DAY_S = 24 * 3600


async def write(store: PostgresStore, lease: Lease, *entries: Entry) -> Extended:
    beat = msgspec.structs.replace(extension(lease), entries=entries)
    [answer] = await store.extend([beat])
    return answer


def done_step(name: str, value: bytes = b"1") -> Entry:
    return Entry(EntryKind.STEP, name, value)


async def sizes(connection: Any) -> dict[str, int]:
    """How many rows each table of journals has."""
    return {each: await connection.fetchval(f"SELECT count(*) FROM {each}") for each in BESIDE}


NONE = dict.fromkeys(BESIDE, 0)


async def test_usual_jobs_touch_no_table_of_journals(
    store: PostgresStore, connect: Connect
) -> None:
    """P16: neither their enqueue, claim, heartbeat nor end; a claim asks whether edges are left."""
    connection = await connect()
    async with connection.transaction():
        mine = step(store, connection)
        await mine.begin()
        await enqueue_jobs(mine, [job(f"j{n}", key=f"k{n}") for n in range(20)])
        claimed = await claim_jobs(mine, a_claim(20), True)
        leases = claimed.leases
        await extend_leases(mine, [extension(lease) for lease in leases])
        await complete_jobs(mine, done(leases[:10]))
        released = [decide(Abandoned(), one.job, one.token, 0.0) for one in leases[10:]]
        await apply_transitions(mine, released)
        found = {table: rows for table, *rows in await connection.fetch(TOUCHED)}

    assert (len(leases), claimed.edges_left) == (20, False)
    assert [found[table] for table in BESIDE] == [[0, 0]] * len(BESIDE)


async def test_nothing_of_a_journal_outlives_its_job(
    store: PostgresStore, connect: Connect
) -> None:
    """P16: whether an ack, an operator or upkeep deletes the job."""
    connection, short = await connect(), rules(keep_us=0)
    edges = (Edge("nobody"),)
    await store.enqueue([job("ack", rules=short), job("prune", rules=short, edges=edges)])
    await store.enqueue([job("delete", edges=edges), job("waits", parents=1, edges=edges)])
    leases = await take(store, 10)
    assert len(leases) == 3
    for lease in leases:
        log = Entry(EntryKind.LOG, "", b"line")
        assert (await write(store, lease, done_step("s"), new_join("j", 3), log)).error is None
    await complete(store, leases)

    await store.change(changing(Act.DELETE, ids=("delete", "waits")))
    await take(store, 1)
    await store.prune(100, HOUR)

    assert await sizes(connection) == NONE
    assert (await store.find(finding())).jobs == []


async def test_upkeep_deletes_so_many_rows_in_a_call(
    store: PostgresStore, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P15: and says that there is more."""
    connection = await connect()
    monkeypatch.setattr(maintenance, "DROP_MAX", 30)
    await store.enqueue([job(id) for id in ("a", "b")])
    leases = await take(store, 2)
    for lease in leases:
        await write(store, lease, *(done_step(f"s{number}") for number in range(50)))
    await complete(store, leases)
    await store.change(changing(Act.DELETE, ids=("a", "b")))
    left = []

    for _ in range(4):
        more = (await store.prune(100, HOUR)).more
        left.append((more, (await sizes(connection))["entries"]))

    assert left == [(True, 70), (True, 40), (True, 10), (False, 0)]
    assert await sizes(connection) == NONE


async def test_a_day_of_the_history_goes_with_its_journals_but_not_with_wanted_parents(
    store: PostgresStore, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P16, P17: also when it is emptied at once."""
    connection, clock = await connect(), store._clock
    assert isinstance(clock, ManualClock)
    monkeypatch.setattr(maintenance, "WHOLE_MIN", 3)
    await store.enqueue([job(f"j{n}", rules=rules(keep_us=24 * HOUR)) for n in range(5)])
    await store.enqueue([node("p", "c", rules=rules(keep_us=24 * HOUR)), node("c", after=1)])
    leases = await take(store, 10)
    for lease in leases:
        await write(store, lease, done_step("s"))
    await complete(store, leases)
    clock.advance(3 * DAY_S)

    for _ in range(4):
        await store.prune(100, HOUR)

    assert {each.id for each in (await store.find(finding())).jobs} == {"p", "c"}
    assert await sizes(connection) == {**NONE, "entries": 1}
    await complete(store, await take(store, 1))
    clock.advance(3 * DAY_S)
    for _ in range(4):
        await store.prune(100, HOUR)
    assert await sizes(connection) == NONE


async def test_an_entry_that_cannot_be_read_fails_its_job_alone(
    store: PostgresStore, connect: Connect
) -> None:
    """P16, P19: its step might have been done, so the job does not run; its child is told."""
    connection = await connect()
    edge = Edge("child", on_failure=OnFailure.RUN)
    await store.enqueue([job("bad", edges=(edge,)), job("good"), job("child", parents=1)])
    for lease in await take(store, 10):
        await write(store, lease, done_step("s"), Entry(EntryKind.POSITION, "p", b"0"))
        await store.ack([decide(Abandoned(), lease.job, lease.token, 0.0)])
    await connection.execute(
        "UPDATE entries SET kind = 'odd' WHERE kind = 'position' AND seq ="
        " (SELECT seq FROM jobs WHERE id = 'bad')"
    )

    found = await take(store, 10)
    child = await take(store, 10)
    page = await store.find(finding(ids=("bad",)))

    assert [(lease.job.id, len(lease.journal)) for lease in found] == [("good", 2)]
    assert [lease.job.id for lease in child] == ["child"]
    assert (page.jobs[0].state, page.jobs[0].reason) == (State.FAILED, Reason.DECODE)


async def test_a_size_that_cannot_be_read_is_counted_again(
    store: PostgresStore, connect: Connect
) -> None:
    """P16, P19: the share of the job stays what it is, and the batch goes on."""
    connection = await connect()
    await store.enqueue([job("bad"), job("good")])
    bad, good = await take(store, 2)
    for start in range(0, STEPS_MAX, 100):
        entries = [done_step(f"s{number}") for number in range(start, start + 100)]
        assert (await write(store, bad, *entries)).error is None
    await connection.execute("UPDATE jobs SET journal = '{' WHERE id = 'bad'")

    answers = [
        await write(store, bad, done_step("more")),
        await write(store, bad, done_step("s1", b"2")),
        await write(store, good, done_step("s")),
    ]

    assert [type(answer.error) for answer in answers] == [JournalFull, type(None), type(None)]
    assert (await sizes(connection))["entries"] == STEPS_MAX + 1


async def test_a_replay_from_a_step_copies_so_many_journals_in_a_call(
    store: PostgresStore,
) -> None:
    """P15: the next calls go on from its cursor."""
    await store.enqueue([job(f"j{number}") for number in range(COPY_MAX + 5)])
    leases = await take(store, 100)
    for lease in leases:
        assert (await write(store, lease, done_step("s"))).error is None
    await complete(store, leases)
    change = msgspec.structs.replace(changing(Act.REPLAY), from_step="s")

    first = await store.change(change)
    assert first.cursor is not None
    second = await store.change(msgspec.structs.replace(change, after=first.cursor))

    assert [len(first.done), len(second.done), second.cursor] == [COPY_MAX, 5, None]
    assert len(await take(store, 100)) == COPY_MAX + 5
