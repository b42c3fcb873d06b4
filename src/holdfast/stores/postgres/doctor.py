"""What `holdfast doctor` can say of a PostgreSQL store: durability, rights, clock, bloat."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from holdfast.core.finding import Finding, Level
from holdfast.store import Store
from holdfast.stores.postgres.step import Step
from holdfast.stores.postgres.store import PostgresStore

CLOCK_S_MAX = 1.0
"""How far this machine's clock may be from the server's."""
OLD_S_MAX = 300.0
"""How long another transaction may be open before it is worth a word."""
DEAD_MAX = 1_000_000
"""Dead rows of a table that say that vacuum does not keep up."""
FREE_MIN = 10
"""Connections that the server should still have to give."""

VERSION = "SELECT current_setting('server_version')"
DURABILITY = (
    "SELECT name, setting FROM pg_settings"
    " WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes') AND setting = 'off'"
)
STANDBY = "SELECT pg_is_in_recovery()"
RIGHTS = (
    "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = $1 AND c.relkind IN ('r', 'p')"
    " AND NOT (has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')"
    " AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE')) ORDER BY 1"
)
EMPTYING = (
    "SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
    " WHERE i.inhparent = 'holdfast.history'::regclass"
    " AND NOT has_table_privilege(c.oid, 'TRUNCATE') AND c.relname <> 'history_rest' ORDER BY 1"
)
CLOCK = "SELECT extract(epoch FROM clock_timestamp())::double precision"
OLDEST = (
    "SELECT extract(epoch FROM max(clock_timestamp() - xact_start))::double precision"
    " FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    " AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL) AND backend_type = 'client backend'"
)
DEAD = (
    "SELECT relname::text, n_dead_tup FROM pg_stat_user_tables WHERE schemaname = $1"
    " AND n_dead_tup > $2 ORDER BY n_dead_tup DESC LIMIT 3"
)
UNFOLDED = "SELECT count(*) FROM holdfast.deltas"
FREE = (
    "SELECT current_setting('max_connections')::integer"
    " - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')"
)
BACKEND = "SELECT pg_backend_pid()"


async def examine(store: Store) -> list[Finding]:
    """Looks at an open store."""
    assert isinstance(store, PostgresStore), "operate.examine picks the doctor by the URL"

    async def look(step: Step) -> list[Finding]:
        return [finding async for finding in _findings(step, store)]

    return await store._call(look)


async def _findings(step: Step, store: PostgresStore) -> AsyncIterator[Finding]:
    yield Finding(Level.OK, "PostgreSQL", f"version {await step.value(VERSION)}")
    yield await _durability(step)
    yield await _rights(step)
    yield await _clock(step)
    yield await _transactions(step)
    yield await _bloat(step)
    free = await step.value(FREE)
    level = Level.OK if free >= FREE_MIN else Level.WARNING
    yield Finding(level, "connections", f"{free} of the server's are free")
    yield await _wakeup(step, store)


async def _durability(step: Step) -> Finding:
    if await step.value(STANDBY):
        return Finding(Level.BAD, "durability", "the server is a standby and takes no writes")
    off = [name for name, _ in await step.rows(DURABILITY)]
    if not off:
        words = "every commit is on disk before it is confirmed"
        return Finding(Level.OK, "durability", words)
    words = f"{', '.join(off)} off: a crash of the server may take confirmed jobs with it"
    return Finding(Level.WARNING, "durability", words)


async def _rights(step: Step) -> Finding:
    missing = [name for (name,) in await step.rows(RIGHTS, step.schema)]
    if missing:
        words = f"this user may not read and write: {', '.join(missing)}; grant it"
        return Finding(Level.BAD, "rights", words)
    slow = [name for (name,) in await step.rows(EMPTYING)]
    if slow:
        words = f"no TRUNCATE on {', '.join(slow)}: old jobs are deleted one by one; grant it"
        return Finding(Level.WARNING, "rights", words)
    return Finding(Level.OK, "rights", "this user may read and write all tables")


async def _clock(step: Step) -> Finding:
    before = time.time()
    server = await step.value(CLOCK)
    distance = max(0.0, abs(server - (before + time.time()) / 2) - (time.time() - before) / 2)
    words = f"the server's is {distance:.2f} s from this machine's; the server's decides"
    return Finding(Level.OK if distance <= CLOCK_S_MAX else Level.WARNING, "clock", words)


async def _transactions(step: Step) -> Finding:
    oldest = await step.value(OLDEST) or 0.0
    if oldest <= OLD_S_MAX:
        return Finding(Level.OK, "transactions", f"the oldest is {oldest:.0f} s old")
    words = (
        f"one has been open for {oldest:.0f} s: until it ends nothing that was deleted since can be"
        " cleaned up; see pg_stat_activity"
    )
    return Finding(Level.WARNING, "transactions", words)


async def _bloat(step: Step) -> Finding:
    dead = await step.rows(DEAD, step.schema, DEAD_MAX)
    if dead:
        words = ", ".join(f"{name} has {number} dead rows" for name, number in dead)
        return Finding(Level.WARNING, "vacuum", f"{words}: is autovacuum on, and does it keep up?")
    waiting = await step.value(UNFOLDED)
    return Finding(Level.OK, "vacuum", f"keeps up; {waiting} changes wait to be added up")


async def _wakeup(step: Step, store: PostgresStore) -> Finding:
    if not store.options.notify:
        words = "notify=off: idle workers look for new jobs once a second"
        return Finding(Level.OK, "wake-up", words)
    # A pooler by transaction gives a different connection now and then, and swallows LISTEN.
    first = await step.value(BACKEND)
    if first != await step.value(BACKEND):
        words = "a transaction pooler is in between: use notify=off&prepared=off"
        return Finding(Level.WARNING, "wake-up", words)
    return Finding(Level.OK, "wake-up", "processes wake each other by LISTEN and NOTIFY")
