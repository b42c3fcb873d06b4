"""Short words for tests of the PostgreSQL store with many jobs in rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from holdfast.core.clock import SECOND
from holdfast.core.job import Completed, Lease, NewJob
from holdfast.core.lifecycle import Transition, decide
from holdfast.core.scope import TENANT_KINDS
from holdfast.store import Acked, Claim, Extension
from holdfast.stores.postgres import statements as sql
from holdfast.stores.postgres.step import Step
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import ACME, LEASE, job, rules

if TYPE_CHECKING:
    from holdfast.stores.postgres.store import PostgresStore

GONE = rules(keep_us=0)


def names(first: int, number: int) -> list[str]:
    """Ids that begin alike and grow, as those that the library makes in one call."""
    return [f"made-000000-{n:05}" for n in range(first, first + number)]


def jobs(first: int, number: int, **options: Any) -> list[NewJob]:
    return [job(id, **{"fresh": True, **options}) for id in names(first, number)]


async def take(store: PostgresStore, limit: int, **options: Any) -> list[Lease]:
    return await store.claim(
        Claim(**{"worker": "w", "nonce": uuid4().hex, "limit": limit, "lease_us": LEASE, **options})
    )


async def ids(store: PostgresStore, limit: int, **options: Any) -> list[str]:
    return [lease.job.id for lease in await take(store, limit, **options)]


async def leased(store: PostgresStore, number: int, **options: Any) -> list[Lease]:
    """So many jobs, leased by one claim."""
    await store.enqueue(jobs(0, number, **{"rules": GONE, **options}))
    return await take(store, number)


def done(leases: list[Lease]) -> list[Transition]:
    return [decide(Completed(), one.job, one.token, 0.0) for one in leases]


async def complete(store: PostgresStore, leases: list[Lease]) -> list[Acked]:
    return await store.ack(done(leases))


def extension(lease: Lease) -> Extension:
    return Extension(tenant=ACME, id=lease.job.id, token=lease.token, lease_us=LEASE)


def later(store: PostgresStore) -> None:
    """Every lease that there is has lapsed."""
    clock = store._clock
    assert isinstance(clock, ManualClock)
    clock.advance(LEASE / SECOND + 1)


def step(store: PostgresStore, connection: Any, again: bool = False) -> Step:
    """A step of somebody else, on a connection of their own."""
    now = store._clock.now()  # type: ignore[union-attr]
    return Step(connection, store.options.schema, now, True, again)


async def counts(store: PostgresStore) -> list[Any]:
    """All of them, and the bytes of the tenant."""
    size = await store._call(lambda step: step.row(sql.TALLY, "tenant", ACME, ""))
    return [size, *[await store.count(None, by=kind) for kind in TENANT_KINDS]]


async def exact(store: PostgresStore) -> None:
    """The counts are those that counting the jobs gives."""
    kept = await counts(store)
    await store.count(None, recount=True)
    assert await counts(store) == kept
