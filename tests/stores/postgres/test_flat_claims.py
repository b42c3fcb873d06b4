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
from holdfast.testing.contract.builders import LEASE, job, over_all, tenant_of, type_of

if TYPE_CHECKING:
    from tests.stores.postgres.conftest import Connect

MANY = 20_000
FEW = 100
ASIDE = 2000
BEHIND = (21_000, 31_000)
"""Lines that no claim has read yet: more than one call of the server reads."""

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


CLEAR = "DELETE FROM jobs; DELETE FROM counts; DELETE FROM deltas; DELETE FROM unchecked"
DONE = "SELECT count(*) FROM claims WHERE nonce = $1"
LIMITED = (
    "INSERT INTO tenants_with_settings (tenant, grouped) SELECT tenant, false FROM jobs"
    " ON CONFLICT DO NOTHING"
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


async def test_a_claim_reads_no_more_where_more_was_written_since_the_last(
    store: PostgresStore, connect: Connect
) -> None:
    """P15, P19: each call reads a portion and keeps it, until the claim can give jobs."""
    most = []
    for number in BEHIND:
        connection = await connect()
        await connection.execute(CLEAR)
        await connection.execute(FILL, number, 1)
        await connection.execute(LIMITED)
        await connection.execute(COUNT)
        claim, read = a_claim(10), []
        while not await connection.fetchval(DONE, claim.nonce):
            read.append(await rows_read(connect, claim, "counts deltas jobs unchecked"))
        assert len(read) == number // 10_000
        most.append(max(read))

    few, many = most
    assert 0 < many <= few * 1.05


async def test_a_claim_gives_jobs_however_much_was_written_since_the_last(
    store: PostgresStore, connect: Connect
) -> None:
    """P10: it is called again until all is read."""
    connection = await connect()
    await connection.execute(FILL, BEHIND[0], 1)
    await connection.execute(COUNT)

    assert len(await store.claim(a_claim(10))) == 10


async def test_settings_that_nobody_claims_after_do_not_pile_up(
    store: PostgresStore, connect: Connect
) -> None:
    """P15: a put of settings folds as a claim would, since it reads what others have written."""
    value = encode(ScopeSettings(weight=2))
    for number in range(FEW):
        await store.settings([Put(tenant_of(f"t{number}").name, value, 0)])
        await store.enqueue([job(f"j{number}", tenant=f"t{number}")])

    connection = await connect()
    assert await connection.fetchval("SELECT count(*) FROM deltas") < FEW
    assert len(await store.claim(a_claim(2 * FEW))) == FEW


async def test_a_claim_takes_many_tenants_with_one_job_each_in_few_rounds(
    store: PostgresStore, connect: Connect
) -> None:
    """P15: each round looks at twice as many tenants as the one before."""
    connection = await connect()
    await connection.execute(FILL, 1000, 1)
    await connection.execute(COUNT)
    await connection.execute("SELECT fold_deltas(1000000)")

    claim = a_claim(1000)
    read = await rows_read(connect, claim, "counts tenants_with_settings")

    leased = "SELECT cardinality(seqs) FROM claims WHERE nonce = $1"
    assert await connection.fetchval(leased, claim.nonce) == 1000
    assert read <= 15_000


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
