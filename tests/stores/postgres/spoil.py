"""Damages a stored record, for tests of what becomes of it."""

from __future__ import annotations

from holdfast.store import Ref, Store
from holdfast.stores.postgres.step import Step
from holdfast.stores.postgres.store import PostgresStore

SPOIL = "UPDATE holdfast.jobs SET rules = '{\"retry\": [1e999' WHERE tenant = $1 AND id = $2"


async def spoil(store: Store, ref: Ref) -> None:
    """Makes the rules of a living job unreadable."""
    assert isinstance(store, PostgresStore)

    async def act(step: Step) -> None:
        await step.run(SPOIL, ref.tenant, ref.id)

    await store._transact(act)
