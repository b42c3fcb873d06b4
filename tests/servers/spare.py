"""Schemas that serve many tests one after the other: making one costs more than most tests.

Each is handed out exactly as a new one that a store has opened: the rows and sequences of a
pattern, and nothing else. One that somebody still uses, or that looks different, is given up.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg

from holdfast.stores.postgres.store import PostgresStore

PATTERN = "hf_pattern"
KEPT_BYTES = 65_536
"""A larger table is truncated, a smaller one is emptied row by row, which makes no new files."""

# Who has a lock on anything in the schema has a transaction open, and may still write.
FIT = """
SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = mine.oid)
     = (SELECT count(*) FROM pg_class WHERE relnamespace = model.oid)
   AND NOT EXISTS (
    SELECT FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
        JOIN pg_stat_activity a ON a.pid = l.pid AND a.backend_type = 'client backend'
    WHERE c.relnamespace = mine.oid AND l.pid <> pg_backend_pid())
FROM pg_namespace mine, pg_namespace model WHERE mine.nspname = %s AND model.nspname = %s
"""

# No trigger runs, as none does on a schema that is made.
EMPTY = """
DO $$
DECLARE
    each record;
BEGIN
    SET LOCAL session_replication_role = replica;
    SET LOCAL lock_timeout = '1s';
    FOR each IN
        SELECT oid::regclass AS name, pg_relation_size(oid) AS bytes FROM pg_class
        WHERE relnamespace = '{schema}'::regnamespace AND relkind = 'r'
    LOOP
        IF each.bytes > {kept} THEN
            EXECUTE format('TRUNCATE %s', each.name);
        ELSIF each.bytes > 0 THEN
            EXECUTE format('DELETE FROM %s', each.name);
        END IF;
    END LOOP;
    {fill}
END $$
"""

TABLES = """
SELECT c.relname, array_agg(quote_ident(a.attname) ORDER BY a.attnum), array_agg(
    CASE a.atttypid WHEN 'timestamptz'::regtype THEN 'now()' ELSE quote_ident(a.attname) END
    ORDER BY a.attnum)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = %s::regnamespace AND c.relkind = 'r' AND pg_relation_size(c.oid) > 0
GROUP BY c.relname
"""

SEQUENCES = "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'S'"


class Spare:
    """The schemas of one server that wait for their next test."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._fill = ""

    def take(self, connection: psycopg.Connection[Any]) -> str | None:
        """One as new, or None."""
        if not self._names:
            return None
        name = self._names.pop()
        empty: Any = EMPTY.format(
            schema=name, kept=KEPT_BYTES, fill=self._fill.replace("{schema}", name)
        )
        connection.execute(empty)
        return name

    def keep(self, names: list[str], connection: psycopg.Connection[Any], url: str) -> list[str]:
        """Those that can serve again; gives the others, which are to be dropped."""
        if names and not self._fill:
            self._make_pattern(connection, url)
        fit = [
            name for name in names if connection.execute(FIT, [name, PATTERN]).fetchone() == (True,)
        ]
        self._names += fit
        return [name for name in names if name not in fit]

    def _make_pattern(self, connection: psycopg.Connection[Any], url: str) -> None:
        """What a new schema holds, by a store that makes one. Its moments are now each time."""

        async def open() -> None:
            store = PostgresStore.from_url(f"{url}?schema={PATTERN}&migrate=auto")
            await store.open()
            await store.close()

        with ThreadPoolExecutor(1) as thread:  # a loop may run in this one
            thread.submit(asyncio.run, open()).result()
        fill = []
        for table, columns, values in connection.execute(TABLES, [PATTERN]).fetchall():
            into = f"{{schema}}.{table} ({', '.join(columns)}) OVERRIDING SYSTEM VALUE"
            fill.append(f"INSERT INTO {into} SELECT {', '.join(values)} FROM {PATTERN}.{table};")
        for (sequence,) in connection.execute(SEQUENCES, [PATTERN]).fetchall():
            fill.append(
                f"PERFORM setval('{{schema}}.{sequence}', last_value, is_called)"
                f" FROM {PATTERN}.{sequence};"
            )
        self._fill = "\n    ".join(fill)
