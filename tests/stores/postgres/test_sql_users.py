"""Those who speak SQL: an INSERT is an enqueue, views show what lives, died and came out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.servers.postgres import DATABASE

from holdfast import Context, State
from holdfast.core.job import Rules
from holdfast.store import Put
from holdfast.testing import drain

if TYPE_CHECKING:
    from tests.stores.postgres.conftest import Desk


NO_DELAY = b'{"queue": "default", "rules": {"retry": {"kind": "list", "delays_s": [0.0]}}}'


class Sql:
    """Plain SQL in the desk's schema."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def run(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._desk.dsn, autocommit=True) as connection:
            text = query.replace("holdfast.", f"{self._desk.schema}.").encode()
            cursor = connection.execute(text, values)
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
def sql(desk: Desk) -> Sql:
    return Sql(desk)


INSERT = "INSERT INTO holdfast.queue_jobs (tenant, job_type, payload) VALUES (%s, %s, %s)"


async def test_a_plain_insert_is_an_enqueue(desk: Desk, sql: Sql) -> None:
    """S4.47: a worker runs it like any other; `returning` gives its id."""
    [(id,)] = sql.run(
        "INSERT INTO holdfast.queue_jobs (tenant, job_type, payload, queue)"
        """ VALUES ('acme', 'send', '{"to": "a"}', 'mail') RETURNING id"""
    )
    tenant = desk.app.tenant("acme")
    record = await tenant.get(id)
    assert (record.queue, record.type, record.max_attempts) == ("mail", "send", 3)

    await drain(desk.app)

    assert await tenant.wait(id) == "a"
    shown = sql.run("SELECT status, attempts, payload FROM holdfast.queue_jobs WHERE id = %s", id)
    assert shown == [("completed", 1, {"to": "a"})]


async def test_columns_of_an_insert_are_options_of_an_enqueue(desk: Desk, sql: Sql) -> None:
    """S4.44: priority, attempts, run_at, key and group; a known key is the earlier job."""
    columns = "(tenant, job_type, payload, id, priority, max_attempts, run_at, idempotency_key,"
    values = "('acme', 'send', '{}', %s, 7, 5, now() + interval '1 hour', 'k', 'g')"
    insert = f"INSERT INTO holdfast.queue_jobs {columns} group_name) VALUES {values} RETURNING id"

    assert sql.run(insert, "j1") == [("j1",)]
    assert sql.run(insert, "j2") == [("j1",)]

    record = await desk.app.tenant("acme").get("j1")
    assert (record.state, record.priority, record.max_attempts) == (State.SCHEDULED, 7, 5)
    assert (record.key, record.group, record.rules.max_attempts) == ("k", "g", 5)


async def test_many_rows_of_one_insert_are_many_jobs(desk: Desk, sql: Sql) -> None:
    """From any query, in one statement."""
    sql.run(
        "INSERT INTO holdfast.queue_jobs (tenant, job_type, payload)"
        " SELECT 'acme', 'send', jsonb_build_object('to', n) FROM generate_series(1, 50) n"
    )

    assert len(await desk.claimable()) == 50


async def test_dead_jobs_leave_the_view_of_the_living(desk: Desk, sql: Sql) -> None:
    """S4.50: max_attempts 3, then one dead letter and nothing else."""

    @desk.app.job(name="fail", retry="brisk")
    async def fail(ctx: Context) -> None:
        raise ValueError("never")

    await desk.app.store.settings([Put("type/fail", NO_DELAY, 0)])
    sql.run(
        "INSERT INTO holdfast.queue_jobs (tenant, job_type, payload, max_attempts)"
        " VALUES ('acme', 'fail', '{}', 3)"
    )
    await drain(desk.app)

    assert sql.run("SELECT count(*) FROM holdfast.queue_jobs WHERE job_type = 'fail'") == [(0,)]
    [(type, reason, attempts)] = sql.run(
        "SELECT job_type, reason, attempts FROM holdfast.queue_jobs_dlq"
    )
    assert (type, reason, attempts) == ("fail", "MAX_ATTEMPTS", 3)


