"""Shadow: the state of a source, its rows and the jobs for what changed move in one step."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.core.errors import IdConflict, QueueFull, StaleSource
from holdfast.core.job import Completed, State
from holdfast.core.shadow import Shadow, SourceRow
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, GLOBEX, ids, job, rules, tenant_of
from holdfast.testing.contract.shadowing import (
    SOURCE,
    STATE,
    as_put,
    jobs,
    listed,
    read,
    refused,
    row,
    stamp_of,
    state,
    step,
)

# -- steps -----------------------------------------------------------------------------------------


async def test_a_step_writes_state_rows_and_jobs_together(bench: Bench) -> None:
    """S4.29: at one instant of the store's clock, and a reader sees all of it."""
    bench.needs("sources")
    rows = [row("1", body=b'{"a":1}'), row("2", number=2), row("9", gone=True)]

    answer = await bench.store.shadow(step("s1", put=tuple(rows), jobs=(job("a"), job("b"))))

    assert answer.at == bench.clock.now()
    found = await read(bench, after="")
    size = sum(one.size for one in rows)
    assert (found.at, list(found.sources)) == (
        bench.clock.now(),
        [SourceRow(SOURCE, "s1", STATE, 3, size)],
    )
    assert list(found.rows) == as_put(rows, bench.clock.now())
    assert ids(await bench.claim(9)) == ["a", "b"]


async def test_the_next_step_changes_and_drops_rows(bench: Bench) -> None:
    """S4.29: what it does not name stays as it was."""
    bench.needs("sources")
    await bench.store.shadow(step("s1", put=(row("1"), row("2"), row("3"))))
    began = bench.clock.now()
    bench.clock.advance(5)

    changed = row("2", "=v2", number=4, seen=2, body=b"1")
    await bench.store.shadow(
        step("s2", "s1", state=state(2), put=(changed, row("4")), drop=("3", "none"))
    )

    now = bench.clock.now()
    rows = [*as_put([row("1")], began), *as_put([changed, row("4")], now)]
    assert await listed(bench) == rows
    [source] = (await read(bench)).sources
    assert source == SourceRow(SOURCE, "s2", state(2), 3, sum(one.size for one in rows))


async def test_a_step_is_applied_once(bench: Bench) -> None:
    """P15: repeated after a lost answer, also when its jobs have ended and are gone."""
    bench.needs("sources")
    gone = job("a", rules=rules(keep_us=0))
    first = step("s1", put=(row("1"),), jobs=(gone,))
    await bench.store.shadow(first)
    await bench.end(await bench.one(), Completed())

    await bench.store.shadow(first)

    assert await jobs(bench) == []
    assert (await read(bench)).sources[0].rows == 1


@pytest.mark.parametrize("expect", ["", "s0", "s2"])
async def test_a_stale_step_changes_nothing(bench: Bench, expect: str) -> None:
    """P15: a poller that was overtaken loses; its rows and jobs are not written."""
    bench.needs("sources")
    await bench.store.shadow(step("s1", put=(row("1"),)))

    late = step("s9", expect, put=(row("1", "=v9"), row("2")), jobs=(job("a"),))
    error = await refused(bench, late, StaleSource)

    assert error.facts["source"] == SOURCE


async def test_a_step_of_a_source_that_is_not_there_is_stale(bench: Bench) -> None:
    """P15: unless it is the first."""
    bench.needs("sources")
    await refused(bench, step("s2", "s1", put=(row("1"),), jobs=(job("a"),)), StaleSource)


async def test_of_steps_at_once_one_is_applied(bench: Bench) -> None:
    """S4.19: three pollers read the same page; its changes are made once."""
    bench.needs("sources")
    await bench.store.shadow(step("s0"))
    rival = [
        step(f"s{one}", "s0", put=(row("1", f"=v{one}"),), jobs=(job(f"j{one}"),))
        for one in range(1, 4)
    ]

    answers = await asyncio.gather(
        *(bench.store.shadow(one) for one in rival), return_exceptions=True
    )

    [won] = [index for index, one in enumerate(answers, 1) if isinstance(one, Shadow)]
    assert sum(isinstance(one, StaleSource) for one in answers) == 2
    assert await stamp_of(bench) == f"s{won}"
    assert await jobs(bench) == [f"j{won}"]
    assert [one.version for one in await listed(bench)] == [f"=v{won}"]


# -- jobs of a step --------------------------------------------------------------------------------


async def test_a_job_that_exists_does_not_stop_a_step(bench: Bench) -> None:
    """P12: its id says that it is the same change."""
    bench.needs("sources")
    await bench.put("a")

    await bench.store.shadow(step("s1", jobs=(job("a"), job("b"))))

    assert await jobs(bench) == ["a", "b"]


