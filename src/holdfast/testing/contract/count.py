"""Count: how many jobs each queue has in each state, in agreement with what find shows."""

from __future__ import annotations

from holdfast.core.clock import SECOND
from holdfast.core.job import Completed, Failed, State
from holdfast.store import Act
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    AUDIO,
    GLOBEX,
    HOUR,
    MAIL,
    RETRY_S,
    changing,
    rules,
)

Counts = dict[tuple[str, str], dict[State, int]]


async def counts(bench: Bench, tenant: str | None = ACME) -> Counts:
    """What is there, without the states that have none."""
    return {
        (tally.tenant, tally.queue): {state: n for state, n in tally.counts.items() if n}
        for tally in await bench.store.count(tenant)
        if any(tally.counts.values())
    }


async def test_an_empty_store_counts_nothing(bench: Bench) -> None:
    """P15: no queue is listed that has no job."""
    assert await counts(bench) == {}
    assert await counts(bench, None) == {}


async def test_jobs_are_counted_by_queue_and_state(bench: Bench) -> None:
    """P13: each job is in one place, and counted there."""
    await bench.put("done", "retry", "held", "canceled", "failed")
    done, retry, _, _, failed = await bench.claim(5)
    await bench.end(done, Completed())
    await bench.end(retry, Failed("boom"))
    await bench.end(failed, Failed("no", retryable=False))
    await bench.cancel("canceled")
    await bench.put("free", "free2")
    await bench.put("later", delay_us=HOUR)
    await bench.put("elsewhere", queue=AUDIO)

    assert await counts(bench) == {
        (ACME, MAIL): {
            State.COMPLETED: 1,
            State.RETRYING: 1,
            State.PROCESSING: 1,
            State.CANCELED: 1,
            State.FAILED: 1,
            State.ENQUEUED: 2,
            State.SCHEDULED: 1,
        },
        (ACME, AUDIO): {State.ENQUEUED: 1},
    }


async def test_due_jobs_count_as_enqueued(bench: Bench) -> None:
    """P10: eligibility is by time, so counts change with the clock alone."""
    lease = await bench.held("retry")
    await bench.end(lease, Failed("boom"))
    await bench.put("later", delay_us=RETRY_S * SECOND)
    assert await counts(bench) == {(ACME, MAIL): {State.RETRYING: 1, State.SCHEDULED: 1}}

    bench.clock.advance(RETRY_S)

    assert await counts(bench) == {(ACME, MAIL): {State.ENQUEUED: 2}}


async def test_counts_keep_to_a_tenant(bench: Bench) -> None:
    """P7: a tenant's counts tell of nobody else; None is the operator's view of all."""
    await bench.put("a", "b")
    await bench.put("a", tenant=GLOBEX)

    assert await counts(bench, ACME) == {(ACME, MAIL): {State.ENQUEUED: 2}}
    assert await counts(bench, GLOBEX) == {(GLOBEX, MAIL): {State.ENQUEUED: 1}}
    assert await counts(bench, "unknown") == {}
    assert len(await counts(bench, None)) == 2


async def test_tallies_come_in_the_order_of_their_names(bench: Bench) -> None:
    """P15: the same answer each time."""
    for tenant, queue in ((GLOBEX, MAIL), (ACME, MAIL), (GLOBEX, AUDIO), (ACME, AUDIO)):
        await bench.put(f"of-{queue}", tenant=tenant, queue=queue)

    names = [(tally.tenant, tally.queue) for tally in await bench.store.count(None)]

    assert names == [(ACME, AUDIO), (ACME, MAIL), (GLOBEX, AUDIO), (GLOBEX, MAIL)]


async def test_the_oldest_is_since_when_it_could_have_run(bench: Bench) -> None:
    """P10: waiting is counted from the instant a job was due, not from its enqueue."""
    start = bench.clock.now()
    await bench.put("later", delay_us=30 * SECOND)
    [tally] = await bench.store.count(ACME)
    assert tally.oldest_at is None

    bench.clock.advance(40)
    await bench.put("now")

    [tally] = await bench.store.count(ACME)
    assert tally.oldest_at == start + 30 * SECOND


async def test_only_waiting_jobs_are_old(bench: Bench) -> None:
    """P15: held and finished jobs do not wait."""
    lease = await bench.held("a")
    [tally] = await bench.store.count(ACME)
    assert tally.oldest_at is None

    await bench.end(lease, Completed())
    [tally] = await bench.store.count(ACME)
    assert tally.oldest_at is None


async def test_what_is_gone_is_not_counted(bench: Bench) -> None:
    """P13: deleting, pruning and not keeping all take a job off its count."""
    await bench.put("deleted")
    await bench.put("pruned", rules=rules(keep_us=SECOND))
    await bench.put("unkept", rules=rules(keep_us=0))
    await bench.put("stays")
    await bench.store.change(changing(Act.DELETE, ids=("deleted",)))
    await bench.cancel("pruned")
    await bench.cancel("unkept")
    bench.clock.advance(1)
    await bench.store.prune(10, HOUR)

    assert await counts(bench) == {(ACME, MAIL): {State.ENQUEUED: 1}}
