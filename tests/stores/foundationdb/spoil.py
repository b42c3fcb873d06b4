"""Damages a stored record, as no program of ours would write it."""

from __future__ import annotations

from holdfast.store import Ref, Store
from holdfast.stores.foundationdb.rows import encode
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.foundationdb.store import FoundationStore

BAD_RULES = '{"retry": {"kind": "list", "delays_s": [1e999]}}'


async def spoil(store: Store, ref: Ref) -> None:
    """Makes the rules of a job unreadable; nothing else of it changes."""
    assert isinstance(store, FoundationStore)

    async def damage(step: Step) -> None:
        row = await step.row(ref.tenant, ref.id)
        assert row is not None
        row.rules = BAD_RULES
        step.put(step.keys.row(*row.name), encode(row))

    await store._write(damage)
