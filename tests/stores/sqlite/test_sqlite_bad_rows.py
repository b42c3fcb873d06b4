"""A stored row, whatever it holds, fails nothing but itself."""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.job import Completed, NewJob, State
from holdfast.lifecycle import decide
from holdfast.store import Claim
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing.contract.builders import ACME, GLOBEX, LEASE, finding, job


def fresh(*ids: str, tenant: str = ACME) -> list[NewJob]:
    """Jobs whose sender says that nobody else can know their ids."""
    return [msgspec.structs.replace(job(id, tenant=tenant), fresh=True) for id in ids]


async def test_an_id_called_fresh_twice_stops_nobody(store: SqliteStore, path: Path) -> None:
    """P12, P19: the second is the first one, and others go on, also after a restart."""
    await store.enqueue(fresh("a"))
    await store.enqueue(fresh("a"))
    await store.enqueue(fresh("b", "b"))
    await store.enqueue(fresh("c", tenant=GLOBEX))
    again = SqliteStore.from_url(f"sqlite:///{path}")
    await again.open()
    try:
        leases = await again.claim(Claim(worker="w", nonce="n", limit=10, lease_us=LEASE))
        acks = await again.ack([decide(Completed(), one.job, one.token, 0.0) for one in leases])
        page = await again.find(finding(None))
    finally:
        await again.close()

    assert sorted((one.job.tenant, one.job.id) for one in leases) == [
        (ACME, "a"),
        (ACME, "b"),
        (GLOBEX, "c"),
    ]
    assert [ack.state for ack in acks] == [State.COMPLETED] * 3
    assert len(page.jobs) == 3
