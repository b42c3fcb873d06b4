"""A change of a tier, and the claim after it, cost the same however many tenants are in it; and a
schema of the version before gets tiers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from tests.stores.postgres.row_jobs import done, step, take
from tests.stores.postgres.test_flat_claims import a_claim, rows_read

from holdfast.core.bounds import CLAIM_MAX, REPAIR_MAX
from holdfast.core.rate import rate
from holdfast.core.scope import Ceiling, ScopeSettings, encode
from holdfast.core.tiers import Defaults, LimitRules, name_of
from holdfast.core.tiers import encode as encode_tier
from holdfast.store import Put
from holdfast.stores.postgres import schema
from holdfast.stores.postgres.ack import complete_jobs
from holdfast.stores.postgres.claim import claim_jobs
from holdfast.stores.postgres.enqueue import enqueue_jobs
from holdfast.stores.postgres.layout import SCHEMA_VERSION
from holdfast.stores.postgres.migrate import named
from holdfast.stores.postgres.settings import put_settings
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import ACME, GLOBEX, job, tenant_of
from holdfast.testing.contract.tiers import PRO

if TYPE_CHECKING:
    from tests.servers.postgres import Postgres
    from tests.stores.postgres.conftest import Connect

FEW, MANY = REPAIR_MAX + 50, 4 * REPAIR_MAX
"""A claim looks at a portion first, and has a full one to look at in both cases."""
BEFORE = 19
TABLES = "counts jobs aside deltas scopes resting looks tiers tenants_with_settings buckets"
TOUCHED = (
    "SELECT relname::text, sum(coalesce(idx_tup_fetch, 0) + coalesce(seq_tup_read, 0))::int8,"
    " sum(n_tup_ins + n_tup_upd + n_tup_del)::int8 FROM pg_stat_xact_user_tables"
    " WHERE schemaname = current_schema() GROUP BY relname"
)


def tier(most: int, **fields: Any) -> bytes:
    return encode_tier(Defaults(max_running=most, **fields))


async def at_limit(store: PostgresStore, name: str, number: int) -> None:
    """So many tenants of a tier, "" for none, with one job each running, and one that waits."""
    await store.settings([Put(name_of(name), tier(1), 0)])
    names = [f"t{n}" for n in range(number)]
    if name:
        value = encode(ScopeSettings(tier=name))
        await store.settings([Put(tenant_of(each).name, value, 0) for each in names])
    await store.enqueue([job(f"j{n}", tenant=each) for each in names for n in range(2)])
    while await store.claim(a_claim(CLAIM_MAX)):
        pass


@pytest.mark.parametrize("name", [PRO, ""], ids=["tier", "defaults"])
async def test_a_change_of_a_tier_and_the_next_claim_cost_the_same_for_many_tenants(
    server: Postgres, name: str
) -> None:
    """P9, P19: a few writes, and a claim that finds enough in the first portion."""
    changes, claims = [], []
    for number in (FEW, MANY):
        url = server.fresh("flat")
        store = PostgresStore.from_url(url, ManualClock())
        await store.open()
        await at_limit(store, name, number)
        made = [await asyncpg.connect(server.url) for _ in range(3)]
        for each in made:
            await each.execute(f'SET search_path = "{store.options.schema}"')
        # Each is counted on a connection of its own, which has done nothing before.
        fold, change, last = made
        await fold.execute("SELECT lock_claims(), fold_deltas(1000000)")
        async with change.transaction():
            await put_settings(step(store, change), [Put(name_of(name), tier(2), 1)])
            changes.append({table: rows for table, *rows in await change.fetch(TOUCHED)})

        async def connect(last: Any = last) -> Any:
            return last

        claims.append(await rows_read(connect, a_claim(10), TABLES, ManualClock().now()))
        assert await fold.fetchval("SELECT count(*) FROM resting") == number - 50
        for each in made:
            await each.close()
        await store.close()

    assert sum(written for _, written in changes[1].values()) <= 6
    assert changes[0] == changes[1]
    assert 0 < claims[1] <= claims[0] + 50


async def test_without_tiers_no_verb_touches_their_tables(
    store: PostgresStore, connect: Connect
) -> None:
    """P19: also of tenants with limits of their own."""
    await store.settings([Put(tenant_of().name, encode(ScopeSettings(max_running=2)), 0)])
    connection = await connect()
    async with connection.transaction():
        mine = step(store, connection)
        await mine.begin()
        new = [job(f"{one}{n}", tenant=one, group="g") for one in (ACME, GLOBEX) for n in range(9)]
        await enqueue_jobs(mine, new)
        leases = (await claim_jobs(mine, a_claim(20), True)).leases
        await complete_jobs(mine, done(leases))
        found = {table: rows for table, *rows in await connection.fetch(TOUCHED)}

    assert len(leases) == 11
    assert [found[table] for table in ("tiers", "resting", "looks")] == [[0, 0]] * 3


# -- the version before ----------------------------------------------------------------------------


@pytest.fixture
async def old(server: Postgres) -> AsyncIterator[PostgresStore]:
    """A store, not open, whose schema has no tiers yet."""
    store = PostgresStore.from_url(server.fresh("old"), ManualClock())
    connection = await asyncpg.connect(server.url)
    texts = [text for number, text in schema.schema_files() if number <= BEFORE]
    tables = "CREATE TABLE holdfast.schema_version (version integer PRIMARY KEY);"
    version = f"INSERT INTO holdfast.schema_version VALUES ({BEFORE})"
    for text in ("CREATE SCHEMA holdfast.", tables, *texts, version):
        await connection.execute(named(text, store.options).removesuffix("."))
    yield store
    await store.close()
    await connection.close()


async def test_tenants_of_the_version_before_have_their_own_weight_and_ceiling(
    old: PostgresStore, server: Postgres
) -> None:
    """P13: a tier fills in the weight of those that had set none, and own ceilings stay."""
    own = {
        "none": ScopeSettings(max_running=9),
        "one": ScopeSettings(weight=1),
        "top": ScopeSettings(ceiling=Ceiling(max_running=3, rate=rate("7/m", 2)), max_running=3),
    }
    connection = await asyncpg.connect(server.url)
    for name, settings in own.items():
        put = "INSERT INTO holdfast.settings VALUES ($1, $2, 1, $3)"
        scope = "INSERT INTO holdfast.scopes (kind, tenant, part, max_running, paused, slots_count,"
        scope += " weight) VALUES ('tenant', $1, '', $2, false, false, 1)"
        has = "INSERT INTO holdfast.tenants_with_settings VALUES ($1, false)"
        values = tenant_of(name).name, encode(settings), name
        await connection.execute(named(put, old.options), *values)
        await connection.execute(named(scope, old.options), name, settings.max_running)
        await connection.execute(named(has, old.options), name)

    assert await old.migrate() == SCHEMA_VERSION
    found = await connection.fetch(
        named(
            "SELECT weight, top_running, top_price, top_burst FROM holdfast.scopes ORDER BY tenant",
            old.options,
        )
    )
    await connection.close()
    await old.open()
    defaults = Defaults(ceiling=Ceiling(max_running=1), group=LimitRules(max_running=1))
    await old.settings([Put(name_of(""), encode_tier(defaults), 0)])
    await old.enqueue([job(f"j{n}", tenant=name) for name in own for n in range(9)])
    leases = await take(old, 100)

    price = rate("7/m").price_us
    assert [tuple(row) for row in found] == [
        (None, None, None, None),
        (1, None, None, None),
        (None, 3, price, 2),
    ]
    counts = {name: sum(lease.job.tenant == name for lease in leases) for name in own}
    assert counts == {"none": 1, "one": 1, "top": 2}
