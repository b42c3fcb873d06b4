"""Journals in the keys: usual jobs pay nothing, a step costs one commit, and nothing stays."""

from __future__ import annotations

from typing import Any

import pytest
from tests.foundationdb_engine import Engine
from tests.stores.foundationdb.test_fdb_trips import Trips

from holdfast.core.bounds import STEP_BYTES_MAX, STEPS_BYTES_MAX
from holdfast.core.clock import SECOND
from holdfast.core.job import Abandoned, Completed, Reason, State
from holdfast.core.journal import Edge, Entry, EntryKind, new_join
from holdfast.core.lifecycle import decide
from holdfast.job_journal import with_journals
from holdfast.store import Act, Extension
from holdfast.stores.foundationdb.layout import Keys, Space, after
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing.contract.bench import Bench, by_key
from holdfast.testing.contract.builders import (
    ACME,
    GLOBEX,
    LEASE,
    changing,
    finding,
    ids,
    job,
    rules,
)

STEP = EntryKind.STEP
MANY = 100


def keys_of(bench: Bench) -> Keys:
    assert isinstance(bench.store, FoundationStore)
    return bench.store._open().keys


def leftovers(bench: Bench, engine: Engine, *tenants: str) -> list[bytes]:
    """What is stored of journals and edges."""
    keys, database = keys_of(bench), engine.database()
    prefixes = [keys.all(Space.RELEASING), keys.all(Space.REOPEN)]
    for tenant in tenants or (ACME,):
        prefixes += [keys.own(tenant, space) for space in (Space.JOURNAL, Space.EDGES)]
    return [
        bytes(key) for prefix in prefixes for key, _ in database.get_range(prefix, after(prefix))
    ]


# -- cost ------------------------------------------------------------------------------------------


