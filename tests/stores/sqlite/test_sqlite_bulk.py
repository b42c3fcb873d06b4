"""Jobs that one call changes share statements, and each keeps what is its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.job import Completed, Snoozed, State
from holdfast.core.lifecycle import decide
from holdfast.store import Claim
from holdfast.stores.sqlite.bulk import ALIKE_MIN, SIZES
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing.contract.builders import LEASE, finding, job

NUMBERS = sorted({1, 2, ALIKE_MIN, *SIZES, *(size + 1 for size in SIZES), SIZES[0] + SIZES[1] + 3})


def own(at: int) -> bytes | None:
    return b'"%d"' % at


def few(at: int) -> bytes | None:
    return b'"%d"' % (at % 2)


def mixed(at: int) -> bytes | None:
    return own(at) if at % 3 else None


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("result", [own, few, mixed])
async def test_jobs_that_end_together_keep_results_of_their_own(
    store: SqliteStore, number: int, result: Callable[[int], bytes | None]
) -> None:
    """P4: whatever share of them have equal ones. A job that is not in the call stays as it is."""
    await store.enqueue([job(f"j{at}") for at in range(number + 1)])
    claim = Claim(worker="w", nonce="n", limit=number, lease_us=LEASE)
    leases = await store.claim(claim)
    wanted = {lease.job.id: result(at) for at, lease in enumerate(leases)}

    answers = await store.ack(
        [decide(Completed(wanted[x.job.id]), x.job, x.token, 0.0) for x in leases]
    )

    assert all(answer.error is None for answer in answers)
    stored = {each.id: each for each in (await store.find(finding())).jobs}
    assert {id: stored[id].result for id in wanted} == wanted
    assert [each.state for id, each in stored.items() if id not in wanted] == [State.ENQUEUED]


@pytest.mark.parametrize("number", NUMBERS)
async def test_jobs_that_wait_together_keep_instants_of_their_own(
    store: SqliteStore, number: int
) -> None:
    """P10: each is due when its own delay is over."""
    await store.enqueue([job(f"j{at}") for at in range(number)])
    leases = await store.claim(Claim(worker="w", nonce="n", limit=number, lease_us=LEASE))
    delays: dict[str, Any] = {x.job.id: 10**9 + at for at, x in enumerate(leases)}

    await store.ack([decide(Snoozed(delays[x.job.id]), x.job, x.token, 0.0) for x in leases])

    found = (await store.find(finding())).jobs
    first = min(each.run_at for each in found)
    assert {each.id: each.run_at - first + 10**9 for each in found} == delays
