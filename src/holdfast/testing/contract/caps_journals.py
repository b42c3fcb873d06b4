"""What jobs remember counts for the cap of their tenant, which bounds what comes from outside."""

from __future__ import annotations

import pytest

from holdfast.core.clock import SECOND
from holdfast.core.errors import QueueFull
from holdfast.core.job import Abandoned, Completed, Failed, Outcome
from holdfast.core.journal import Edge, Entry, EntryKind, OnFailure, Signal, await_signal, new_join
from holdfast.store import Act
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    GLOBEX,
    HOUR,
    changing,
    job,
    rules,
    tenant_of,
)
from holdfast.testing.contract.caps import full
from holdfast.testing.contract.steps import ERROR, LOG, POSITION, STEP

FAILED = Failed("no", retryable=False)


async def waiting_bytes(bench: Bench) -> int:
    """The bytes that count for the tenant's cap: a refused enqueue says them."""
    await bench.configure(tenant_of(), max_bytes=1)
    [answer] = await bench.add(job("probe", body=b"x" * 1000))
    await bench.configure(tenant_of())
    assert isinstance(answer.error, QueueFull), answer
    found = answer.error.facts["queued"]
    assert isinstance(found, int)
    return found


async def recounted(bench: Bench) -> int:
    """The same after the jobs were counted again."""
    await bench.store.count(None, recount=True)
    return await waiting_bytes(bench)


# -- what counts -----------------------------------------------------------------------------------


async def test_what_a_job_remembers_counts(bench: Bench) -> None:
    """P19: steps, positions and signals, each with its present value; lines and errors do not."""
    lease = await bench.held("a", body=b"x" * 10)
    await bench.step(lease, "s", b"x" * 100)
    await bench.step(lease, "s", b"again")
    await bench.write(lease, POSITION, "p", b"x" * 50)
    await bench.write(lease, POSITION, "p", b"x" * 20)
    await bench.send("a", "approved", b"x" * 5)
    await bench.send("a", "approved", b"x" * 500)
    await bench.write(lease, LOG, "", b"x" * 1000)
    await bench.write(lease, ERROR, "0", b"x" * 1000)

    assert await waiting_bytes(bench) == 10 + 100 + 20 + 5
    assert await recounted(bench) == 10 + 100 + 20 + 5


async def test_several_writes_of_one_call_count(bench: Bench) -> None:
    """P15: of one job and of several, in a heartbeat, an ack and a batch of signals."""
    bench.needs("steps")
    await bench.put("a", "b", body=b"x" * 10)
    first, second = await bench.claim(2)
    two = (Entry(STEP, "s", b"x" * 30), Entry(STEP, "t", b"x" * 3))
    assert (await bench.extend(first, entries=two)).error is None
    await bench.end(second, Abandoned(), entries=two)
    sent = [Signal(ACME, id, name, b"x" * 100) for id in "ab" for name in "xyx"]
    assert [answer.stored for answer in await bench.store.signal(sent)] == [True, True, False] * 2

    assert await waiting_bytes(bench) == 2 * (10 + 33 + 200)
    assert await recounted(bench) == 2 * (10 + 33 + 200)


@pytest.mark.parametrize("keep_us", [0, HOUR])
@pytest.mark.parametrize("outcome", [Completed(), FAILED], ids=["complete", "fail"])
async def test_an_end_gives_back_what_was_remembered(
    bench: Bench, outcome: Outcome, keep_us: int
) -> None:
    """P13: by a plain ack and by one that writes; a kept journal waits no more."""
    kept = rules(keep_us=keep_us, keep_failed_us=keep_us)
    await bench.put("rest", body=b"x" * 7, delay_us=HOUR)
    for id, entries in (("a", ()), ("b", (Entry(STEP, "last", b"x" * 40),))):
        lease = await bench.held(id, body=b"x" * 10, rules=kept)
        await bench.step(lease, "s", b"x" * 100)
        await bench.end(lease, outcome, entries=entries)

        assert await waiting_bytes(bench) == 7
        assert await recounted(bench) == 7


async def test_cancel_delete_and_expiry_give_it_back(bench: Bench) -> None:
    """P13: every way in which a job ends."""
    bench.needs("steps")
    await bench.put("a", "b", body=b"x" * 10)
    await bench.put("c", body=b"x" * 10, ttl_us=SECOND)
    await bench.store.signal([Signal(ACME, id, "s", b"x" * 100) for id in "abc"])
    assert await waiting_bytes(bench) == 330

    await bench.cancel("a")
    assert await waiting_bytes(bench) == 220
    await bench.store.change(changing(Act.DELETE, ids=("b",)))
    assert await waiting_bytes(bench) == 110
    bench.clock.advance(2)
    await bench.upkeep()
    assert await waiting_bytes(bench) == 0
    await bench.store.prune(100, HOUR)
    assert await recounted(bench) == 0


async def test_a_lapse_and_a_park_keep_what_was_remembered(bench: Bench) -> None:
    """P13: the job lives on, whatever its state."""
    lease = await bench.held("a", body=b"x" * 10)
    await bench.step(lease, "s", b"x" * 100)
    bench.clock.advance(61)
    lease = await bench.one()
    assert await waiting_bytes(bench) == 110

    await bench.park(lease, await_signal("approved"))
    assert await waiting_bytes(bench) == 110
    await bench.send("a", "approved", b"x" * 5)
    await bench.end(await bench.one(), Completed())

    assert await recounted(bench) == 0


