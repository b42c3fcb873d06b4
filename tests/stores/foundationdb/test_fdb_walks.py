"""What walks over many jobs does so in several transactions, and is right while others work."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.foundationdb_engine import Engine, Faults

from holdfast.core.job import Completed, State
from holdfast.core.scope import TENANT_KINDS, Scope, ScopeKind
from holdfast.stores.foundationdb import limits_groups, recount
from holdfast.stores.foundationdb.layout import Keys, Space
from holdfast.stores.foundationdb.step import STATES
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, CRAWL, GLOBEX, group_of, ids, queue_of

PREFIX = "c"
GROUP_JOBS = 60
SORTED = 7
"""Jobs that one step of a test sorts."""


def _damage(engine: Engine, scope: Scope, state: State, by: int) -> None:
    keys = Keys(PREFIX.encode() + b"\0")
    key = keys.scope(Space.COUNTS, scope) + STATES[state]
    tr = engine.database().create_transaction()
    tr.add(key, by.to_bytes(8, "little", signed=True))
    tr.commit().wait()


async def _recounted(bench: Bench) -> int:
    tallies = await bench.store.count(None, recount=True)
    return max(tally.correction for tally in tallies)


# -- recount ---------------------------------------------------------------------------------------


async def test_a_recount_takes_a_transaction_for_each_tenant_where_it_must(
    bench: Bench, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that took all jobs of all tenants would outlive its 5 s."""
    monkeypatch.setattr(recount, "STEP_S", 0.0)
    for tenant in (ACME, GLOBEX, "initech"):
        await bench.put("a", "b", tenant=tenant, group=CRAWL)
        _damage(engine, Scope(tenant, ScopeKind.QUEUE, "mail"), State.PROCESSING, 2)
        _damage(engine, Scope(tenant), State.COMPLETED, -3)
    _damage(engine, Scope("gone", ScopeKind.QUEUE, "mail"), State.PROCESSING, 1)
    before = engine.counts.version_requests

    assert await _recounted(bench) == 7

    assert engine.counts.version_requests - before > 4
    assert await _recounted(bench) == 0
    for kind in TENANT_KINDS:
        tallies = await bench.store.count(None, by=kind)
        assert [dict(tally.counts) for tally in tallies] == [{State.ENQUEUED: 2}] * 3