async def test_usual_jobs_touch_no_key_of_journals_and_edges(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P16: from enqueue to prune, nothing of them is read or written."""

    def touched(*args: Any) -> bytes:
        raise AssertionError("a usual job has no journal and no edges")

    monkeypatch.setattr(Keys, "journal", touched)
    monkeypatch.setattr(Keys, "edges", touched)
    await bench.put("a", "b", "c", key=None)
    assert len(await bench.claim(1)) == 1
    [second] = await bench.claim(1)
    assert (await bench.extend(second)).error is None
    await bench.end(second, Completed())
    await bench.cancel("c")
    bench.clock.advance(61)
    await bench.upkeep()
    await bench.store.change(changing(Act.REPLAY, ids=("b",)))
    assert len((await bench.store.find(finding(limit=10))).jobs) == 4
    await bench.store.change(changing(Act.DELETE, ids=("c",)))
    bench.clock.advance(7300)

    assert (await bench.store.prune(100, SECOND)).jobs == 1


async def test_an_idle_claim_asks_for_nothing_more_where_there_are_flows(
    bench: Bench, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P17: that edges are left is said by a key of an index that claims read anyway."""
    await bench.add(job("a", edges=(Edge("b"),)), job("b", parents=1))
    await bench.end(await bench.one(), Completed())
    await bench.end(await bench.one(), Completed())
    asked = Keys.all

    def watched(keys: Keys, space: Space, *parts: bytes) -> bytes:
        assert space is not Space.RELEASING
        return asked(keys, space, *parts)

    monkeypatch.setattr(Keys, "all", watched)
    assert await bench.claim(10) == []


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Trips:
    return Trips(monkeypatch)


async def test_a_step_costs_what_a_heartbeat_costs(trips: Trips, bench: Bench) -> None:
    """One round of reads, and the commit; the second one too, and an ack that parks."""
    lease = await bench.held("a")
    for number in range(3):
        made, answer = await trips.of(bench.step(lease, f"s{number}"))
        assert made <= 2
    made, answer = await trips.of(bench.park(lease, "signal:approved"))
    assert (answer.state, made <= 3) == (State.SCHEDULED, True)
    made, answer = await trips.of(bench.send("a", "approved"))
    assert (answer.stored, made <= 3) == (True, True)


async def test_a_claim_asks_for_all_journals_together(trips: Trips, bench: Bench) -> None:
    """However many of its jobs have one."""
    await bench.put("early")
    await bench.claim(1)
    await bench.store.enqueue([job(f"j{number}") for number in range(MANY)])
    leases = await bench.claim(MANY)
    for lease in leases:
        await bench.step(lease, "s", lease.job.id.encode())
    await bench.store.ack([decide(Abandoned(), one.job, one.token, 0.0) for one in leases])

    made, again = await trips.of(bench.claim(MANY))

    assert len(again) == MANY
    assert made <= 5
    assert all(by_key(one.journal) == {(STEP, "s"): one.job.id.encode()} for one in again)


# -- size ------------------------------------------------------------------------------------------


async def test_steps_of_many_jobs_are_more_than_one_transaction_takes(bench: Bench) -> None:
    """P15: twelve heartbeats of a megabyte each, and the pages that bring them back."""
    number = 12
    await bench.store.enqueue([job(f"j{n}") for n in range(number)])
    leases = await bench.claim(number)
    value = b"x" * STEP_BYTES_MAX
    entries = tuple(Entry(STEP, f"s{n}", value) for n in range(STEPS_BYTES_MAX // STEP_BYTES_MAX))
    answers = await bench.store.extend(
        [
            Extension(tenant=ACME, id=one.job.id, token=one.token, lease_us=LEASE, entries=entries)
            for one in leases
        ]
    )
    assert [answer.error for answer in answers] == [None] * number
    bench.clock.advance(61)

    assert [one.left_out for one in await bench.claim(number)] == [len(entries)] * number
    ids = [one.job.id for one in leases]
    found = [each async for each in with_journals(bench.store, ACME, ids)]
    assert sorted(one.id for one, _ in found) == sorted(ids)
    assert all(len(journal.entries) == len(entries) for _, journal in found)


# -- names -----------------------------------------------------------------------------------------


async def test_names_do_not_run_into_each_other(bench: Bench) -> None:
    """P7: neither of jobs, nor of entries, whatever characters they have."""
    names = ["a", "aa", "a\u00ff", "\u00ff", "ab", "\u00ff\u00ff", "é"]
    for id in names:
        lease = await bench.held(id)
        for name in names:
            await bench.step(lease, name, f"{id}/{name}".encode())
            await bench.extend(lease, entries=(new_join(name, 100 + len(name)),))
    await bench.store.change(changing(Act.DELETE, ids=tuple(names)))  # All are held: none goes.

    for id in names:
        found = {key: value for key, value in (await bench.journal(id)).items() if key[0] is STEP}
        assert found == {(STEP, name): f"{id}/{name}".encode() for name in names}
        joins = [key for key in await bench.journal(id) if key[0] is EntryKind.JOIN]
        assert len(joins) == len(names)


# -- what stays ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["kept for no time", "pruned", "deleted"])
async def test_nothing_stays_of_a_journal(bench: Bench, engine: Engine, how: str) -> None:
    """P16: also of what the last ack has written; another tenant's job of that id keeps its own."""
    other = await bench.held("a", tenant=GLOBEX)
    await bench.step(other, "s", b"theirs")
    keep = 0 if how == "kept for no time" else SECOND
    lease = await bench.held("a", rules=rules(keep_us=keep))
    entries = (Entry(STEP, "s", b"1"), Entry(EntryKind.LOG, "", b"l"), new_join("wide", 1000))
    await bench.extend(lease, entries=entries)
    await bench.send("a", "approved")
    await bench.end(lease, Completed(), entries=(Entry(STEP, "last", b"2"),))
    if how == "pruned":
        bench.clock.advance(2)
        await bench.store.prune(10, SECOND)
    elif how == "deleted":
        await bench.store.change(changing(Act.DELETE, ids=("a",)))

    assert leftovers(bench, engine) == []
    assert await bench.journal("a", GLOBEX) == {(STEP, "s"): b"theirs"}


# -- what cannot be read ---------------------------------------------------------------------------


@pytest.mark.parametrize("value", [b"", b"short", None])
async def test_a_journal_that_cannot_be_read_fails_its_job_only(
    bench: Bench, engine: Engine, value: bytes | None
) -> None:
    """P15: as a dead letter that says so; without it a step would be done again."""
    lease = await bench.held("a")
    await bench.step(lease, "charge")
    await bench.extend(lease, entries=(new_join("lines", 3),))
    keys, database = keys_of(bench), engine.database()
    prefix = keys.journal(ACME, "a")
    for key, _ in list(database.get_range(prefix, after(prefix))):
        if value is None:
            database[bytes(key) + b"\xff"] = b"x"
        else:
            database[bytes(key)] = value
    await bench.end(lease, Abandoned())
    await bench.put("b")

    assert ids(await bench.claim(10)) == ["b"]

    assert (await bench.get("a")).reason is Reason.DECODE
    assert "journal" in ((await bench.get("a")).error or "")
    await bench.journal("a")
    await bench.store.change(changing(Act.DELETE, ids=("a",)))
    assert leftovers(bench, engine) == []
