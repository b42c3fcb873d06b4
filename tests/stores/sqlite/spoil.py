"""Damages a stored record, for the suite of all stores."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from holdfast.store import Ref, Store
from holdfast.stores.sqlite.store import SqliteStore

BAD_RULES = '{"retry": {"kind": "list", "delays_s": [1e999]}}'


async def spoil(store: Store, ref: Ref) -> None:
    """Makes the rules of a job unreadable."""
    assert isinstance(store, SqliteStore)
    with closing(sqlite3.connect(store.options.path, isolation_level=None)) as connection:
        changed = connection.execute(
            "UPDATE jobs SET rules = ? WHERE tenant = ? AND id = ?", (BAD_RULES, ref.tenant, ref.id)
        ).rowcount
    assert changed == 1