async def test_of_a_tenant_with_too_many_jobs_the_held_ones_are_counted(
    bench: Bench, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are what limits go by; the rest stays as it was, and the other tenants are done."""
    monkeypatch.setattr(recount, "TENANT_S", -1.0)
    await bench.put("a", "b", "c", group=CRAWL)
    assert len(await bench.claim(2)) == 2
    for scope in (Scope(ACME), queue_of(), group_of()):
        _damage(engine, scope, State.PROCESSING, 5)
        _damage(engine, scope, State.ENQUEUED, 5)

    assert await _recounted(bench) == 5

    for kind in TENANT_KINDS:
        [tally] = await bench.store.count(ACME, by=kind)
        assert dict(tally.counts) == {State.PROCESSING: 2, State.ENQUEUED: 6}
    assert await _recounted(bench) == 0


@pytest.mark.parametrize("large", [False, True])
async def test_a_recount_mends_nothing_that_others_are_changing(
    bench: Bench, engine: Engine, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs and counters are read at one version, and only the difference is added."""
    monkeypatch.setattr(recount, "STEP_S", 0.0)
    monkeypatch.setattr(recount, "ROWS_MAX", 3)
    if large:
        monkeypatch.setattr(recount, "TENANT_S", -1.0)
    engine.faults = Faults(3, delay=0.8, conflict=0.1, unknown=0.1)
    corrections: list[int] = []

    async def work(tenant: str) -> None:
        for number in range(8):
            await bench.put(f"{number}a", f"{number}b", tenant=tenant, group=CRAWL)
            for lease in await bench.claim(3, tenants=(tenant,)):
                await bench.end(lease, Completed())

    async def count_anew() -> None:
        for _ in range(6):
            corrections.extend(
                tally.correction for tally in await bench.store.count(None, recount=True)
            )

    await asyncio.gather(work(ACME), work(GLOBEX), count_anew(), count_anew())

    engine.faults.heal()
    assert set(corrections) == {0}
    assert await _recounted(bench) == 0


# -- settings of groups ----------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that sort only a few jobs."""
    monkeypatch.setattr(limits_groups, "REGROUP_MAX", SORTED)


@pytest.fixture
def lonely(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the process ended right after the step that changed settings."""

    async def ended(self: Any) -> None:
        return None

    monkeypatch.setattr(FoundationStore, "_regroup", ended)


def _names() -> list[str]:
    return [f"j{number:02}" for number in range(GROUP_JOBS)]


async def _drained(bench: Bench, at_once: int) -> list[str]:
    """Runs all jobs, and sees that never more than so many run."""
    order: list[str] = []
    while leases := await bench.claim(10):
        assert len(leases) <= at_once
        order += ids(leases)
        for lease in leases:
            await bench.end(lease, Completed())
    return order


@pytest.mark.usefixtures("small")
async def test_a_large_group_is_sorted_in_several_transactions(
    bench: Bench, engine: Engine
) -> None:
    """One would not hold all its jobs; when the call returns, all is done."""
    await bench.put(*_names(), group=CRAWL)
    before = engine.counts.commits

    await bench.configure(group_of(), max_running=2)

    assert engine.counts.commits - before >= GROUP_JOBS // SORTED
    ready = bench.store.options.prefix.encode() + b"\0"  # type: ignore[attr-defined]
    line = engine.database().get_range(
        Keys(ready).ready(ACME, "mail"), Keys(ready).ready(ACME, "mail") + b"\xff" * 16
    )
    assert len(line) == 2
    assert await _drained(bench, 2) == _names()


@pytest.mark.usefixtures("lonely")
async def test_a_limit_holds_before_its_group_is_sorted(bench: Bench) -> None:
    """A claim looks at the group of each job that it is about to take."""
    await bench.put(*_names(), group=CRAWL)

    await bench.configure(group_of(), max_running=2)

    assert sorted(await _drained(bench, 2)) == _names()


@pytest.mark.usefixtures("lonely")
async def test_order_holds_before_a_group_is_sorted(bench: Bench) -> None:
    """Even if the jobs still stand in the line by their priority."""
    for place, id in enumerate(_names()):
        await bench.put(id, group=CRAWL, priority=place)

    await bench.configure(group_of(), ordered=True)

    assert await _drained(bench, 1) == _names()


async def test_prune_finishes_what_a_change_of_settings_left(bench: Bench) -> None:
    """Jobs of a group that was opened must not wait for ever."""
    await bench.configure(queue_of(), groups={"max_running": 1})
    for place, id in enumerate(_names()):
        await bench.put(id, group=f"g{place % 3}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits_groups, "REGROUP_MAX", SORTED)

        async def ended(self: Any) -> None:
            return None

        patch.setattr(FoundationStore, "_regroup", ended)
        await bench.configure(queue_of(), max_running=1000)
        assert len(await bench.claim(1000)) < GROUP_JOBS

    await bench.store.prune(1, 0)

    assert (await bench.store.count(ACME))[0].counts[State.ENQUEUED] > 0
    assert len(await bench.claim(1000)) > 0
    assert (await bench.store.count(ACME))[0].counts == {State.PROCESSING: GROUP_JOBS}


@pytest.mark.usefixtures("small")
async def test_groups_are_sorted_while_others_work(bench: Bench, engine: Engine) -> None:
    """No limit is exceeded, no job is lost, whoever is in the way."""
    engine.faults = Faults(5, delay=0.6, conflict=0.05, unknown=0.05)
    await bench.put(*_names(), group=CRAWL)
    done: list[str] = []

    async def work() -> None:
        while len(done) < GROUP_JOBS:
            for lease in await bench.claim(3):
                assert (await bench.end(lease, Completed())).error is None
                done.append(lease.job.id)
            await asyncio.sleep(0)

    async def change() -> None:
        for most in (3, 1, 2):
            await bench.configure(group_of(), max_running=most)
        await bench.configure(group_of())

    await asyncio.gather(work(), work(), change())

    engine.faults.heal()
    assert sorted(done) == _names()
    assert await _recounted(bench) == 0
