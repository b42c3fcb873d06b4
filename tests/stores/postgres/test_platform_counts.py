"""What runs under a limit of the platform is counted exactly, whatever is uncommitted meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.core.job import State
from holdfast.core.scope import PLATFORM, Scope, ScopeSettings, encode
from holdfast.store import Claim, Put
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import ACME, LEASE, MAIL, job, over_all, type_of

if TYPE_CHECKING:
    from tests.stores.postgres.conftest import Connect

FOLD = "SELECT lock_claims(), fold_deltas(1000000)"
COMPLETE = (
    "SELECT * FROM complete_jobs(ARRAY[$1::bigint], ARRAY[$2], ARRAY[$3], ARRAY[$4], NULL, $5,"
    " true, NULL, '', 0)"
)


async def running(store: PostgresStore, scope: Scope) -> int:
    [tally] = await store.count("", by=scope.kind, part=scope.part)
    return tally.counts[State.PROCESSING]


@pytest.mark.parametrize("scope", [PLATFORM, over_all(MAIL), type_of()], ids=lambda one: one.kind)
async def test_a_limit_counts_a_job_whose_end_is_not_committed(
    store: PostgresStore, connect: Connect, scope: Scope
) -> None:
    """P13: it runs until the commit, and takes no place after it; deltas are folded or not."""
    await store.enqueue([job("a"), job("b")])
    leases = await store.claim(Claim(worker="w", nonce="n", limit=2, lease_us=LEASE))
    connection = await connect()
    async with connection.transaction():
        first = leases[0]
        values = (first.job.seq, first.token, ACME, first.job.id, ManualClock().now())
        assert len(await connection.fetch(COMPLETE, *values)) == 1

        limit = encode(ScopeSettings(max_running=2))
        await store.settings([Put(scope.name, limit, 0)])

        assert await running(store, scope) == 2
        other = await connect()
        await other.execute(FOLD)
        assert await running(store, scope) == 2

    assert await running(store, scope) == 1
    await connection.execute(FOLD)
    assert await running(store, scope) == 1
    await store.count("", by=scope.kind, recount=True)
    assert await running(store, scope) == 1
