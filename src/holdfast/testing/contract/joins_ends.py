"""What ends a parent, wide joins, and how long results are kept (P17)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.bounds import RELEASE_MAX
from holdfast.core.clock import SECOND
from holdfast.core.job import (
    Completed,
    Failed,
    Lease,
    Reason,
    State,
)
from holdfast.core.journal import Join
from holdfast.store import Act
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    HOUR,
    changing,
    ids,
    rules,
)
from holdfast.testing.contract.joins import RUN, SKIP, flow, join, node, run

# -- whatever ends a parent ------------------------------------------------------------------------


async def fail(bench: Bench, lease: Lease) -> None:
    await bench.end(lease, Failed("no", retryable=False))


async def cancel(bench: Bench, lease: Lease) -> None:
    await bench.cancel(lease.job.id)


async def lapse(bench: Bench, lease: Lease) -> None:
    """Its worker dies on the last attempt, and upkeep fails it."""
    bench.clock.advance(61)
    assert [each.state for each in await bench.upkeep()] == [State.FAILED]


async def delete(bench: Bench, lease: Lease) -> None:
    await bench.end(lease, Failed("no", after_us=HOUR))
    await bench.store.change(changing(Act.DELETE, ids=(lease.job.id,)))


ENDS = [fail, cancel, lapse, delete]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
async def test_a_child_that_runs_after_failures_does_so_however_its_parent_ended(
    bench: Bench, end: Any
) -> None:
    """P17: an ack, a cancel, a rescue and a deletion all count, once."""
    attempts = 1 if end is lapse else 3
    await flow(
        bench, node("a", "b", how=RUN, rules=rules(max_attempts=attempts)), node("b", after=1)
    )

    await end(bench, await bench.one())

    assert (await bench.one()).job.id == "b"
    assert await join(bench, "b") == Join(1, 0, 1)


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
async def test_a_child_fails_with_its_parent_however_that_ended(bench: Bench, end: Any) -> None:
    """P17: at once, as a dead letter that names the parent; so do its own children."""
    attempts = 1 if end is lapse else 3
    await flow(
        bench,
        node("a", "b", rules=rules(max_attempts=attempts)),
        node("other", "b"),
        node("b", "c", after=2),
        node("c", after=1),
    )
    first, other = await bench.claim(2)

    if end is lapse:
        await bench.end(other, Completed())
    await end(bench, first)

    for id in ("b", "c"):
        found = await bench.get(id)
        assert (found.state, found.reason) == (State.FAILED, Reason.PARENT_FAILED)
    assert "a" in ((await bench.get("b")).error or "")
    if end is not lapse:
        assert (await bench.end(other, Completed())).state is State.COMPLETED
    assert await bench.claim(1) == []


async def test_a_parent_that_expires_in_its_queue_counts(bench: Bench) -> None:
    """P17: a time to live that has passed ends a job as well."""
    await flow(bench, node("a", "b", how=RUN, ttl_us=SECOND), node("b", after=1))
    bench.clock.advance(2)

    await bench.upkeep()

    assert (await bench.get("a")).reason is Reason.EXPIRED
    assert (await bench.one()).job.id == "b"


async def test_a_skipped_child_is_canceled_and_its_own_children_decide(bench: Bench) -> None:
    """P17: skip cancels, and what comes after a skipped job sees that it has not completed."""
    await flow(
        bench,
        node("a", "b", how=SKIP),
        node("b", "always", after=1, how=RUN),
        node("always", after=1),
    )

    await fail(bench, await bench.one())

    assert await bench.state("b") is State.CANCELED
    assert (await bench.one()).job.id == "always"


async def test_a_canceled_waiting_job_tells_its_children(bench: Bench) -> None:
    """P5, P17."""
    await flow(bench, node("a", "b"), node("b", "c", after=1), node("c", after=1))

    assert (await bench.cancel("b")).canceled

    assert (await bench.get("c")).reason is Reason.PARENT_FAILED
    await run(bench, "a")
    assert await bench.claim(1) == []


async def test_a_parent_counts_once(bench: Bench) -> None:
    """P17: repeated acks and cancels of an ended job change no join."""
    await flow(bench, node("a", "c"), node("b", "c"), node("c", after=2))
    first, _ = await bench.claim(2)
    await bench.end(first, Completed())

    await bench.end(first, Completed())
    await bench.cancel("a")
    await bench.store.change(changing(Act.DELETE, ids=("a",)))

    assert await join(bench, "c") == Join(2, 1)
    assert await bench.claim(1) == []


async def test_a_retry_of_a_parent_does_not_count(bench: Bench) -> None:
    """P17: only its end does."""
    await flow(bench, node("a", "b"), node("b", after=1))

    await bench.end(await bench.one(), Failed("no", after_us=0))

    assert await bench.state("b") is State.WAITING
    await run(bench, "a")
    await run(bench, "b")


async def test_a_replay_of_a_parent_does_not_count(bench: Bench) -> None:
    """P6, P17: it is a job of its own, without edges."""
    await flow(bench, node("a", "b"), node("b", "c", after=1), node("c", after=1))
    await fail(bench, await bench.one())
    await bench.store.change(changing(Act.REPLAY, ids=("a", "b")))

    leases = await bench.claim(10)
    assert len(leases) == 2
    for lease in leases:
        await bench.end(lease, Completed())
    assert (await bench.get("c")).reason is Reason.PARENT_FAILED


# -- wide ------------------------------------------------------------------------------------------


async def test_a_wide_release_reaches_every_child(bench: Bench) -> None:
    """P17, P15: in bounded parts; claims do what the ack has left."""
    number = RELEASE_MAX + 500
    targets = [f"c{n}" for n in range(number)]
    bench.needs("steps")
    for start in range(0, number, 500):
        await bench.add(*(node(id, after=1) for id in targets[start : start + 500]))
    await flow(bench, node("a", *targets))
    await run(bench, "a")

    found: set[str] = set()
    for _ in range(20):
        found |= set(ids(await bench.claim(500)))

    assert found == set(targets)


async def test_a_wide_join_counts_every_parent(bench: Bench) -> None:
    """P17: the callback is released once, by the last of them."""
    number = 300
    await flow(bench, *(node(f"p{n}", "end", how=RUN) for n in range(number)))
    await flow(bench, node("end", after=number))
    leases = await bench.claim(1000)
    assert len(leases) == number

    for lease in leases[:10]:
        await bench.cancel(lease.job.id)
    for lease in leases[10:-1]:
        await bench.end(lease, Completed())
    assert await bench.claim(1) == []
    await bench.end(leases[-1], Completed())

    assert ids(await bench.claim(10)) == ["end"]
    assert (await join(bench, "end")).failed == 10


async def test_a_long_chain_fails_to_its_end(bench: Bench) -> None:
    """P17: whatever its length, each of its jobs becomes a dead letter."""
    bench.needs("steps")
    number = RELEASE_MAX + 200
    chain = [
        node(f"n{n}", *([f"n{n + 1}"] if n + 1 < number else []), after=min(n, 1))
        for n in range(number)
    ]
    for start in range(0, number, 400):
        await bench.add(*chain[start : start + 400])
    await bench.cancel("n0")
    for _ in range(5):
        assert await bench.claim(1) == []

    assert (await bench.get(f"n{number - 1}")).reason is Reason.PARENT_FAILED


# -- keeping ---------------------------------------------------------------------------------------


async def test_the_result_of_a_parent_outlives_its_last_child(bench: Bench) -> None:
    """P17: it is not pruned, however short its keeping is, until its children have ended."""
    await flow(bench, node("a", "b", rules=rules(keep_us=0)), node("b", after=1))
    lease = await bench.one()
    await bench.end(lease, Completed(b"7"))
    bench.clock.advance(7200)
    await bench.store.prune(100, 24 * HOUR)
    assert (await bench.get("a")).result == b"7"

    await run(bench, "b")
    bench.clock.advance(120)
    await bench.store.prune(100, 24 * HOUR)

    assert await bench.peek("a") is None