async def test_an_id_of_another_type_refuses_the_step(bench: Bench) -> None:
    """P12: nothing of it is written."""
    bench.needs("sources")
    await bench.put("b", type="other")

    await refused(bench, step("s1", put=(row("1"),), jobs=(job("a"), job("b"))), IdConflict)


@pytest.mark.parametrize("cap", [{"max_queued": 2}, {"max_bytes": 5}])
async def test_a_full_tenant_refuses_the_whole_step(bench: Bench, cap: dict[str, int]) -> None:
    """P19: neither rows nor jobs nor the cursor; when there is room again, all of it."""
    bench.needs("sources")
    await bench.configure(tenant_of(), **cap)
    await bench.put("x", body=b"{}")
    given = step("s1", put=(row("1"), row("2")), jobs=(job("a", body=b"{}"), job("b", body=b"{}")))

    await refused(bench, given, QueueFull)
    assert await bench.kinds("a") == []
    await bench.end(await bench.one(), Completed())
    await bench.store.shadow(given)

    assert ids(await bench.claim(9)) == ["a", "b"]
    assert len(await listed(bench)) == 2


async def test_the_jobs_of_a_step_wake_a_worker_and_have_events(bench: Bench) -> None:
    """P14: as those of an enqueue."""
    bench.needs("sources")
    await bench.store.shadow(step("s1", jobs=(job("a", delay_us=5_000_000), job("b"))))

    assert await bench.state("a") is State.SCHEDULED
    assert [kind.value for kind in await bench.kinds("b")] == ["enqueued"]


# -- reads -----------------------------------------------------------------------------------------


async def test_rows_are_read_by_their_ids(bench: Bench) -> None:
    """S4.29: those that are not there are left out; an id that is named twice comes once."""
    bench.needs("sources")
    await bench.store.shadow(step("s1", put=(row("1"), row("2"), row("Ä 3"))))

    found = await read(bench, ids=("2", "none", "Ä 3", "2"))

    assert [one.id for one in found.rows] == ["2", "Ä 3"]
    assert [one.stamp for one in found.sources] == ["s1"]


async def test_rows_are_paged_by_id(bench: Bench) -> None:
    """P15: in the order of their code points, the same on every store."""
    bench.needs("sources")
    names = ["0", "10", "2", "A", "B", "a", "b", "é", "\uff46", "😀"]
    await bench.store.shadow(step("s1", put=tuple(row(name) for name in reversed(names))))

    found, after = [], ""
    while True:
        page = (await read(bench, after=after, limit=3)).rows
        found += [one.id for one in page]
        if len(page) < 3:
            break
        after = page[-1].id

    assert found == names


async def test_a_source_that_is_not_there_reads_as_nothing(bench: Bench) -> None:
    """P7: also one of another tenant."""
    bench.needs("sources")
    await bench.store.shadow(step("s1", put=(row("1"),)))

    for tenant, source in ((GLOBEX, SOURCE), (ACME, "other"), (ACME, SOURCE[:-1])):
        found = await read(bench, tenant=tenant, source=source, ids=("1",), after="")
        assert (list(found.sources), list(found.rows)) == ([], [])


async def test_the_sources_of_a_tenant_are_listed_by_name(bench: Bench) -> None:
    """P7: page by page, without those of another tenant."""
    bench.needs("sources")
    for name in ("b", "a", "c"):
        await bench.store.shadow(step("s1", source=name))
    await bench.store.shadow(step("s1", tenant=GLOBEX, source="d"))

    first = await read(bench, source="", limit=2)
    rest = await read(bench, source="", after="b", limit=2)

    assert [one.source for one in (*first.sources, *rest.sources)] == ["a", "b", "c"]


async def test_tenants_and_sources_have_rows_of_their_own(bench: Bench) -> None:
    """P7: names that run together included."""
    bench.needs("sources")
    names = [(ACME, "ab"), (ACME, "a"), (GLOBEX, "ab"), ("acmea", "b")]
    for index, (tenant, source) in enumerate(names):
        one = step("s1", tenant=tenant, source=source, put=(row("b1", f"=v{index}"),))
        await bench.store.shadow(one)

    for index, (tenant, source) in enumerate(names):
        assert [one.version for one in await listed(bench, tenant, source)] == [f"=v{index}"]


async def test_a_source_outlives_the_process(bench: Bench) -> None:
    """S4.41: cursor and shadow are as durable as jobs are."""
    bench.needs("sources")
    bench.needs("durable")
    rows = (row("1", body=b'"\xc3\xa9"'), row("2", gone=True))
    await bench.store.shadow(step("s1", put=rows))
    at = bench.clock.now()

    await bench.reopen()

    assert await listed(bench) == as_put(rows, at)
    assert await stamp_of(bench) == "s1"
