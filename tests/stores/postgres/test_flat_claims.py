"""A claim costs the same however many tenants wait, and however many queues one of them has."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from holdfast.core.clock import SECOND
from holdfast.store import Claim
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing.contract.builders import LEASE, job

if TYPE_CHECKING:
    from tests.stores.postgres.conftest import Connect

MANY = 20_000
FEW = 100

# What enqueues would leave behind: `$1` tenants with `$2` queues each, a job in every one.
FILL = (
    "INSERT INTO jobs (seq, tenant, id, queue, type, codec, version, payload, rules, priority,"
    " run_at, state, created_at, updated_at, max_attempts, keep_us, size)"
    " SELECT nextval('seqs'), 't' || t, 'q' || q, 'q' || q, 'send', 'json', 1, '{}', '{}', 0, 0,"
    " 'enqueued', 0, 0, 3, 0, 2 FROM generate_series(1, $1::int) t, generate_series(1, $2::int) q"
)
COUNT = (
    "INSERT INTO deltas (tenant, queue, enqueued, bytes, head_rank, head_seq)"
    " SELECT tenant, queue, 1, 2, 0, seq FROM jobs ORDER BY seq"
)


async def rows_read(connect: Connect, claim: Claim) -> float:
    """Rows of the counts that a claim reads, as the server counts them; and takes jobs."""
    connection = await connect()
    schema = await connection.fetchval("SELECT current_schema()")
    async with connection.transaction():
        await connection.fetch(
            "SELECT * FROM claim($1, $2, $3, $4, NULL, $5, '{}', 0, false, false, NULL, 200, 2, 8,"
            " 60000000)",
            claim.worker,
            claim.nonce,
            claim.limit,
            claim.lease_us,
            claim.queues,
        )
        found = await connection.fetchval(
            "SELECT (idx_tup_fetch + seq_tup_read)::float8"
            " FROM pg_stat_xact_user_tables WHERE schemaname = $1 AND relname = 'counts'",
            schema,
        )
        return float(found)


@pytest.mark.parametrize("queues", [None, ("q1",), ("q1", "q2", "q3")], ids=["all", "one", "three"])
@pytest.mark.parametrize("shape", ["tenants", "queues"])
async def test_a_claim_reads_no_more_where_more_wait(
    store: PostgresStore, connect: Connect, shape: str, queues: tuple[str, ...] | None
) -> None:
    """P19: of many tenants with a queue each, and of one tenant with many queues."""
    read = []
    for number in (FEW, MANY):
        connection = await connect()
        await connection.execute("DELETE FROM jobs; DELETE FROM counts; DELETE FROM deltas")
        await connection.execute(FILL, *((number, 1) if shape == "tenants" else (1, number)))
        await connection.execute(COUNT)
        await connection.execute("SELECT fold_deltas(1000000)")
        claims = [
            Claim(worker="w", nonce=uuid4().hex, limit=10, lease_us=LEASE, queues=queues)
            for _ in range(2)
        ]
        await rows_read(connect, claims[0])
        read.append(await rows_read(connect, claims[1]))

    few, many = read
    assert few > 0
    assert many <= few + 50


async def test_filled_lines_are_lines(store: PostgresStore, connect: Connect) -> None:
    """What the tests above fill in is what a store claims."""
    connection = await connect()
    await connection.execute(FILL, 3, 2)
    await connection.execute(COUNT)

    claim = Claim(worker="w", nonce=uuid4().hex, limit=3, lease_us=SECOND)
    leases = await store.claim(claim)

    assert sorted(lease.job.tenant for lease in leases) == ["t1", "t2", "t3"]
    await store.enqueue([job("a")])