async def test_a_node_gives_back_what_it_was_given(bench: Bench) -> None:
    """P13: the joins of a job count as they are written, those of its parents with few bytes."""
    bench.needs("steps")
    await bench.put("child", body=b"x" * 10, parents=1)
    await bench.send("child", "early", b"x" * 100)
    lease = await bench.held("parent", edges=(Edge("child", on_failure=OnFailure.RUN),))
    await bench.end(lease, FAILED)
    lease = await bench.one()
    await bench.extend(lease, entries=(new_join("j", 3),))
    held = await waiting_bytes(bench)
    assert 110 <= held <= 115
    assert await recounted(bench) == held

    await bench.end(lease, Completed())

    assert await waiting_bytes(bench) == 0
    assert await recounted(bench) == 0


async def test_a_replay_counts_what_it_starts_with(bench: Bench) -> None:
    """P6, P13: its payload, and the steps and signals that it was given; not those it was not."""
    lease = await bench.held("a", body=b"x" * 10)
    await bench.step(lease, "one", b"x" * 100)
    bench.clock.advance(1)
    await bench.step(lease, "two", b"x" * 1000)
    await bench.send("a", "approved", b"x" * 5)
    await bench.end(lease, FAILED)
    assert await waiting_bytes(bench) == 0

    await bench.store.change(changing(Act.REPLAY, ids=("a",), from_step="two"))

    assert await waiting_bytes(bench) == 115
    assert await recounted(bench) == 115
    await bench.end(await bench.one(), Completed())
    assert await recounted(bench) == 0
    await bench.end(await bench.held("b", body=b"x" * 10), FAILED)


async def test_a_replay_from_the_beginning_counts_its_payload(bench: Bench) -> None:
    """P6, P13: it remembers nothing."""
    lease = await bench.held("a", body=b"x" * 10)
    await bench.step(lease, "one", b"x" * 100)
    await bench.end(lease, FAILED)

    await bench.store.change(changing(Act.REPLAY, ids=("a",)))

    assert await waiting_bytes(bench) == 10
    assert await recounted(bench) == 10


# -- what is refused -------------------------------------------------------------------------------


async def test_steps_use_up_the_room_of_jobs_and_are_not_refused(bench: Bench) -> None:
    """P16, P19: what a step did has happened, so its result is kept."""
    bench.needs("steps")
    await bench.configure(tenant_of(), max_bytes=100)
    lease = await bench.held("a", body=b"x" * 10)
    assert not await full(bench, body=b"x" * 90)

    await bench.step(lease, "s", b"x" * 1000)

    assert await full(bench, body=b"x")
    await bench.step(lease, "t", b"x")
    await bench.end(lease, Completed())
    assert not await full(bench, "large", body=b"x" * 100)


async def test_signals_have_as_much_room_again(bench: Bench) -> None:
    """P19: a full tenant can still wake its jobs, but not store whatever it likes by signals."""
    bench.needs("steps")
    await bench.configure(tenant_of(), max_bytes=100)
    await bench.put("a", "b", body=b"x" * 50)
    assert await full(bench, body=b"x")

    answers = await bench.store.signal(
        [
            Signal(ACME, "a", "approved", b"x" * 90),
            Signal(ACME, "b", "large", b"x" * 11),
            Signal(ACME, "b", "approved", b"x" * 10),
            Signal(ACME, "a", "approved", b"x" * 90),
            Signal(ACME, "b", "more", b"x"),
        ]
    )

    assert [answer.stored for answer in answers] == [True, False, True, False, False]
    over, known, more = answers[1].error, answers[3].error, answers[4].error
    assert known is None
    for error, queued in ((over, 190), (more, 200)):
        assert isinstance(error, QueueFull)
        facts = error.facts
        assert (facts["tenant"], facts["what"]) == (ACME, "bytes")
        assert (facts["queued"], facts["max"]) == (queued, 200)
    assert set(await bench.journal("b")) == {(EntryKind.SIGNAL, "approved")}


async def test_a_signal_fits_when_jobs_have_ended(bench: Bench) -> None:
    """P13: sent again, it is stored, and wakes the job."""
    bench.needs("steps")
    await bench.configure(tenant_of(), max_bytes=100)
    lease = await bench.held("a", body=b"x" * 50)
    await bench.step(lease, "s", b"x" * 150)
    await bench.park(lease, await_signal("approved"))
    await bench.put("b", body=b"x" * 1, tenant=GLOBEX)
    assert isinstance((await bench.send("a", "approved")).error, QueueFull)
    assert (await bench.send("b", "approved", tenant=GLOBEX)).stored

    await bench.configure(tenant_of(), max_bytes=200)

    assert (await bench.send("a", "approved")).stored
    assert (await bench.one(tenants=(ACME,))).job.id == "a"


async def test_a_tenant_without_a_cap_of_bytes_takes_signals(bench: Bench) -> None:
    """P15: other settings do not bound them."""
    bench.needs("steps")
    await bench.configure(tenant_of(), max_queued=1, max_running=1)
    await bench.put("a", body=b"x" * 50)

    assert (await bench.send("a", "approved", b"x" * 1000)).stored
