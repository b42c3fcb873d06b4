"""A stored row, whatever it holds, fails nothing but itself."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from holdfast.core.job import Completed, NewJob, Reason, State
from holdfast.core.lifecycle import decide
from holdfast.core.scope import Scope, ScopeSettings, encode
from holdfast.store import Act, Claim, Put, Ref
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing.contract.builders import ACME, GLOBEX, LEASE, changing, finding, job


def fresh(*ids: str, tenant: str = ACME) -> list[NewJob]:
    """Jobs whose sender says that nobody else can know their ids."""
    return [msgspec.structs.replace(job(id, tenant=tenant), fresh=True) for id in ids]


async def test_an_id_called_fresh_twice_stops_nobody(store: SqliteStore, path: Path) -> None:
    """P12, P19: the second is the first one, and others go on, also after a restart."""
    await store.enqueue(fresh("a"))
    await store.enqueue(fresh("a"))
    await store.enqueue(fresh("b", "b"))
    await store.enqueue(fresh("c", tenant=GLOBEX))
    again = SqliteStore.from_url(f"sqlite:///{path}")
    await again.open()
    try:
        leases = await again.claim(Claim(worker="w", nonce="n", limit=10, lease_us=LEASE))
        acks = await again.ack([decide(Completed(), one.job, one.token, 0.0) for one in leases])
        page = await again.find(finding(None))
    finally:
        await again.close()

    assert sorted((one.job.tenant, one.job.id) for one in leases) == [
        (ACME, "a"),
        (ACME, "b"),
        (GLOBEX, "c"),
    ]
    assert [ack.state for ack in acks] == [State.COMPLETED] * 3
    assert len(page.jobs) == 3


def damage(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute(statement, values).rowcount == 1


async def claimed(store: SqliteStore, limit: int = 10) -> list[str]:
    found = await store.claim(Claim(worker="w", nonce="n", limit=limit, lease_us=LEASE))
    return sorted(one.job.id for one in found)


@pytest.mark.parametrize(
    ("column", "value"),
    [("rules", "no JSON"), ("rules", b"\xff"), ("rules", 7), ("tags", "{"), ("reason", "NO SUCH")],
)
async def test_whatever_a_column_holds_its_job_fails_alone(
    store: SqliteStore, path: Path, column: str, value: object
) -> None:
    """P11, P19: it becomes a dead letter that says why, and lists go on."""
    await store.enqueue([job("a"), job("bad"), job("c")])
    damage(path, f"UPDATE jobs SET {column} = ? WHERE id = 'bad'", value)

    first = await store.find(finding(newest_first=False))
    leased = await claimed(store)
    last = await store.find(finding(newest_first=False))

    assert [each.id for each in first.jobs] == [each.id for each in last.jobs] == ["a", "bad", "c"]
    assert leased == ["a", "c"]
    bad = last.jobs[1]
    assert (bad.state, bad.reason) == (State.FAILED, Reason.DECODE)
    assert "cannot be read" in (bad.error or "")


@pytest.mark.parametrize("column", ["rules", "tags", "reason", "state"])
async def test_people_can_act_on_what_cannot_be_read(
    store: SqliteStore, path: Path, column: str
) -> None:
    """P19: searches by tag, recounts and changes of many go on; the record can be deleted."""
    await store.enqueue([job("a", tags=("new",)), job("bad"), job("c", tags=("new",))])
    damage(path, f"UPDATE jobs SET {column} = '{{' WHERE id = 'bad'")

    found = await store.find(finding(tags=("new",), newest_first=False))
    await store.count(ACME, recount=True)
    changed = await store.change(changing(Act.DELETE))

    assert [each.id for each in found.jobs] == ["a", "c"]
    assert {ref.id for ref in changed.done} == {"a", "bad", "c"}
    assert (await store.find(finding())).jobs == []


async def test_a_scope_whose_settings_cannot_be_read_stands_still_alone(
    store: SqliteStore, path: Path
) -> None:
    """P19: nobody knows its limits, so nothing of it starts; all others go on, and it is told."""
    await store.enqueue([job("a"), job("b", tenant=GLOBEX)])
    name = Scope(ACME).name
    await store.settings([Put(name, encode(ScopeSettings(max_running=5)), 0)])
    damage(path, "UPDATE settings SET value = x'ff' WHERE name = ?", name)
    other = SqliteStore.from_url(f"sqlite:///{path}")
    await other.open()
    await other.settings([Put(Scope(GLOBEX).name, encode(ScopeSettings(max_running=5)), 0)])

    try:
        leased = await claimed(other)
        explained = await other.explain(Ref(ACME, "a"))
    finally:
        await other.close()

    assert leased == ["b"]
    assert "cannot be read" in str(explained.gates)


@pytest.mark.parametrize(("column", "value"), [("ids", "["), ("kind", "no such"), ("ids", b"\0")])
async def test_a_fact_that_cannot_be_read_does_not_end_the_log(
    store: SqliteStore, path: Path, column: str, value: object
) -> None:
    """P14, P19: the facts before it and after it are told."""
    for id in ("a", "b", "c"):
        await store.enqueue([job(id)])
    damage(path, f"UPDATE events SET {column} = ? WHERE cursor = 2", value)

    page = await store.events(ACME, 0, 10)

    assert [each.job_id for each in page.events] == ["a", "c"]
    assert page.cursor == 3
