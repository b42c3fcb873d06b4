"""A claim costs the same however many tenants wait, and however many queues one of them has."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from holdfast.core.clock import SECOND
from holdfast.core.scope import Pause, Scope, ScopeSettings, encode
from holdfast.store import Claim, Put
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import LEASE, job, over_all, type_of

if TYPE_CHECKING:
    from tests.stores.postgres.conftest import Connect

MANY = 20_000
FEW = 100
ASIDE = 2000

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


async def rows_read(connect: Connect, claim: Claim, tables: str = "counts", now: int = 0) -> float:
    """Rows of these tables that a claim reads, as the server counts them; and takes jobs."""
    connection = await connect()
    schema = await connection.fetchval("SELECT current_schema()")
    async with connection.transaction():
        await connection.fetch(
            "SELECT * FROM claim($1, $2, $3, $4, NULL, $5, '{}', $6, false, false, NULL, 200, 2, 8,"
            " 60000000)",
            claim.worker,
            claim.nonce,
            claim.limit,
            claim.lease_us,
            claim.queues,
            now,
        )
        found = await connection.fetchval(
            "SELECT sum(coalesce(idx_tup_fetch, 0) + seq_tup_read)::float8"
            " FROM pg_stat_xact_user_tables"
            " WHERE schemaname = $1 AND relname = ANY (string_to_array($2, ' '))",
            schema,
            tables,
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


@pytest.mark.parametrize("shape", ["tenants", "jobs"])
@pytest.mark.parametrize("scope", [over_all("q1"), type_of("send")], ids=["queue", "type"])
async def test_a_claim_reads_no_more_where_more_is_set_aside(
    store: PostgresStore, connect: Connect, scope: Scope, shape: str
) -> None:
    """P9, P19: what a limit of the platform holds costs later claims nothing, and hides nothing."""
    paused = encode(ScopeSettings(paused=Pause("why", "ann")))
    await store.settings([Put(scope.name, paused, 0)])
    read = []
    for number in (FEW, ASIDE):
        connection = await connect()
        await connection.execute("DELETE FROM jobs; DELETE FROM counts; DELETE FROM deltas")
        await connection.execute("DELETE FROM aside")
        await connection.execute(FILL, *((number, 1) if shape == "tenants" else (1, number)))
        await connection.execute("UPDATE jobs SET queue = 'q1'")
        await connection.execute(COUNT)
        await connection.execute("SELECT fold_deltas(1000000)")
        for _ in range(number // 1000 + 1):
            assert await store.claim(a_claim(1)) == []
        await connection.execute("SELECT fold_deltas(1000000)")
        assert await connection.fetchval("SELECT count(*) FROM counts WHERE lines > 0") == 0
        await store.enqueue([job(f"other{number}", tenant="t1", queue="q2", type="read")])
        now = ManualClock().now()
        read.append(await rows_read(connect, a_claim(10), "counts jobs aside deltas scopes", now))
        left = await connection.fetchval("SELECT count(*) FROM jobs WHERE state = 'enqueued'")
        assert left == number

    few, many = read
    assert few > 0
    assert many <= few + 50


def a_claim(limit: int) -> Claim:
    return Claim(worker="w", nonce=uuid4().hex, limit=limit, lease_us=LEASE)


async def test_filled_lines_are_lines(store: PostgresStore, connect: Connect) -> None:
    """What the tests above fill in is what a store claims."""
    connection = await connect()
    await connection.execute(FILL, 3, 2)
    await connection.execute(COUNT)

    claim = Claim(worker="w", nonce=uuid4().hex, limit=3, lease_us=SECOND)
    leases = await store.claim(claim)

    assert sorted(lease.job.tenant for lease in leases) == ["t1", "t2", "t3"]
    await store.enqueue([job("a")])
