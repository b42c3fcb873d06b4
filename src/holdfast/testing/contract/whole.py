"""Calls that create all of their jobs, or none (P1, P12, P15)."""

from __future__ import annotations

import pytest

from holdfast.core.bounds import BATCH_MAX
from holdfast.core.errors import BatchRefused, IdConflict, InvalidInput, QueueFull
from holdfast.core.job import Completed, NewJob
from holdfast.core.journal import Edge
from holdfast.core.scope import ScopeKind
from holdfast.store import Enqueued
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    AUDIO,
    CRAWL,
    GLOBEX,
    HOUR,
    finding,
    ids,
    job,
    rules,
    tenant_of,
)


async def whole(bench: Bench, *jobs: NewJob) -> list[Enqueued]:
    return await bench.store.enqueue(jobs, whole=True)


def told(answers: list[Enqueued]) -> list[tuple[str, bool, type[Exception] | None]]:
    """The id of each answer, whether its job was created, and the kind of its error."""
    kinds = [None if each.error is None else type(each.error) for each in answers]
    return [(each.id, each.created, kind) for each, kind in zip(answers, kinds, strict=True)]


async def nothing_else(bench: Bench, *known: str) -> None:
    """Checks that the store has these jobs only, and that no other one ever had an event."""
    page = await bench.store.find(finding(ACME, newest_first=False))
    assert [each.id for each in page.jobs] == list(known)
    events = await bench.store.events(ACME, 0, 1000)
    assert {event.job_id for event in events.events} == set(known)
    assert not any(each.correction for each in await bench.store.count(ACME, recount=True))


async def test_a_whole_call_creates_all_of_its_jobs(bench: Bench) -> None:
    """P1: as any other call does."""
    answers = await whole(bench, job("a"), job("b", queue=AUDIO), job("c", key="k", group=CRAWL))

    assert told(answers) == [("a", True, None), ("b", True, None), ("c", True, None)]
    assert sorted(ids(await bench.claim(10))) == ["a", "b", "c"]


async def test_a_repeated_whole_call_says_that_it_was_done(bench: Bench) -> None:
    """P12: whatever its jobs have become meanwhile."""
    jobs = [job("a"), job("b", key="k")]
    await whole(bench, *jobs)
    lease = await bench.one()
    await bench.end(lease, Completed())

    assert told(await whole(bench, *jobs)) == [("a", False, None), ("b", False, None)]
    assert len((await bench.store.find(finding(ACME))).jobs) == 2


async def test_a_held_key_refuses_the_whole_call(bench: Bench) -> None:
    """P12: the answer names the holder of the key; no other job is created, no key is taken."""
    await bench.put("first", key="taken")

    answers = await whole(
        bench, job("a"), job("b", key="taken"), job("c", key="free", rules=rules(key_us=HOUR))
    )

    assert told(answers) == [
        ("a", False, BatchRefused),
        ("first", False, None),
        ("c", False, BatchRefused),
    ]
    await nothing_else(bench, "first")
    assert told(await whole(bench, job("d", key="free"))) == [("d", True, None)]


async def test_a_known_id_refuses_the_whole_call(bench: Bench) -> None:
    """P12: some of its jobs are there, so it is no repeat."""
    await bench.put("b")

    answers = await whole(bench, job("a"), job("b"), job("c"))

    assert told(answers) == [
        ("a", False, BatchRefused),
        ("b", False, None),
        ("c", False, BatchRefused),
    ]
    await nothing_else(bench, "b")


async def test_an_id_of_another_type_refuses_the_whole_call(bench: Bench) -> None:
    """P12."""
    await bench.put("b")

    answers = await whole(bench, job("a"), job("b", type="other"))

    assert told(answers) == [("a", False, BatchRefused), ("b", False, IdConflict)]
    await nothing_else(bench, "b")


async def test_a_full_tenant_refuses_the_whole_call(bench: Bench) -> None:
    """P15: the room that there is stays free, for smaller calls."""
    await bench.configure(tenant_of(), max_queued=3)
    await bench.put("first")

    answers = await whole(bench, job("a"), job("b"), job("c"))

    assert [each.created for each in answers] == [False] * 3
    kinds = {type(each.error) for each in answers}
    assert QueueFull in kinds
    assert kinds <= {QueueFull, BatchRefused}
    assert told(await whole(bench, job("d"), job("e"))) == [("d", True, None), ("e", True, None)]


async def test_a_refused_whole_call_leaves_no_counts(bench: Bench) -> None:
    """P13: neither in the queue, nor in its group, nor among the tenant's bytes."""
    await bench.put("b")
    await whole(bench, job("a", queue=AUDIO, group=CRAWL, body=b"x" * 100), job("b"))

    for by in (ScopeKind.QUEUE, ScopeKind.TENANT, ScopeKind.GROUP):
        tallies = await bench.store.count(ACME, by=by)
        assert sum(sum(each.counts.values()) for each in tallies) == (by is not ScopeKind.GROUP)
    assert ids(await bench.claim(10)) == ["b"]


async def test_a_refused_whole_call_leaves_no_joins_and_edges(bench: Bench) -> None:
    """P17: the same jobs can be created later."""
    bench.needs("steps")
    await bench.put("c")
    jobs = [job("b", parents=1), job("a", edges=(Edge("b"),))]
    answers = await whole(bench, *jobs, job("c"))
    assert [each.created for each in answers] == [False] * 3

    assert all(each.created for each in await whole(bench, *jobs))

    first, second = await bench.claim(10)
    for lease in (first, second):
        await bench.end(lease, Completed())
    assert (await bench.one()).job.id == "b"


async def test_a_whole_call_is_of_one_tenant(bench: Bench) -> None:
    """P7."""
    with pytest.raises(InvalidInput, match="jobs: must be of one tenant"):
        await whole(bench, job("a"), job("b", tenant=GLOBEX))
    await nothing_else(bench)


async def test_a_whole_call_can_be_as_large_as_any_other(bench: Bench) -> None:
    """P15: and is refused for its last job as well as for its first."""
    await bench.put("last")
    jobs = [job(f"j{number}") for number in range(BATCH_MAX - 1)]

    answers = await whole(bench, *jobs, job("last"))

    assert not any(each.created for each in answers)
    await nothing_else(bench, "last")
    assert all(each.created for each in await whole(bench, *jobs))