async def test_the_plainest_insert_takes_its_tenant_from_a_setting(desk: Desk, sql: Sql) -> None:
    """S4.47: the setting is a role's or a database's, so the statement names no tenant and no
    schema.
    """
    with desk.server.connect() as admin:
        for name, value in (("search_path", desk.schema), ("holdfast.tenant", "acme")):
            admin.execute(f"ALTER DATABASE {DATABASE} SET {name} = '{value}'".encode())
    try:
        sql.run("""INSERT INTO queue_jobs (job_type, payload) VALUES ('send', '{"to": "a"}')""")
        await drain(desk.app)

        assert sql.run("SELECT COUNT(*) FROM job_results") == [(1,)]
    finally:
        with desk.server.connect() as admin:
            for name in ("search_path", "holdfast.tenant"):
                admin.execute(f"ALTER DATABASE {DATABASE} RESET {name}".encode())
    [(tenant, result)] = sql.run("SELECT tenant, result FROM holdfast.job_results")
    assert (tenant, result) == ("acme", "a")


async def test_an_insert_without_any_tenant_says_what_to_do(desk: Desk, sql: Sql) -> None:
    """S4.47: refused by the column's name, with the setting that is missing."""
    with pytest.raises(psycopg.errors.CheckViolation, match=r"queue_jobs\.tenant: ") as caught:
        sql.run("INSERT INTO holdfast.queue_jobs (job_type, payload) VALUES ('send', '{}')")

    assert "the setting holdfast.tenant has no value" in str(caught.value)
    assert await desk.claimable() == []


TYPE = {"queue": "slow", "priority": 5, "rules": {"max_attempts": 7, "timeout_us": 9, "keep_us": 3}}


async def test_an_insert_has_the_rules_of_a_published_type(desk: Desk, sql: Sql) -> None:
    """P12: queue, priority, attempts, time-out and keeping, where the row says nothing."""
    await desk.app.store.settings([Put("type/report", json.dumps(TYPE).encode(), 0)])

    [(plain,)] = sql.run(f"{INSERT} RETURNING id", "acme", "report", "{}")
    [(own,)] = sql.run(
        "INSERT INTO holdfast.queue_jobs (tenant, job_type, payload, queue, priority, max_attempts)"
        " VALUES ('acme', 'report', '{}', 'quick', 1, 3) RETURNING id"
    )

    first, second = [await desk.app.tenant("acme").get(id) for id in (plain, own)]
    assert (first.queue, first.priority, first.max_attempts) == ("slow", 5, 7)
    assert (first.rules.max_attempts, first.rules.timeout_us, first.rules.keep_us) == (7, 9, 3)
    assert (second.queue, second.priority, second.max_attempts) == ("quick", 1, 3)
    assert (second.rules.max_attempts, second.rules.timeout_us) == (3, 9)


@pytest.mark.parametrize(
    "value",
    [
        b"{",
        b"7",
        b"\xff",
        b'{"queue": "q", "rules": 3}',
        b'{"rules": {"keep_us": "x"}}',
        b'{"queue": "q", "rules": {"max_attempts": 2000}}',
    ],
)
async def test_a_setting_that_is_no_type_says_nothing(desk: Desk, sql: Sql, value: bytes) -> None:
    """P19: jobs of that name get the defaults, and the insert goes on."""
    await desk.app.store.settings([Put("type/report", value, 0)])

    [(id,)] = sql.run(f"{INSERT} RETURNING id", "acme", "report", "{}")

    job = await desk.app.tenant("acme").get(id)
    assert (job.queue, job.priority, job.max_attempts, job.rules) == ("default", 0, 3, Rules())


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("tenant", (None, "send", "{}")),
        ("tenant", ("", "send", "{}")),
        ("tenant", (" acme", "send", "{}")),
        ("tenant", ("x" * 129, "send", "{}")),
        ("job_type", ("acme", None, "{}")),
        ("payload", ("acme", "send", None)),
        ("payload", ("acme", "send", "[1]")),
    ],
)
async def test_a_wrong_column_is_refused_by_name(
    desk: Desk, sql: Sql, column: str, values: tuple[str | None, ...]
) -> None:
    """And nothing is written."""
    with pytest.raises(psycopg.errors.CheckViolation, match=rf"queue_jobs\.{column}: "):
        sql.run(INSERT, *values)

    assert await desk.claimable() == []


async def test_wrong_numbers_and_full_tenants_are_refused(desk: Desk, sql: Sql) -> None:
    """With an error code of SQL's own."""
    more = INSERT.replace("payload)", "payload, max_attempts)").replace("%s)", "%s, 0)")
    with pytest.raises(psycopg.errors.CheckViolation, match="max_attempts"):
        sql.run(more, "acme", "send", "{}")
    await desk.app.tenant("acme").scope().set(max_queued=1)
    sql.run(INSERT, "acme", "send", "{}")
    with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match="is full"):
        sql.run(INSERT, "acme", "send", "{}")

    assert len(await desk.claimable()) == 1
