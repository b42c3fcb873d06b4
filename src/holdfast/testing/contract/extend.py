"""Extend: a heartbeat extends a lease, never shortens it, and reports a cancel to its holder."""

from __future__ import annotations

import pytest

from holdfast.core.bounds import BATCH_MAX
from holdfast.core.clock import SECOND
from holdfast.core.errors import (
    InvalidInput,
    InvalidLeaseToken,
    JobCanceled,
    JobNotFound,
    LeaseExpired,
)
from holdfast.core.job import Completed, EventKind, State
from holdfast.store import Extension
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, LEASE


def extension(id: str, token: str, length: int = LEASE) -> Extension:
    return Extension(tenant=ACME, id=id, token=token, lease_us=length)


async def test_an_extension_counts_from_now(bench: Bench) -> None:
    """X07: the new deadline is the store's now plus the length, not the old deadline plus it."""
    lease = await bench.held("a")
    bench.clock.advance(45)

    answer = await bench.extend(lease, LEASE)

    assert (answer.id, answer.error) == ("a", None)
    assert answer.until == bench.clock.now() + LEASE
    assert (await bench.get("a")).lease_until == answer.until


async def test_an_extension_never_shortens_a_lease(bench: Bench) -> None:
    """X07: the new deadline is the greater of the current one and now plus the length."""
    lease = await bench.held("a")

    answer = await bench.extend(lease, 5 * SECOND)

    assert (answer.error, answer.until) == (None, lease.until)
    assert (await bench.get("a")).lease_until == lease.until


async def test_an_extended_lease_is_held_past_its_first_deadline(bench: Bench) -> None:
    """P2: nobody else gets the job, upkeep does not list it, and its holder may ack."""
    lease = await bench.held("a")
    bench.clock.advance(30)
    await bench.extend(lease)
    bench.clock.advance(59)

    assert await bench.claim(1) == []
    assert await bench.store.expired(10) == []
    assert (await bench.end(lease, Completed())).state is State.COMPLETED


async def test_an_extended_lease_lapses_at_its_new_deadline(bench: Bench) -> None:
    """P10: an extension moves the instant, it does not blur it."""
    lease = await bench.held("a")
    bench.clock.advance(30)
    answer = await bench.extend(lease)

    bench.clock.set(answer.until)

    assert (await bench.one()).job.attempt == 2


async def test_a_lease_can_be_extended_at_its_last_instant_and_not_after(bench: Bench) -> None:
    """P3: the deadline itself is too late, for everybody at the same instant."""
    lease = await bench.held("a")
    bench.clock.set(lease.until - bench.store.capabilities.time_precision_us)
    answer = await bench.extend(lease)
    assert answer.error is None

    bench.clock.set(answer.until)
    assert isinstance((await bench.extend(lease)).error, LeaseExpired)


async def test_progress_is_kept_with_the_job(bench: Bench) -> None:
    """P4: what a heartbeat tells is there to be read, and a silent one does not erase it."""
    lease = await bench.held("a")

    await bench.extend(lease, progress="page 3 of 9")
    await bench.extend(lease)

    assert (await bench.get("a")).progress == "page 3 of 9"


async def test_an_extension_changes_neither_attempt_nor_fence(bench: Bench) -> None:
    """P11: attempts are counted when the lease is taken, nowhere else."""
    lease = await bench.held("a")

    await bench.extend(lease)

    found = await bench.get("a")
    assert (found.attempt, found.fence, found.state) == (1, 1, State.PROCESSING)


async def test_an_extension_may_be_repeated(bench: Bench) -> None:
    """P15: a heartbeat whose answer was lost does no harm when sent again."""
    lease = await bench.held("a")
    bench.clock.advance(10)

    first = await bench.extend(lease)
    again = await bench.extend(lease)

    assert first == again
    assert first.error is None


async def test_one_bad_extension_does_not_spoil_the_others(bench: Bench) -> None:
    """P15: each heartbeat of a batch has its own answer, in its own place."""
    await bench.put("a", "b", "c")
    a, b, c = await bench.claim(3)
    await bench.cancel("c")
    bench.clock.advance(5)

    answers = await bench.store.extend(
        [
            extension("a", a.token),
            extension("nobody", a.token),
            extension("c", c.token),
            extension("b", a.token),
            extension("b", b.token),
        ]
    )

    assert [answer.id for answer in answers] == ["a", "nobody", "c", "b", "b"]
    kinds = [None, JobNotFound, JobCanceled, InvalidLeaseToken, None]
    assert [answer.error and type(answer.error) for answer in answers] == kinds
    until = bench.clock.now() + LEASE
    assert [answer.until for answer in answers] == [until, 0, 0, 0, until]


async def test_a_refused_extension_changes_nothing(bench: Bench) -> None:
    """P3: acts with another token are refused, and leave no trace."""
    lease = await bench.held("a")
    before = await bench.get("a")
    bench.clock.advance(5)

    [answer] = await bench.store.extend([extension("a", "stolen", 10 * LEASE)])

    assert isinstance(answer.error, InvalidLeaseToken)
    assert await bench.get("a") == before
    assert await bench.kinds("a") == [EventKind.ENQUEUED, EventKind.LEASED]
    assert lease.until == before.lease_until


async def test_a_heartbeat_hears_of_the_cancel(bench: Bench) -> None:
    """P5: the running handler is told by its next heartbeat."""
    lease = await bench.held("a")
    await bench.cancel("a")

    assert isinstance((await bench.extend(lease)).error, JobCanceled)


async def test_a_batch_of_extensions_over_the_limit_is_refused_whole(bench: Bench) -> None:
    """P15: InvalidInput names the field, and nothing is extended."""
    lease = await bench.held("a")
    bench.clock.advance(5)

    with pytest.raises(InvalidInput) as caught:
        await bench.store.extend([extension("a", lease.token)] * (BATCH_MAX + 1))

    assert caught.value.facts["field"] == "extensions"
    assert (await bench.get("a")).lease_until == lease.until
    assert await bench.store.extend([]) == []
