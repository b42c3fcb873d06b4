"""Jobs that end with their parents, without a run: what counts the nodes of a flow (P17)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.audit import Audit
from holdfast.core.errors import InvalidInput
from holdfast.core.job import (
    Completed,
    EventKind,
    Failed,
    NewJob,
    Reason,
    State,
    check_new,
)
from holdfast.core.journal import Join
from holdfast.core.scope import BlockerKind
from holdfast.store import Ref, Watch
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, HOUR, rules
from holdfast.testing.contract.joins import RUN, flow, join, node, run
from holdfast.testing.contract.wait import asleep


def counter(id: str = "end", *targets: str, after: int = 1, **options: Any) -> NewJob:
    """A job that ends with its parents."""
    return node(id, *targets, after=after, ends_with_parents=True, **options)


async def test_a_job_ends_with_its_parents_without_a_run(bench: Bench) -> None:
    """P17: in the step that ends the last of them, once; it is never leased."""
    await flow(bench, node("a", "end", how=RUN), node("b", "end", how=RUN), counter(after=2))
    first, second = await bench.claim(10)
    await bench.end(first, Completed())
    assert await bench.state("end") is State.WAITING
    assert set(await bench.gates("end")) == {BlockerKind.AWAITS}

    await bench.end(second, Completed())

    found = await bench.get("end")
    assert (found.state, found.attempt, found.awaits) == (State.COMPLETED, 0, None)
    assert found.finished_at == bench.clock.now()
    assert await bench.claim(10) == []
    assert await join(bench, "end") == Join(2, 0)
    assert await bench.kinds("end") == [EventKind.ENQUEUED, EventKind.COMPLETED]
    assert (await bench.store.count(ACME, recount=True))[0].correction == 0


async def test_jobs_that_end_with_their_parents_end_those_behind_them(bench: Bench) -> None:
    """P17."""
    await flow(
        bench,
        node("a", "one"),
        counter("one", "two"),
        counter("two", "last"),
        node("last", after=1),
    )

    await run(bench, "a")

    assert await bench.state("two") is State.COMPLETED
    await run(bench, "last")


async def test_a_job_that_ends_with_its_parents_runs_if_one_has_not_completed(bench: Bench) -> None:
    """P17: when all of them have ended."""
    await flow(bench, node("a", "end", how=RUN), node("b", "end", how=RUN), counter(after=2))
    first, second = await bench.claim(10)
    await bench.end(first, Failed("no", retryable=False))
    assert await bench.state("end") is State.WAITING

    await bench.end(second, Completed())

    await run(bench, "end")
    assert await join(bench, "end") == Join(2, 0, 1)


async def test_a_signal_makes_a_job_run_that_would_end_with_its_parents(bench: Bench) -> None:
    """P17: so that it can do what the signal says."""
    await flow(bench, node("a", "end", how=RUN), counter())
    lease = await bench.one()
    await bench.send("end", "stop")
    await bench.end(lease, Completed())

    await run(bench, "end")


async def test_a_job_that_ends_with_its_parents_fails_with_one_that_says_so(bench: Bench) -> None:
    """P17."""
    await flow(bench, node("a", "end"), node("b", "end"), counter(after=2))

    await bench.end(await bench.one(), Failed("no", retryable=False))

    found = await bench.get("end")
    assert (found.state, found.reason) == (State.FAILED, Reason.PARENT_FAILED)


async def test_a_job_that_ended_with_its_parents_is_kept_as_its_rules_say(bench: Bench) -> None:
    """P6: its end is final, its key is free, its waiting callers are told."""
    await flow(
        bench,
        node("a", "end"),
        counter(key="k", rules=rules(keep_us=HOUR)),
        node("b", "gone"),
        counter("gone", rules=rules(keep_us=0)),
    )
    watch = Watch(job=Ref(ACME, "end"))
    async with asleep(bench, watch):
        for lease in await bench.claim(10):
            await bench.end(lease, Completed())

    assert await bench.state("end") is State.COMPLETED
    assert await bench.peek("gone") is None
    [answer] = await bench.add(node("again", key="k"))
    assert answer.created
    assert not (await bench.cancel("end")).canceled
    bench.clock.advance(3601)
    await bench.store.prune(1000, 0)
    assert await bench.peek("end") is None


async def test_the_audit_takes_the_end_of_such_a_job_for_no_breach(bench: Bench) -> None:
    """P3: nobody completed it without a lease; it never had one."""
    bench.needs("event_log")
    await flow(bench, node("a", "end", how=RUN), counter())
    await run(bench, "a")

    audit = Audit()
    audit.feed((await bench.store.events(ACME, 0, 1000)).events)

    assert audit.breaches == []
    assert audit.unended == set()


async def test_a_job_that_ends_with_its_parents_needs_some(bench: Bench) -> None:
    """P15."""
    with pytest.raises(InvalidInput, match="ends_with_parents: needs parents"):
        check_new(node("a", ends_with_parents=True))
