"""Short words for jobs that can be packed, and for what became of them."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import msgspec

from holdfast.core.job import Completed, Lease, NewJob, State
from holdfast.core.lifecycle import decide
from holdfast.store import Acked, Claim, Store
from holdfast.testing.contract.builders import ACME, LEASE, job, rules

GONE = rules(keep_us=0)


def fresh(*ids: str, **options: Any) -> list[NewJob]:
    """New jobs whose ids nobody knows, which go without a trace when they are done."""
    given = {"rules": GONE, **options}
    return [msgspec.structs.replace(job(id, **given), fresh=True) for id in ids]


def name(number: int) -> str:
    """Ids that begin alike, as those that are made at one time."""
    return f"job-of-a-pack-{number:03}"


def named(first: int, last: int) -> list[str]:
    return [name(number) for number in range(first, last)]


async def claimed(store: Store, most: int, nonce: str | None = None) -> list[Lease]:
    return await store.claim(
        Claim(worker="w", nonce=nonce or uuid4().hex, limit=most, lease_us=LEASE)
    )


def ids(leases: list[Lease]) -> list[str]:
    return [lease.job.id for lease in leases]


async def complete(store: Store, leases: list[Lease]) -> list[Acked]:
    return await store.ack([decide(Completed(), one.job, one.token, 0.0) for one in leases])


async def check_counts(store: Store, **counts: int) -> None:
    """The counts are these, and counting every job anew finds the same."""
    (before,) = await store.count(ACME)
    (after,) = await store.count(ACME, recount=True)
    assert before.counts == {State(name): number for name, number in counts.items()}
    assert (before.counts, before.oldest_at) == (after.counts, after.oldest_at)
    assert after.correction == 0
